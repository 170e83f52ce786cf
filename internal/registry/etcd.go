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
	client *clientv3.Client

	// life ends, with the reason as its cause, when the store is closed or its member has failed. Calls end with it,
	// since a failed member answers nothing.
	life   context.Context
	finish context.CancelCauseFunc
}

func newEtcdStore(client *clientv3.Client) *etcdStore {
	life, finish := context.WithCancelCause(context.Background())
	return &etcdStore{client: client, life: life, finish: finish}
}

// call derives the context of one request.
func (s *etcdStore) call(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Range implements Store.
func (s *etcdStore) Range(ctx context.Context, r Range) (Page, error) {
	ctx, done := s.call(ctx)
	defer done()
	key, end := r.Prefix, prefixEnd(r.Prefix)
	if r.After != "" {
		key = r.After + "\x00"
	}
	if key == "" {
		key = "\x00"
	}
	response, err := s.client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(int64(r.Limit)), clientv3.WithRev(r.Revision))
	if err != nil {
		return Page{}, s.translate(ctx, "read", err)
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
	ctx, done := s.call(ctx)
	defer done()
	response, err := s.client.Txn(ctx).If(etcdConds(t.Conds)...).Then(etcdOps(t.Then)...).Else(etcdOps(t.Else)...).Commit()
	if err != nil {
		return TxnResult{}, s.translate(ctx, "write", err)
	}
	return txnResult(response, response.Header.Revision), nil
}

// Watch implements Store.
func (s *etcdStore) Watch(ctx context.Context, prefix string, from int64, handle func(Changes) error) error {
	ctx, done := s.call(ctx)
	defer done()
	key, options := prefix, []clientv3.OpOption{clientv3.WithRange(prefixEnd(prefix)), clientv3.WithRev(from)}
	if key == "" {
		key = "\x00"
	}
	for response := range s.client.Watch(clientv3.WithRequireLeader(ctx), key, options...) {
		switch {
		case response.CompactRevision != 0:
			return fmt.Errorf("watch from revision %d, compacted up to %d: %w", from, response.CompactRevision, ErrCompacted)
		case response.Err() != nil:
			return s.translate(ctx, "watch", response.Err())
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
	return s.translate(ctx, "watch", ErrUnavailable)
}

// Grant implements Store.
func (s *etcdStore) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	ctx, done := s.call(ctx)
	defer done()
	seconds := int64((ttl + time.Second - 1) / time.Second)
	response, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return NoLease, s.translate(ctx, "grant lease", err)
	}
	return Lease(response.ID), nil
}

// KeepAlive implements Store.
func (s *etcdStore) KeepAlive(ctx context.Context, lease Lease) error {
	ctx, done := s.call(ctx)
	defer done()
	_, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return s.translate(ctx, "renew lease", err)
	}
	return nil
}

// Revoke implements Store.
func (s *etcdStore) Revoke(ctx context.Context, lease Lease) error {
	ctx, done := s.call(ctx)
	defer done()
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return s.translate(ctx, "revoke lease", err)
	}
	return nil
}

// Close implements Store.
func (s *etcdStore) Close() error {
	s.finish(ErrClosed)
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close registry client: %w", err)
	}
	return nil
}

// translate turns etcd's errors into this package's.
func (s *etcdStore) translate(ctx context.Context, doing string, err error) error {
	if cause := context.Cause(s.life); cause != nil {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
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
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, Username: c.Username, Password: c.Password, Logger: newZapLogger(c.Logger, new(atomic.Bool), nil),
		DialTimeout: c.Timeout, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to registry %v: %w", c.Endpoints, err)
	}
	store := newEtcdStore(client)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if _, err := store.Range(ctx, Range{Prefix: formatKey, Limit: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to registry %v: %w", c.Endpoints, err), store.Close())
	}
	return store, nil
}
