package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/status"
)

// gRPC's logger is one per process and may be set only before anybody uses gRPC. What matters arrives as an error.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// etcdStore is a Store over an etcd client, in process or over the network.
type etcdStore struct {
	current atomic.Pointer[served]

	// life ends, with the reason as its cause, when the store is closed or a lone member has failed. Calls end with it,
	// since a failed member answers nothing.
	life   context.Context
	finish context.CancelCauseFunc
}

// served is a client in use. Its life ends with the store's, or when another client takes over.
type served struct {
	client *clientv3.Client
	life   context.Context
	finish context.CancelCauseFunc
}

// newEtcdStore makes a store over a client; nil when use will bring it.
func newEtcdStore(client *clientv3.Client) *etcdStore {
	s := &etcdStore{}
	s.life, s.finish = context.WithCancelCause(context.Background())
	if client != nil {
		s.use(client)
	}
	return s
}

// use makes the store serve from another client. Calls that the former one has not answered end with ErrUnavailable.
func (s *etcdStore) use(client *clientv3.Client) {
	next := &served{client: client}
	next.life, next.finish = context.WithCancelCause(s.life)
	if former := s.current.Swap(next); former != nil {
		former.finish(fmt.Errorf("%w: the member in this process has failed, others are asked from now on", ErrUnavailable))
	}
}

// request is one call under way.
type request struct {
	ctx    context.Context
	client *clientv3.Client
	life   context.Context
	done   func()
}

func (s *etcdStore) call(ctx context.Context) request {
	now := s.current.Load()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(now.life, func() { cancel(context.Cause(now.life)) })
	return request{ctx: ctx, client: now.client, life: now.life, done: func() { stop(); cancel(nil) }}
}

// elsewhereMax bounds how many members a request is sent to: each endpoint once, and a few more while members come and go.
const elsewhereMax = 8

// elsewhere sends a request to another member as long as one refuses it because it does not vote yet, or does not run yet.
// A client takes the members in turn, and such a one has done nothing.
func elsewhere[T any](send func() (T, error)) (answer T, err error) {
	for range elsewhereMax {
		answer, err = send()
		if err == nil || rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner) {
			break
		}
	}
	return answer, err
}

// Range implements Store.
func (s *etcdStore) Range(ctx context.Context, r Range) (Page, error) {
	call := s.call(ctx)
	defer call.done()
	key, end := r.Prefix, prefixEnd(r.Prefix)
	if r.After != "" {
		key = r.After + "\x00"
	}
	if key == "" {
		key = "\x00"
	}
	response, err := elsewhere(func() (*clientv3.GetResponse, error) {
		return call.client.Get(call.ctx, key, clientv3.WithRange(end), clientv3.WithLimit(int64(r.Limit)), clientv3.WithRev(r.Revision))
	})
	if err != nil {
		return Page{}, call.translate("read", err)
	}
	page := Page{Entries: make([]Entry, len(response.Kvs)), Revision: response.Header.Revision, More: response.More}
	if r.Revision != 0 {
		page.Revision = r.Revision
	}
	for i, kv := range response.Kvs {
		page.Entries[i] = entryOf(kv)
	}
	return page, nil
}

// Txn implements Store.
func (s *etcdStore) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	call := s.call(ctx)
	defer call.done()
	response, err := elsewhere(func() (*clientv3.TxnResponse, error) {
		return call.client.Txn(call.ctx).If(etcdConds(t.Conds)...).Then(etcdOps(t.Then)...).Else(etcdOps(t.Else)...).Commit()
	})
	if err != nil {
		return TxnResult{}, call.translate("write", err)
	}
	return txnResult(response, response.Header.Revision), nil
}

// Watch implements Store.
func (s *etcdStore) Watch(ctx context.Context, prefix string, from int64, handle func(Changes) error) error {
	call := s.call(ctx)
	defer call.done()
	key, options := prefix, []clientv3.OpOption{clientv3.WithRange(prefixEnd(prefix)), clientv3.WithRev(from)}
	if key == "" {
		key = "\x00"
	}
	for response := range call.client.Watch(clientv3.WithRequireLeader(call.ctx), key, options...) {
		switch {
		case response.CompactRevision != 0:
			return fmt.Errorf("watch from revision %d, compacted up to %d: %w", from, response.CompactRevision, ErrCompacted)
		case response.Err() != nil:
			return call.translate("watch", response.Err())
		case len(response.Events) == 0:
			continue
		}
		changes := Changes{Events: make([]Event, len(response.Events)), Revision: response.Header.Revision}
		for i, event := range response.Events {
			changes.Events[i] = Event{Deleted: event.Type == clientv3.EventTypeDelete, Entry: entryOf(event.Kv)}
		}
		// A response of a watcher that is catching up may be older than the store.
		changes.Revision = changes.Events[len(changes.Events)-1].Entry.Mod
		if err := handle(changes); err != nil {
			return err
		}
	}
	// The client gives no reason for ending the watch. After Close, ctx may not have heard of it yet: translate asks.
	return call.translate("watch", ErrUnavailable)
}

// Grant implements Store.
func (s *etcdStore) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	call := s.call(ctx)
	defer call.done()
	seconds := int64((ttl + time.Second - 1) / time.Second)
	response, err := elsewhere(func() (*clientv3.LeaseGrantResponse, error) { return call.client.Grant(call.ctx, seconds) })
	if err != nil {
		return NoLease, call.translate("grant lease", err)
	}
	return Lease(response.ID), nil
}

// KeepAlive implements Store.
func (s *etcdStore) KeepAlive(ctx context.Context, lease Lease) error {
	call := s.call(ctx)
	defer call.done()
	_, err := elsewhere(func() (*clientv3.LeaseKeepAliveResponse, error) {
		return call.client.KeepAliveOnce(call.ctx, clientv3.LeaseID(lease))
	})
	if err != nil {
		return call.translate("renew lease", err)
	}
	return nil
}

// Revoke implements Store.
func (s *etcdStore) Revoke(ctx context.Context, lease Lease) error {
	call := s.call(ctx)
	defer call.done()
	_, err := elsewhere(func() (*clientv3.LeaseRevokeResponse, error) {
		return call.client.Revoke(call.ctx, clientv3.LeaseID(lease))
	})
	if err != nil {
		return call.translate("revoke lease", err)
	}
	return nil
}

// Close implements Store.
func (s *etcdStore) Close() error {
	s.finish(ErrClosed)
	now := s.current.Load()
	if now == nil {
		return nil
	}
	if err := now.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close registry client: %w", err)
	}
	return nil
}

// translate turns etcd's errors into this package's.
func (r request) translate(doing string, err error) error {
	if cause := context.Cause(r.life); cause != nil {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if r.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, r.ctx.Err())
	}
	var etcdErr rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &etcdErr) {
		code = etcdErr.Code()
	}
	sentinel := error(nil)
	switch message := rpctypes.ErrorDesc(err); message {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted):
		sentinel = ErrCompacted
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound):
		sentinel = ErrLeaseGone
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace):
		sentinel = ErrFull
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCTooManyOps), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge):
		sentinel = ErrTooLarge
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCDuplicateKey):
		sentinel = ErrDuplicateKey
	default:
		if code == codes.Unavailable || code == codes.DeadlineExceeded {
			return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, message)
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, sentinel)
}

func entryOf(kv *mvccpb.KeyValue) Entry {
	return Entry{
		Key: string(kv.Key), Value: kv.Value, Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version,
		Lease: Lease(kv.Lease),
	}
}

// prefixEnd is the key after all keys with the prefix, etcd's "\x00" for the end of the key space.
func prefixEnd(prefix string) string {
	if prefix == "" {
		return "\x00"
	}
	return clientv3.GetPrefixRangeEnd(prefix)
}

func etcdConds(conds []Cond) []clientv3.Cmp {
	out := make([]clientv3.Cmp, len(conds))
	for i, c := range conds {
		switch c.target {
		case createIs:
			out[i] = clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.value)
		case createAbove:
			out[i] = clientv3.Compare(clientv3.CreateRevision(c.key), ">", c.value)
		case versionIs:
			out[i] = clientv3.Compare(clientv3.Version(c.key), "=", c.value)
		case modIs:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.key), "=", c.value)
		case modBelow:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.key), "<", c.value)
		}
		if c.prefix {
			out[i] = out[i].WithRange(prefixEnd(c.key))
		}
	}
	return out
}

func etcdOps(ops []Op) []clientv3.Op {
	out := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		switch op.kind {
		case opPut:
			out[i] = clientv3.OpPut(op.key, string(op.value), clientv3.WithLease(clientv3.LeaseID(op.lease)))
		case opDelete:
			out[i] = clientv3.OpDelete(op.key)
		case opDeletePrefix:
			out[i] = clientv3.OpDelete(op.key, clientv3.WithRange(prefixEnd(op.key)))
		case opGet:
			out[i] = clientv3.OpGet(op.key)
		case opNest:
			out[i] = clientv3.OpTxn(etcdConds(op.txn.Conds), etcdOps(op.txn.Then), etcdOps(op.txn.Else))
		}
	}
	return out
}

func txnResult(response *clientv3.TxnResponse, revision int64) TxnResult {
	result := TxnResult{Succeeded: response.Succeeded, Revision: revision, Results: make([]OpResult, len(response.Responses))}
	for i, r := range response.Responses {
		switch {
		case r.GetResponseRange() != nil:
			if kvs := r.GetResponseRange().Kvs; len(kvs) > 0 {
				entry := entryOf(kvs[0])
				result.Results[i].Entry = &entry
			}
		case r.GetResponseDeleteRange() != nil:
			result.Results[i].Deleted = r.GetResponseDeleteRange().Deleted
		case r.GetResponseTxn() != nil:
			nested := txnResult((*clientv3.TxnResponse)(r.GetResponseTxn()), revision)
			result.Results[i].Txn = &nested
		}
	}
	return result
}

// DialConfig says where an external registry is.
type DialConfig struct {
	Endpoints []string // such as http://10.0.0.1:2379 or unix:///run/etcd.sock; all members of the etcd cluster
	Username  string   // empty when etcd has no authentication
	Password  string
	TLS       *TLS // for https endpoints; nil for none
	Logger    *slog.Logger
	Timeout   time.Duration // for the first answer; default 10 s
}

// Dial connects to external etcd and waits for its first answer, so that a wrong address is known now.
func Dial(ctx context.Context, c DialConfig) (Store, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("no registry endpoints are given")
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	store := newEtcdStore(client)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if _, err := store.Range(ctx, Range{Prefix: formatKey, Limit: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to registry %v: %w", c.Endpoints, err), store.Close())
	}
	return store, nil
}

// newClient makes a client without waiting for anybody.
func newClient(c DialConfig) (*clientv3.Client, error) {
	secure, err := c.TLS.clientConfig()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, Username: c.Username, Password: c.Password, TLS: secure, Logger: newZapLogger(c.Logger, new(atomic.Bool), nil),
		DialTimeout: c.Timeout, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to registry %v: %w", c.Endpoints, err)
	}
	return client, nil
}
