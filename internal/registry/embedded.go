package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	chance "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
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

	// reignGrace is how long calls that began under a former leader are still waited for.
	reignGrace = 250 * time.Millisecond

	// handOverPatience bounds the hand-over of the lead when a member stops.
	handOverPatience = time.Second

	// joinTries bounds how often a newcomer asks for the members: others may come at the same time.
	joinTries = 10

	// joinPause times the number of tries bounds the pause before the next one. It is left to chance: when two newcomers ask
	// at once, the admission of each makes what the other was told out of date.
	joinPause = 40 * time.Millisecond

	// learnersMax: a lone member grows by two at once.
	learnersMax = 2
)

var (
	// ErrNeedsCluster is returned by StartEmbedded without a Door when the member is one of several.
	ErrNeedsCluster = errors.New("registry has other members, and this broker was not told of a cluster")

	// ErrRemoved is returned by StartEmbedded when the cluster has given the member's place to another one.
	ErrRemoved = errors.New("this member was removed from the registry: its broker has a new one elsewhere, or left the list")
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

	// Tick and Election are etcd's heartbeat interval and election timeout. The defaults are 10 and 100 ms for a lone
	// member, which waits for one election timeout at every start, and 100 and 1,000 ms for one of several.
	Tick, Election time.Duration

	// Door leads to the other brokers of the cluster; nil for a lone member. It is the member's from then on: both are
	// closed together.
	Door *Door

	// forget makes the member the only one of its cluster, whatever the others have decided: for Recover.
	forget bool

	// Waiting is told what a member of a cluster waits for when it starts; nil for nobody.
	Waiting func(what string)

	// FreeBytes tells the free space of the disk that holds a folder; nil asks the operating system.
	FreeBytes func(dir string) (uint64, error)
}

func (c EmbeddedConfig) withDefaults() EmbeddedConfig {
	if c.BallastBytes == 0 {
		c.BallastBytes = 64 << 20
	}
	factor := time.Duration(1)
	if c.Door != nil && c.Door.config.Members > 1 {
		factor = 10
	}
	if c.Tick == 0 {
		c.Tick = factor * 10 * time.Millisecond
	}
	if c.Election == 0 {
		c.Election = factor * 100 * time.Millisecond
	}
	if c.Waiting == nil {
		c.Waiting = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FreeBytes == nil {
		c.FreeBytes = freeBytes
	}
	return c
}

// Embedded is an etcd member in this process: a lone one, which has no TCP port, or one of a cluster, behind its Door.
// etcdctl reaches it at SocketPath.
type Embedded struct {
	config   EmbeddedConfig
	ballast  ballast
	etcd     *embed.Etcd
	store    *etcdStore
	failure  *failure
	lost     context.Context // ends when the member fails
	lose     context.CancelFunc
	followed chan struct{} // closed when followLeader has ended; nil for a lone member
	socket   string
	quiet    atomic.Bool // until the member is ready, and from Close on: an error says what is wrong
	closing  sync.Once
	closed   error
}

// walSegment sets etcd's process-wide variable once.
var walSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegmentBytes })

// StartEmbedded starts the member and returns when it accepts writes. One of a cluster waits for that until a majority of
// the members runs; an empty one first founds the cluster or is let in (D3). An error leaves nothing behind, except that
// a member which met a full disk keeps its files locked until the process ends.
func StartEmbedded(ctx context.Context, c EmbeddedConfig) (*Embedded, error) {
	walSegment()
	c = c.withDefaults()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create registry directory: %w", err)
	}
	e := &Embedded{config: c, failure: newFailure(), store: newEtcdStore(nil), ballast: ballast{
		path: filepath.Join(c.Dir, ballastName), size: c.BallastBytes, free: c.FreeBytes,
	}}
	e.lost, e.lose = context.WithCancel(context.Background())
	e.quiet.Store(true)
	if _, err := e.ballast.release(); err != nil {
		return nil, fmt.Errorf("release registry ballast: %w", err)
	}
	if err := removeTorn(c.Dir); err != nil {
		return nil, err
	}
	if err := e.launchInPlace(ctx); err != nil {
		return nil, fmt.Errorf("start registry in %s: %w", c.Dir, err)
	}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start registry in %s: %w", c.Dir, err), e.Close())
	}
	return e, nil
}

// launchInPlace starts etcd. A newcomer whose cluster let in another one meanwhile is told of the members again.
func (e *Embedded) launchInPlace(ctx context.Context) error {
	for try := 1; ; try++ {
		config, err := e.etcdConfig()
		if err != nil {
			return err
		}
		if err := e.place(ctx, config); err != nil {
			return err
		}
		err = e.launch(config)
		d := e.config.Door
		if err == nil || d == nil || initialised(e.config.Dir) || errors.Is(err, ErrFailed) || try == joinTries {
			return err
		}
		d.held.Store(false)
		d.logger.Info("registry member could not start, asking again", slog.Any("err", err))
		pause := time.NewTimer(chance.N(time.Duration(try) * joinPause))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// place finds out how the member starts: as it is, as a founder, or as a newcomer.
func (e *Embedded) place(ctx context.Context, config *embed.Config) error {
	d := e.config.Door
	if d == nil {
		config.InitialClusterToken = rand.Text()
		config.InitialCluster = config.InitialClusterFromName(config.Name)
		return nil
	}
	config.Name, config.MaxLearners = d.config.Broker.String(), learnersMax
	config.StrictReconfigCheck = false // it wants connections that are 5 s old; Door.admit asks the members instead
	own, err := url.Parse(d.url(d.self()))
	if err != nil {
		return fmt.Errorf("address of broker %s: %w", d.self(), err)
	}
	config.AdvertisePeerUrls, config.AdvertiseClientUrls = []url.URL{*own}, []url.URL{*own}
	config.PeerTLSInfo = d.config.TLS.info()
	incarnation, err := openIncarnation(e.config.Dir)
	if err != nil {
		return err
	}
	d.name.Store(&incarnation)
	if initialised(e.config.Dir) {
		config.InitialCluster = config.Name + "=" + own.String() // not used
		return nil
	}
	setup, err := d.enter(ctx, incarnation, e.config.Waiting)
	if err != nil {
		return err
	}
	setup(config)
	d.held.Store(true)
	return nil
}

// launch starts etcd. It reports some errors of its files only to its logger, whose hook then blocks the goroutine: so
// this waits beside it.
func (e *Embedded) launch(config *embed.Config) error {
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
		if e.config.Door == nil {
			if r.err = checkLog(e.config.Dir); r.err != nil {
				return
			}
		}
		r.etcd, r.err = embed.StartEtcd(config)
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return r.err
		}
		e.etcd = r.etcd
		return nil
	case <-e.failure.closed:
		return e.failedError("start etcd")
	}
}

// open waits until the member can be used.
func (e *Embedded) open(ctx context.Context) error {
	e.store.use(v3client.New(e.etcd.Server))
	context.AfterFunc(e.lost, e.closeListeners)
	d := e.config.Door
	if d == nil {
		if n := len(e.etcd.Server.Cluster().Members()); n > 1 && !e.config.forget {
			return fmt.Errorf("%w: it is one of %d members", ErrNeedsCluster, n)
		}
	} else {
		d.letIn(e.etcd, e.store)
		e.config.Waiting(fmt.Sprintf("waiting for a majority of the members %v", d.members()))
	}
	select {
	case <-e.etcd.Server.ReadyNotify():
	case <-e.failure.closed:
		return e.failedError("wait for the member")
	case <-e.etcd.Server.StopNotify():
		return ErrRemoved
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	e.quiet.Store(false)
	if d == nil {
		return nil
	}
	e.followed = make(chan struct{})
	go e.followLeader()
	return d.announce(ctx, e.etcd)
}

// followLeader ends the calls that a leader took with it, until the member stops.
func (e *Embedded) followLeader() {
	defer close(e.followed)
	server := e.etcd.Server
	for changed := server.LeaderChangedNotify(); ; {
		select {
		case <-changed:
		case <-server.StoppingNotify():
			return
		case <-e.lost.Done():
			return
		}
		changed = server.LeaderChangedNotify()
		timer := time.NewTimer(reignGrace) // the new leader commits what the former one had replicated
		select {
		case <-timer.C:
			e.store.crown()
		case <-server.StoppingNotify():
			timer.Stop()
		}
	}
}

func (e *Embedded) etcdConfig() (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name = "tidemark"
	c.Dir = e.config.Dir
	c.ListenPeerUrls = nil // a lone member has no peers, others have a Door
	c.ListenClientUrls = nil
	if socket, fits := socketPath(e.config.Dir); fits {
		e.socket = socket
		c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
		c.AdvertiseClientUrls = c.ListenClientUrls
	} else {
		e.config.Logger.Warn("registry socket is off: its path is too long for a unix socket", slog.Any("path", socket), slog.Any("max", socketPathMax))
	}
	c.TickMs, c.ElectionMs = uint(e.config.Tick.Milliseconds()), uint(e.config.Election.Milliseconds())
	c.ForceNewCluster = e.config.forget
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

// fail is called by etcd's logger on a goroutine that then blocks for ever. In a cluster this broker goes on with the
// other members.
func (e *Embedded) fail(reason string) {
	if !e.failure.set(reason) {
		return
	}
	e.quiet.Store(true) // what follows is of no use
	err := e.failedError("registry")
	if d := e.config.Door; d != nil && d.config.Members > 1 && e.store.current.Load() != nil {
		others, dialErr := d.others()
		if dialErr == nil {
			e.store.use(others)
			e.lose()
			return
		}
		err = errors.Join(err, dialErr)
	}
	e.store.finish(err)
	e.lose()
}

// closeListeners keeps etcdctl and the other members from waiting for a member that has failed.
func (e *Embedded) closeListeners() {
	for _, listener := range e.etcd.Clients {
		_ = listener.Close() // the member is lost already
	}
	if e.config.Door != nil {
		_ = e.config.Door.server.Close() // likewise
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

// Failed is closed when the member has met an error that it cannot survive. Every call of a lone one then returns
// ErrFailed; one of a cluster leaves its store to the other members.
func (e *Embedded) Failed() <-chan struct{} { return e.failure.closed }

// Run keeps the space that a full disk would not give and, on the leading member of a cluster, makes voters of those
// that have caught up, until ctx ends (nil) or the member fails (ErrFailed).
func (e *Embedded) Run(ctx context.Context) error {
	const interval = 10 * time.Second
	upkeep, promotion := time.NewTicker(interval), time.NewTicker(max(e.config.Election/2, time.Millisecond))
	defer upkeep.Stop()
	defer promotion.Stop()
	if e.config.Door == nil {
		promotion.Stop()
	}
	e.reserve()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.failure.closed:
			return e.failedError("registry")
		case <-e.etcd.Server.StopNotify():
			e.fail(ErrRemoved.Error())
		case <-upkeep.C:
			e.reserve()
		case <-promotion.C:
			if err := e.config.Door.promote(ctx, e.etcd); err != nil && ctx.Err() == nil {
				e.config.Logger.Warn("registry member is not a voter yet", slog.Any("err", err))
			}
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

// Close stops the member and waits for it, unless it has failed. A leading one hands the lead to another first. Leases
// go on counting while a lone one is stopped.
func (e *Embedded) Close() error {
	e.closing.Do(func() {
		e.quiet.Store(true)
		e.closed = e.store.Close()
		e.HandOver(context.Background())
		if e.config.Door != nil {
			e.closed = errors.Join(e.closed, e.config.Door.Close()) // before: etcd's handlers may not outlive its files
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			e.etcd.Server.HardStop() // first: etcd's own order waits for a member that is not ready, and hands over to the dead
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
		if e.followed != nil {
			<-e.followed
		}
	})
	return e.closed
}

// HandOver gives the lead of the registry to another voter that answers, if this member has it, so that nobody has to wait
// for an election when it stops. It takes a second at most.
func (e *Embedded) HandOver(ctx context.Context) {
	d, server := e.config.Door, e.etcd.Server
	if d == nil || server.Leader() != server.MemberID() || e.lost.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverPatience)
	defer cancel()
	best, applied := types.ID(0), uint64(0)
	asking, stop := context.WithTimeout(ctx, handOverPatience/3) // one that is silent must not take all the time
	answers := d.askAll(asking)
	stop()
	for _, m := range server.Cluster().Members() {
		if a := answers[d.broker(m.Name, m.PeerURLs)]; !m.IsLearner && a != nil && a.Registry == server.Cluster().ID().String() && a.Applied >= applied {
			best, applied = m.ID, a.Applied
		}
	}
	if best == 0 {
		return
	}
	if err := server.MoveLeader(ctx, uint64(server.MemberID()), uint64(best)); err != nil {
		e.config.Logger.Debug("the lead of the registry was not handed over", slog.Any("err", err))
	}
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
