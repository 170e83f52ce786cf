package registry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcdStore is a Store over an etcd client, in process or over the network.
type etcdStore struct {
	current atomic.Pointer[served]
	reign   atomic.Pointer[reign]

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

// reign is the time of one leader among the members. A call that the leader took with it is never answered: etcd itself
// gives it up after some seconds.
type reign struct {
	ctx context.Context
	end context.CancelFunc
}

// newEtcdStore makes a store over a client; nil when use will bring it.
func newEtcdStore(client *clientv3.Client) *etcdStore {
	s := &etcdStore{}
	s.life, s.finish = context.WithCancelCause(context.Background())
	s.crown()
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

// crown begins the reign of another leader. Calls of the former one's that are still under way end with ErrUnavailable;
// watches go on, since the member in this process serves them.
func (s *etcdStore) crown() {
	next := &reign{}
	next.ctx, next.end = context.WithCancel(s.life)
	if former := s.reign.Swap(next); former != nil {
		former.end()
	}
}

// request is one call under way.
type request struct {
	ctx    context.Context
	client *clientv3.Client
	life   context.Context
	reign  context.Context // nil for a call that outlives leaders
	done   func()
}

// call derives what one call runs under.
func (s *etcdStore) call(ctx context.Context, underLeader bool) request {
	now := s.current.Load()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(now.life, func() { cancel(context.Cause(now.life)) })
	r := request{ctx: ctx, client: now.client, life: now.life, done: func() { stop(); cancel(nil) }}
	if underLeader {
		r.reign = s.reign.Load().ctx
		unseat := context.AfterFunc(r.reign, func() { cancel(ErrUnavailable) })
		r.done = func() { unseat(); stop(); cancel(nil) }
	}
	return r
}

// overtaken tells whether the leader changed while the call was under way.
func (r request) overtaken() bool { return r.reign != nil && r.reign.Err() != nil }

// callKind says what may be done about a call whose outcome is unknown.
type callKind bool

const (
	once       callKind = false
	repeatable callKind = true // it changes nothing, or nothing that matters
)

const (
	// elsewhereMax bounds how many members a request is sent to: each endpoint once, and a few more while members come and
	// go.
	elsewhereMax = 8

	// repeatPause is the time before a call is repeated because the registry had no leader.
	repeatPause = 20 * time.Millisecond
)

// ask makes one call. A member that refuses it because it does not vote yet, or does not run yet, has done nothing: the
// client takes the members in turn, so the next one is asked. A repeatable call that a change of leader has interrupted is
// made again.
func ask[T any](ctx context.Context, s *etcdStore, doing string, kind callKind, send func(request) (T, error)) (T, error) {
	for {
		call := s.call(ctx, true)
		answer, err := send(call)
		for n := 1; n < elsewhereMax && isError(err, rpctypes.ErrGRPCNotSupportedForLearner); n++ {
			answer, err = send(call)
		}
		if err == nil {
			call.done()
			return answer, nil
		}
		again := kind == repeatable && (call.overtaken() || isError(err, rpctypes.ErrGRPCLeaderChanged) || status.Code(err) == codes.Canceled)
		err = call.translate(doing, err)
		call.done()
		if !again || ctx.Err() != nil || s.life.Err() != nil {
			return answer, err
		}
		timer := time.NewTimer(repeatPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answer, err
		}
	}
}

func isError(err, of error) bool {
	return err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(of)
}

// translate turns etcd's errors into this package's.
func (r request) translate(doing string, err error) error {
	if cause := context.Cause(r.life); cause != nil {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if r.overtaken() {
		return fmt.Errorf("%s: %w: the registry has a new leader", doing, ErrUnavailable)
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
		if code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled {
			return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, message)
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, sentinel)
}

// writes tells whether operations change anything.
func writes(ops []Op) bool {
	for _, op := range ops {
		switch op.kind {
		case opGet:
		case opNest:
			if writes(op.txn.Then) || writes(op.txn.Else) {
				return true
			}
		default:
			return true
		}
	}
	return false
}
