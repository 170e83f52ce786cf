package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

const (
	socketName = "etcd.sock"

	// socketPathMax is the longest path that every system accepts for a unix socket, without its final NUL.
	socketPathMax = 103

	// walSegmentBytes: etcd preallocates two segments; its default of 64 MB each is more than a small disk has to spare.
	walSegmentBytes = 8 << 20

	// quotaBytes bounds the registry's database. 100,000 partitions take about 60 MiB.
	quotaBytes = 2 << 30

	// keptRevisions is the history that stays readable for watchers that fell behind.
	keptRevisions = "10000"

	// defragMB: a start gives back the free pages of the database when there are at least that many MB of them, and the
	// disk has room for the copy.
	defragMB = 128

	// failureGrace is how long Close waits for a failed member, which may never stop.
	failureGrace = 100 * time.Millisecond
)

// EmbeddedConfig configures the etcd member in this process.
type EmbeddedConfig struct {
	// Dir holds the member: the folder registry/ of the data directory. It is created with mode 0700.
	Dir string

	// Logger gets etcd's lines from warn up; nil discards them.
	Logger *slog.Logger

	// BallastBytes is the size of the file that is given back to a full disk before etcd opens, so that a start needs no
	// free space (U-72, U-73). Default 64 MiB; negative for none.
	BallastBytes int64

	// Tick and Election are etcd's heartbeat interval and election timeout. The defaults, 10 and 100 ms, suit a lone
	// member, which waits for one election timeout at every start.
	Tick, Election time.Duration

	// FreeBytes tells the free space of the disk that holds a folder; nil asks the operating system.
	FreeBytes func(dir string) (uint64, error)
}

func (c EmbeddedConfig) withDefaults() EmbeddedConfig {
	if c.BallastBytes == 0 {
		c.BallastBytes = 64 << 20
	}
	if c.Tick == 0 {
		c.Tick = 10 * time.Millisecond
	}
	if c.Election == 0 {
		c.Election = 100 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FreeBytes == nil {
		c.FreeBytes = freeBytes
	}
	return c
}

// Embedded is a lone etcd member in this process. It has no TCP port; etcdctl reaches it at SocketPath.
type Embedded struct {
	config  EmbeddedConfig
	ballast ballast
	etcd    *embed.Etcd
	store   *etcdStore
	failure *failure
	life    context.Context // of the store: ends, with its cause, at Close or when the member fails
	finish  context.CancelCauseFunc
	socket  string
	quiet   atomic.Bool // until the member is ready, and from Close on: an error says what is wrong
	closing sync.Once
	closed  error
}

// walSegment sets etcd's process-wide variable once.
var walSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })

// StartEmbedded starts the member and returns when it accepts writes. An error leaves nothing behind, except that a
// member which met a full disk keeps its files locked until the process ends.
func StartEmbedded(ctx context.Context, c EmbeddedConfig) (*Embedded, error) {
	walSegment()
	c = c.withDefaults()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create registry directory: %w", err)
	}
	e := &Embedded{config: c, failure: newFailure(), ballast: ballast{
		path: filepath.Join(c.Dir, ballastName), size: c.BallastBytes, free: c.FreeBytes,
	}}
	e.quiet.Store(true)
	e.life, e.finish = context.WithCancelCause(context.Background())
	if _, err := e.ballast.release(); err != nil {
		return nil, fmt.Errorf("release registry ballast: %w", err)
	}
	if err := removeTorn(c.Dir); err != nil {
		return nil, err
	}
	config, err := e.etcdConfig()
	if err != nil {
		return nil, err
	}

	// etcd reports some errors of its files only to its logger, whose hook then blocks the goroutine: so wait beside it.
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	result := make(chan started, 1)
	go func() {
		r := started{}
		defer func() {
			if fault := recover(); fault != nil { // etcd panics on some damaged files
				r = started{err: fmt.Errorf("%w: its files are damaged: %v", ErrFailed, fault)}
			}
			result <- r
		}()
		r.etcd, r.err = embed.StartEtcd(config)
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return nil, fmt.Errorf("start registry in %s: %w", c.Dir, r.err)
		}
		e.etcd = r.etcd
	case <-e.failure.closed:
		return nil, e.failedError("start registry in " + c.Dir)
	}
	e.store = &etcdStore{client: v3client.New(e.etcd.Server), life: e.life, finish: e.finish}
	context.AfterFunc(e.life, e.closeListeners)
	select {
	case <-e.etcd.Server.ReadyNotify():
		e.quiet.Store(false)
		return e, nil
	case <-e.failure.closed:
		err = e.failedError("start registry in " + c.Dir)
	case <-ctx.Done():
		err = fmt.Errorf("start registry in %s: %w", c.Dir, context.Cause(ctx))
	}
	return nil, errors.Join(err, e.Close())
}

func (e *Embedded) etcdConfig() (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name = "tidemark"
	c.Dir = e.config.Dir
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ListenPeerUrls = nil // a lone member has no peers
	c.ListenClientUrls = nil
	if socket, fits := socketPath(e.config.Dir); fits {
		e.socket = socket
		c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
		c.AdvertiseClientUrls = c.ListenClientUrls
	} else {
		e.config.Logger.Warn("registry socket is off: its path is too long for a unix socket", slog.Any("path", socket), slog.Any("max", socketPathMax))
	}
	c.TickMs, c.ElectionMs = uint(e.config.Tick.Milliseconds()), uint(e.config.Election.Milliseconds())
	c.EnableGRPCGateway = false
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, keptRevisions
	c.QuotaBackendBytes = quotaBytes
	c.SnapshotCount, c.SnapshotCatchUpEntries = 5_000, 500
	c.WarningApplyDuration, c.WarningUnaryRequestDuration = time.Second, time.Second
	if size, err := databaseBytes(e.config.Dir); err == nil {
		if free, err := e.config.FreeBytes(e.config.Dir); err == nil && free > 2*uint64(size)+defragMB<<20 {
			c.BootstrapDefragThresholdMegabytes = defragMB
		}
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZapLogger(e.config.Logger, &e.quiet, e.fail))
	return c, nil
}

// fail is called by etcd's logger on a goroutine that then blocks for ever.
func (e *Embedded) fail(reason string) {
	e.failure.set(reason)
	e.quiet.Store(true) // what follows is of no use
	e.finish(e.failedError("registry"))
}

// closeListeners keeps etcdctl from waiting for a member that has failed.
func (e *Embedded) closeListeners() {
	if errors.Is(context.Cause(e.life), ErrFailed) {
		for _, listener := range e.etcd.Clients {
			_ = listener.Close() // the member is lost already
		}
	}
}

func (e *Embedded) failedError(doing string) error {
	free := "unknown"
	if n, err := e.config.FreeBytes(e.config.Dir); err == nil {
		free = fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Errorf("%s: %w: %s (free disk space: %s)", doing, ErrFailed, e.failure.reason, free)
}

// Store is the member's store. It belongs to the member: close the member instead.
func (e *Embedded) Store() Store { return e.store }

// SocketPath is where etcdctl reaches the member (--endpoints=unix://PATH); empty when the path is too long for a
// socket.
func (e *Embedded) SocketPath() string { return e.socket }

// Failed is closed when the member has met an error that it cannot survive; every call then returns ErrFailed.
func (e *Embedded) Failed() <-chan struct{} { return e.failure.closed }

// Run keeps the space that a full disk would not give, until ctx ends (nil) or the member fails (ErrFailed).
func (e *Embedded) Run(ctx context.Context) error {
	const interval = 10 * time.Second
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		e.reserve()
		select {
		case <-ctx.Done():
			return nil
		case <-e.failure.closed:
			return e.failedError("registry")
		case <-ticker.C:
		}
	}
}

// Relieve gives the ballast back if the disk is nearly full: a stop wants to write its last checkpoints. While the
// broker runs the ballast stays, for the next start.
func (e *Embedded) Relieve() {
	switch released, err := e.ballast.release(); {
	case err != nil:
		e.config.Logger.Warn("registry ballast could not be released", slog.Any("err", err))
	case released:
		e.config.Logger.Info("registry ballast released: the disk is nearly full", slog.Int64("bytes", e.ballast.size))
	}
}

// reserve takes the space that a full disk would not give.
func (e *Embedded) reserve() {
	if created, err := e.ballast.restore(); err != nil {
		e.config.Logger.Warn("registry ballast could not be created", slog.Any("err", err))
	} else if created {
		e.config.Logger.Debug("registry ballast created", slog.Int64("bytes", e.ballast.size))
	}
	if err := reserveDatabase(e.config.Dir); err != nil {
		e.config.Logger.Debug("registry database could not be reserved", slog.Any("err", err))
	}
}

// Close stops the member and waits for it, unless it has failed. Leases go on counting while it is stopped.
func (e *Embedded) Close() error {
	e.closing.Do(func() {
		e.quiet.Store(true)
		e.closed = e.store.Close()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			e.etcd.Close()
		}()
		select {
		case <-stopped:
		case <-e.failure.closed:
			// A failed member blocks the goroutines that would stop; it ends with the process.
			grace := time.NewTimer(failureGrace)
			defer grace.Stop()
			select {
			case <-stopped:
			case <-grace.C:
			}
		}
	})
	return e.closed
}

// socketPath is the absolute path of the socket, and whether it is short enough.
func socketPath(dir string) (string, bool) {
	path, err := filepath.Abs(filepath.Join(dir, socketName))
	if err != nil {
		return filepath.Join(dir, socketName), false
	}
	return path, len(path) <= socketPathMax
}

// databasePath is etcd's database in the member's directory.
func databasePath(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

func databaseBytes(dir string) (int64, error) {
	info, err := os.Stat(databasePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
