package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
)

var (
	// ErrLoading is returned by Do while the partition's records are being read.
	ErrLoading = errors.New("the coordinator is loading")
	// ErrStopped is returned by Do when the runner has stopped: this broker does not lead the partition any more, or its
	// log has failed. Calls that were waiting get it too.
	ErrStopped = errors.New("the coordinator has stopped")
	// ErrBusy is returned by Do when too many calls wait.
	ErrBusy = errors.New("the coordinator has too many calls waiting")
)

// Config is what a Runner needs. All fields but the limits must be set.
type Config struct {
	// Log is the partition.
	Log Log
	// Codec compresses what is written.
	Codec record.Codec
	// CommitTimeout is how long a write may wait to be committed, default 5 s. After it the runner stops, because the
	// outcome is not known.
	CommitTimeout time.Duration
	// BatchBytesMax is the size in bytes at which a batch takes no further writes, default 256 KiB. A write that is larger
	// by itself makes a batch of its own.
	BatchBytesMax int
	// WaitingMax is the number of calls that may wait for their answers. Default 100,000.
	WaitingMax int
	// Now is the clock.
	Now func() time.Time
	// Logger hears of loading and of failures.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 5 * time.Second
	}
	if c.BatchBytesMax == 0 {
		c.BatchBytesMax = 256 << 10
	}
	if c.WaitingMax == 0 {
		c.WaitingMax = 100_000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Runner owns a machine for as long as its partition is led here. Make one with New, run it once.
type Runner[M Machine] struct {
	config   Config
	machine  M
	builder  *record.Builder
	inFlight []*batch // appended, outcome unknown, oldest first
	open     batch    // writes gathered for the next append

	wake   chan struct{} // one slot: something is in mu
	loaded chan struct{} // closed when the machine has been loaded, or has stopped before

	mu struct {
		sync.Mutex
		phase  phase
		events []event[M]
		calls  map[Call]chan any // who waits
		last   Call
	}
}

type phase uint8

const (
	loading phase = iota
	running
	stopped
)

// event is a call that the machine has not seen.
type event[M Machine] struct {
	call Call
	do   func(machine M, call Call, now time.Time) Effects
}

// batch is writes that are appended together.
type batch struct {
	writes  []WriteID
	pending Pending
	expiry  time.Time
	done    bool // guarded by the runner's mu
}

// New makes a runner of a machine that has seen nothing. It starts nothing.
func New[M Machine](machine M, config Config) *Runner[M] {
	config = config.withDefaults()
	r := &Runner[M]{config: config, machine: machine, wake: make(chan struct{}, 1), loaded: make(chan struct{})}
	r.builder = record.NewBuilder(r.options())
	r.mu.calls = make(map[Call]chan any)
	return r
}

// options are those of the batches that are written. The leader assigns offsets and epoch.
func (r *Runner[M]) options() record.BuilderOptions {
	return record.BuilderOptions{LeaderEpoch: -1, Codec: r.config.Codec}
}

// Do brings an event to the machine and waits for the answer to its call, which may come with a later event. It returns
// ErrLoading, ErrStopped, ErrBusy, or the error of ctx, after which the answer is dropped when it comes.
func (r *Runner[M]) Do(ctx context.Context, do func(machine M, call Call, now time.Time) Effects) (any, error) {
	answer := make(chan any, 1)
	call, err := r.enqueue(do, answer)
	if err != nil {
		return nil, err
	}
	select {
	case value, answered := <-answer:
		if !answered {
			return nil, ErrStopped
		}
		return value, nil
	case <-ctx.Done():
		r.mu.Lock()
		delete(r.mu.calls, call)
		r.mu.Unlock()
		return nil, ctx.Err()
	}
}

// AwaitLoaded waits until the machine is loaded, the runner has stopped, or ctx ends.
func (r *Runner[M]) AwaitLoaded(ctx context.Context) {
	select {
	case <-r.loaded:
	case <-ctx.Done():
	}
}

// Tell brings an event to the machine that nobody waits for. It is dropped if the runner is not running.
func (r *Runner[M]) Tell(do func(machine M, call Call, now time.Time) Effects) {
	_, _ = r.enqueue(do, nil) // a runner that loads or has stopped need not hear it
}

func (r *Runner[M]) enqueue(do func(M, Call, time.Time) Effects, answer chan any) (Call, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.phase == loading:
		return NoCall, ErrLoading
	case r.mu.phase == stopped:
		return NoCall, ErrStopped
	case answer != nil && len(r.mu.calls) >= r.config.WaitingMax:
		return NoCall, ErrBusy
	}
	call := NoCall
	if answer != nil {
		r.mu.last++
		call = r.mu.last
		r.mu.calls[call] = answer
	}
	r.mu.events = append(r.mu.events, event[M]{call, do})
	r.signal()
	return call, nil
}

func (r *Runner[M]) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run loads the machine, then serves events until ctx ends (nil), or until the log fails or leaves an outcome unknown
// (the error). Whoever waits then gets ErrStopped. A runner that has stopped is not run again.
func (r *Runner[M]) Run(ctx context.Context) error {
	defer r.stop()
	if err := r.load(ctx); err != nil {
		return stopOf(ctx, err)
	}
	return stopOf(ctx, r.serve(ctx))
}

// stopOf is nil for an end that was asked for.
func stopOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// load folds the log.
func (r *Runner[M]) load(ctx context.Context) error {
	began := r.config.Now()
	start, end := r.config.Log.Bounds()
	decompressor := record.NewDecompressor(record.DefaultLimits)
	records := 0
	for offset := start; offset < end; {
		data, err := r.config.Log.Read(ctx, offset)
		if err != nil {
			return fmt.Errorf("load from offset %d: %w", offset, err)
		}
		if len(data) == 0 { // what follows was compacted away
			break
		}
		for len(data) > 0 {
			var b record.Batch
			if b, data, err = record.Next(data); err != nil {
				return fmt.Errorf("load from offset %d: %w", offset, err)
			}
			offset = b.LastOffset() + 1
			n, err := r.replay(b, decompressor)
			if err != nil {
				return fmt.Errorf("load the batch at offset %d: %w", b.BaseOffset(), err)
			}
			records += n
		}
	}
	r.mu.Lock()
	r.mu.phase = running
	close(r.loaded)
	r.mu.Unlock()
	now := r.config.Now()
	r.config.Logger.Debug("coordinator loaded", slog.Int("records", records), slog.Duration("took", now.Sub(began)))
	return r.apply(ctx, r.machine.Loaded(now))
}

// replay folds one batch.
func (r *Runner[M]) replay(b record.Batch, d *record.Decompressor) (int, error) {
	if b.Control() {
		return 0, nil
	}
	if err := b.CheckCRC(); err != nil {
		return 0, err
	}
	n := 0
	it := b.Records(d)
	for it.Next() {
		rec := it.Record()
		if err := r.machine.Replay(Record{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}); err != nil {
			return n, fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
		n++
	}
	return n, it.Err()
}

// serve takes what has gathered, as often as something has.
func (r *Runner[M]) serve(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := r.round(ctx); err != nil {
			return err
		}
		timer.Reset(r.sleep())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// sleep is the time until the next deadline.
func (r *Runner[M]) sleep() time.Duration {
	const longest = time.Hour
	now := r.config.Now()
	sleep := longest
	if at, waits := r.machine.Deadline(); waits {
		sleep = min(sleep, at.Sub(now))
	}
	if len(r.inFlight) > 0 {
		sleep = min(sleep, r.inFlight[0].expiry.Sub(now))
	}
	return max(sleep, 0)
}

// round handles everything that has happened until now.
func (r *Runner[M]) round(ctx context.Context) error {
	for {
		if err := r.settle(ctx); err != nil {
			return err
		}
		r.mu.Lock()
		events := r.mu.events
		r.mu.events = nil
		r.mu.Unlock()
		now := r.config.Now()
		if at, waits := r.machine.Deadline(); waits && !at.After(now) {
			if err := r.apply(ctx, r.machine.Wake(now)); err != nil {
				return err
			}
		}
		for _, e := range events {
			if err := r.apply(ctx, e.do(r.machine, e.call, now)); err != nil {
				return err
			}
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
		if len(events) == 0 && !r.settled() {
			return nil
		}
	}
}

// apply does the effects of an event.
func (r *Runner[M]) apply(ctx context.Context, e Effects) error {
	for _, reply := range e.Replies {
		r.answer(reply)
	}
	for i := range e.Writes {
		if err := r.write(ctx, &e.Writes[i]); err != nil {
			return err
		}
	}
	return nil
}

// answer delivers a reply, if somebody still waits for it.
func (r *Runner[M]) answer(reply Reply) {
	r.mu.Lock()
	answer := r.mu.calls[reply.Call]
	delete(r.mu.calls, reply.Call)
	r.mu.Unlock()
	if answer != nil {
		answer <- reply.Value // it has room for the one answer
	}
}

// write adds a write to the batch that is gathered.
func (r *Runner[M]) write(ctx context.Context, w *Write) error {
	size := 0
	for i := range w.Records {
		size += recordOverhead + len(w.Records[i].Key) + len(w.Records[i].Value)
	}
	if len(r.open.writes) > 0 && r.builder.UncompressedBytes()+size > r.config.BatchBytesMax {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	for i := range w.Records {
		r.builder.Append(w.Records[i].Timestamp, w.Records[i].Key, w.Records[i].Value)
	}
	r.open.writes = append(r.open.writes, w.ID)
	return nil
}

// recordOverhead is about what a record takes in a batch besides key and value, in bytes.
const recordOverhead = 24

// flush appends the batch that was gathered.
func (r *Runner[M]) flush(ctx context.Context) error {
	if len(r.open.writes) == 0 {
		return nil
	}
	b := r.open
	r.open = batch{}
	data, err := r.builder.Batch()
	if err == nil {
		b.pending, err = r.config.Log.Append(ctx, data)
	}
	r.builder.Reset(r.options())
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.config.Logger.Warn("coordinator could not write", slog.Int("writes", len(b.writes)), slog.Any("err", err))
		// Whatever was written before has its outcome first.
		b.pending = refused{err}
	}
	b.expiry = r.config.Now().Add(r.config.CommitTimeout)
	in := &b
	r.inFlight = append(r.inFlight, in)
	b.pending.Done(func() {
		r.mu.Lock()
		in.done = true
		r.mu.Unlock()
		r.signal()
	})
	return nil
}

// refused is the outcome of an append that wrote nothing.
type refused struct{ err error }

func (p refused) Done(notify func()) { notify() }
func (p refused) Err() error         { return p.err }
func (refused) Expire() bool         { return false }

// settled tells whether the oldest write has its outcome.
func (r *Runner[M]) settled() bool {
	if len(r.inFlight) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight[0].done
}

// settle tells the machine of outcomes, in the order of the writes.
func (r *Runner[M]) settle(ctx context.Context) error {
	now := r.config.Now()
	for len(r.inFlight) > 0 {
		if !r.settled() {
			if b := r.inFlight[0]; !now.Before(b.expiry) && b.pending.Expire() {
				return fmt.Errorf("write not committed within %v: %w", r.config.CommitTimeout, b.pending.Err())
			}
			if !r.settled() {
				return nil
			}
		}
		b := r.inFlight[0]
		r.inFlight[0] = nil
		r.inFlight = r.inFlight[1:]
		err := b.pending.Err()
		if _, definite := b.pending.(refused); err != nil && !definite {
			return fmt.Errorf("outcome of a write is unknown: %w", err)
		}
		for _, id := range b.writes {
			if err := r.apply(ctx, r.machine.Written(id, err, now)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop answers whoever waits.
func (r *Runner[M]) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.phase == loading {
		close(r.loaded)
	}
	r.mu.phase = stopped
	r.mu.events = nil
	for _, answer := range r.mu.calls {
		close(answer)
	}
	clear(r.mu.calls)
}
