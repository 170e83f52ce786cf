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
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/grpclog"
)

// gRPC's logger is one per process and may be set only before anybody uses gRPC. What matters arrives as an error.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// Range implements Store.
func (s *etcdStore) Range(ctx context.Context, r Range) (Page, error) {
	key, end := r.Prefix, prefixEnd(r.Prefix)
	if r.After != "" {
		key = r.After + "\x00"
	}
	if key == "" {
		key = "\x00"
	}
	response, err := ask(ctx, s, "read", repeatable, func(call request) (*clientv3.GetResponse, error) {
		return call.client.Get(call.ctx, key, clientv3.WithRange(end), clientv3.WithLimit(int64(r.Limit)), clientv3.WithRev(r.Revision))
	})
	if err != nil {
		return Page{}, err
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
	kind := once
	if !writes(t.Then) && !writes(t.Else) {
		kind = repeatable
	}
	response, err := ask(ctx, s, "write", kind, func(call request) (*clientv3.TxnResponse, error) {
		return call.client.Txn(call.ctx).If(etcdConds(t.Conds)...).Then(etcdOps(t.Then)...).Else(etcdOps(t.Else)...).Commit()
	})
	if err != nil {
		return TxnResult{}, err
	}
	return txnResult(response, response.Header.Revision), nil
}

// Watch implements Store.
func (s *etcdStore) Watch(ctx context.Context, prefix string, from int64, handle func(Changes) error) error {
	call := s.call(ctx, false)
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
	seconds := int64((ttl + time.Second - 1) / time.Second)
	response, err := ask(ctx, s, "grant lease", repeatable, func(call request) (*clientv3.LeaseGrantResponse, error) {
		return call.client.Grant(call.ctx, seconds) // a lease that nobody heard of runs out
	})
	if err != nil {
		return NoLease, err
	}
	return Lease(response.ID), nil
}

// KeepAlive implements Store.
func (s *etcdStore) KeepAlive(ctx context.Context, lease Lease) error {
	_, err := ask(ctx, s, "renew lease", repeatable, func(call request) (*clientv3.LeaseKeepAliveResponse, error) {
		return call.client.KeepAliveOnce(call.ctx, clientv3.LeaseID(lease))
	})
	return err
}

// Revoke implements Store.
func (s *etcdStore) Revoke(ctx context.Context, lease Lease) error {
	_, err := ask(ctx, s, "revoke lease", once, func(call request) (*clientv3.LeaseRevokeResponse, error) {
		return call.client.Revoke(call.ctx, clientv3.LeaseID(lease))
	})
	return err
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
	secure, err := c.TLS.clientConfig(c.Logger)
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
