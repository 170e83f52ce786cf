package commitlog

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Errors of Manager.Open.
var (
	// ErrQuarantined is returned by Manager.Open for a partition whose directory could not be opened at the start; it wraps
	// the reason. The directory is untouched (U-56).
	ErrQuarantined = errors.New("partition directory is set aside")
	// ErrManagerClosed is returned by Manager.Open after Close.
	ErrManagerClosed = errors.New("log manager is closed")
)

// ManagerOptions say which data directory to own, and how.
type ManagerOptions struct {
	FS     vfs.FS
	Dir    string // the data directory; made if it does not exist
	NodeID meta.BrokerID
	// ClusterID is the cluster's id if it is known before the directory is opened; SetCluster tells it otherwise.
	ClusterID string
	// BootID identifies the running kernel; empty if it is not known, and then a killed process cannot be told from a
	// power cut.
	BootID     string
	Now        func() time.Time      // default time.Now
	Random     io.Reader             // default crypto/rand.Reader
	Logger     *slog.Logger          // default discards
	Registerer prometheus.Registerer // nil: no metrics
	// OnError is told of the first I/O error of any log, before any caller sees it, after the boot id file is gone.
	OnError func(error)

	// Loaded is called by Load with the number of logs opened so far and of all: once at its start, then after each, in
	// order, by one goroutine at a time. nil: nobody is told.
	Loaded func(done, all int)

	// OpenWorkers is how many logs are opened at once (num.recovery.threads.per.data.dir, default 2).
	OpenWorkers int
	// MaintenanceInterval is the time between looks for what retention allows to delete
	// (log.retention.check.interval.ms, default 5 minutes).
	MaintenanceInterval time.Duration
	// CheckpointInterval is the time between writes of the recovery points and log starts
	// (log.flush.offset.checkpoint.interval.ms, default 1 minute).
	CheckpointInterval time.Duration
	// HighWatermarkInterval is the time between writes of the high watermarks
	// (replica.high.watermark.checkpoint.interval.ms, default 5 s).
	HighWatermarkInterval time.Duration
	// NearlyFull tells whether the disk is nearly full: while it is, what was deleted is removed without waiting for
	// file.delete.delay.ms, and retention is looked at every few seconds. Run asks for it. Nil: never.
	NearlyFull func() bool

	// Compaction are the bounds of compaction; Run asks for them before each pass, so they may change. Nil: the
	// defaults.
	Compaction func() CompactionLimits
}

// WithDefaults returns the options with every zero replaced by its default.
func (o ManagerOptions) WithDefaults() ManagerOptions {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Loaded == nil {
		o.Loaded = func(int, int) {}
	}
	o.OpenWorkers = cmp.Or(o.OpenWorkers, 2)
	o.MaintenanceInterval = cmp.Or(o.MaintenanceInterval, 5*time.Minute)
	o.CheckpointInterval = cmp.Or(o.CheckpointInterval, time.Minute)
	o.HighWatermarkInterval = cmp.Or(o.HighWatermarkInterval, 5*time.Second)
	if o.Compaction == nil {
		o.Compaction = func() CompactionLimits { return CompactionLimits{} }
	}
	if o.NearlyFull == nil {
		o.NearlyFull = func() bool { return false }
	}
	return o
}

// Manager owns a data directory and the logs in it. All methods may be called concurrently.
type Manager struct {
	options   ManagerOptions
	lock      *os.File // nil on a disk in memory
	state     StartState
	joined    bool // meta.properties names the cluster since an earlier start
	syncer    *Syncer
	pools     *pools
	metrics   *Metrics
	compactor *compactor
	identity  atomic.Pointer[identity]
	saved     atomic.Bool // meta.properties says what identity says
	failed    atomic.Bool // an I/O error was noted

	// checkpoints has one slot: its holder writes checkpoint files, meta.properties and marks.
	checkpoints chan struct{}
	written     checkpointSet // of the holder of checkpoints: what the files hold

	mu struct {
		sync.Mutex
		logs          map[PartitionName]*Log
		opening       map[PartitionName]chan struct{} // closed when the opening is over
		quarantined   map[PartitionName]error
		unfinished    map[PartitionName]struct{} // directories whose creation a crash cut short: without batches
		doomed        []doomedDir
		strays        []string
		summary       RecoverySummary
		highWatermark func(*Log) int64
		armed         bool
		closed        bool
	}
}

// OpenManager takes the lock of a data directory and reads what it says about itself. It opens no log: Load does.
//
// Errors: ErrUnwritable, *LockedError, *MismatchError, *NewerFormatError, *ForeignError, ErrBadMeta.
func OpenManager(o ManagerOptions) (*Manager, error) {
	o = o.WithDefaults()
	m := &Manager{options: o, checkpoints: make(chan struct{}, 1), syncer: NewSyncer(o.FS, o.Dir), pools: newPools()}
	m.mu.logs = map[PartitionName]*Log{}
	m.mu.opening = map[PartitionName]chan struct{}{}
	m.mu.quarantined = map[PartitionName]error{}
	m.mu.unfinished = map[PartitionName]struct{}{}
	m.mu.highWatermark = (*Log).EndOffset
	if err := makeDirectory(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	if _, real := o.FS.(*vfs.Disk); real {
		m.syncer.SyncAllAllowed = littleUnwritten
		lock, err := lockDirectory(o.Dir)
		if err != nil {
			return nil, err
		}
		m.lock = lock
	}
	if err := m.readDirectory(); err != nil {
		m.unlock()
		return nil, err
	}
	if o.Registerer != nil {
		m.metrics = NewMetrics(o.Registerer)
	}
	m.compactor = newCompactor(m)
	return m, nil
}

// makeDirectory makes the data directory and its missing parents, durably: a directory that a power cut takes away takes
// everything in it along.
func makeDirectory(fsys vfs.FS, dir string) error {
	missing := []string{}
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		_, err := fsys.List(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return err
		}
		missing = append(missing, at)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, made := range missing {
		if err := fsys.SyncDir(filepath.Dir(made)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) unlock() {
	if m.lock != nil {
		_ = m.lock.Close() // gives up the lock
	}
}

// readDirectory reads the files of the data directory itself.
func (m *Manager) readDirectory() error {
	id, known, err := loadIdentity(&m.options)
	if err != nil {
		return err
	}
	if known && id.format == 0 {
		if held, err := m.HoldsPartitions(); err != nil || held {
			return cmp.Or[error](err, &ForeignError{m.options.Dir})
		}
	}
	m.identity.Store(&id)
	m.saved.Store(known && id.cluster != "" && id.format == FormatVersion)
	if m.state, err = readStartState(&m.options, id); err != nil {
		return err
	}
	m.state.New, m.joined = !known, m.saved.Load()
	if m.written, err = m.readCheckpoints(); err != nil {
		return err
	}
	return nil
}

// DirectoryID identifies the data directory.
func (m *Manager) DirectoryID() meta.DirectoryID { return m.identity.Load().directory }

// ClusterID is the id of the cluster the directory belongs to; empty before the first SetCluster.
func (m *Manager) ClusterID() string { return m.identity.Load().cluster }

// StartState is what the last stop left behind.
func (m *Manager) StartState() StartState { return m.state }

// Syncer groups the syncs of this directory's logs.
func (m *Manager) Syncer() *Syncer { return m.syncer }

// Healthy tells whether no I/O error was noted since the start.
func (m *Manager) Healthy() bool { return !m.failed.Load() }

// HoldsPartitions tells whether the directory has a partition in it, of a topic that may exist.
func (m *Manager) HoldsPartitions() (bool, error) {
	entries, err := m.options.FS.List(m.options.Dir)
	if err != nil {
		return false, fmt.Errorf("list data directory: %w", err)
	}
	return slices.ContainsFunc(entries, func(e vfs.Entry) bool {
		_, ok := parsePartitionName(e.Name)
		return ok && e.Dir
	}), nil
}

// Joined tells whether the directory belonged to a cluster before this start.
func (m *Manager) Joined() bool { return m.joined }

// SetCluster says which cluster this is and writes meta.properties if it does not say so yet. It returns *MismatchError
// if the directory belongs to another cluster. A full disk is no error where the file exists already.
func (m *Manager) SetCluster(id string) error {
	have := *m.identity.Load()
	if have.cluster != "" && have.cluster != id {
		return &MismatchError{m.options.Dir, "cluster.id", have.cluster, id}
	}
	if have.cluster == id && m.saved.Load() {
		return nil
	}
	have.cluster, have.format = id, FormatVersion
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	if err := vfs.WriteAtomic(m.options.FS, filepath.Join(m.options.Dir, metaFileName), have.encode(m.options.Now())); err != nil {
		return err
	}
	m.identity.Store(&have)
	m.saved.Store(true)
	return nil
}

// Arm makes the directory unclean until Close: it removes the mark of the last clean shutdown, durably. It must come before
// anything is written; Open does it if nobody has.
func (m *Manager) Arm() error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	m.mu.Lock()
	armed := m.mu.armed
	m.mu.Unlock()
	if armed {
		return nil
	}
	fsys := m.options.FS
	if err := fsys.Remove(filepath.Join(m.options.Dir, cleanFileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", cleanFileName, err)
	}
	if err := fsys.SyncDir(m.options.Dir); err != nil {
		return fmt.Errorf("arm data directory: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.armed = true
	return nil
}

// Settle notes the running kernel: from here on a process that is killed counts as clean, since the page cache outlives it
// (D9). It must wait until the cluster knows what was lost before this start: a process that is killed before must not hide
// that. After an I/O error it does nothing.
func (m *Manager) Settle() error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	if m.state.SameBoot || m.options.BootID == "" || m.failed.Load() {
		return nil
	}
	boot := filepath.Join(m.options.Dir, bootFileName)
	// Without it a killed process is taken for a power cut: safe, so a full disk stops nothing (U-73).
	if err := vfs.WriteAtomic(m.options.FS, boot, []byte(m.options.BootID+"\n")); err != nil && !diskFull(err) {
		return err
	}
	if m.failed.Load() {
		m.forgetBoot()
	}
	return nil
}

// SetHighWatermark says how to learn the high watermark of a log: retention stays below it, and its checkpoint holds it.
// While it is not known, which -1 says, the checkpoint keeps what it has and retention takes nothing.
// Until then the log end stands in.
func (m *Manager) SetHighWatermark(of func(*Log) int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.highWatermark = of
}

// noteError is what a log calls at its first I/O error.
func (m *Manager) noteError(err error) {
	if !m.failed.Swap(true) {
		m.forgetBoot() // a process that is killed now must not count as clean
	}
	if m.options.OnError != nil {
		m.options.OnError(err)
	}
}

func (m *Manager) forgetBoot() {
	if err := m.options.FS.Remove(filepath.Join(m.options.Dir, bootFileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.options.Logger.Error("boot id file could not be removed after an I/O error", slog.Any("err", err))
	}
}

// Logs are the logs that are open, in no particular order.
func (m *Manager) Logs() []*Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.mu.logs))
}

// Strays are the directories that were set aside because they belong to no known life of a topic.
func (m *Manager) Strays() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.strays)
}

// Summary tells what Load found.
func (m *Manager) Summary() RecoverySummary {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.summary
}

// logOptions are the options of one of the directory's logs.
func (m *Manager) logOptions(name PartitionName, id meta.TopicID, config Config) Options {
	return Options{
		FS: m.options.FS, Dir: m.path(name), Topic: name.Topic, TopicID: id, Partition: name.Partition, Config: config,
		Clean: m.state.Marked, Now: m.options.Now, Logger: m.options.Logger, Metrics: m.metrics, Syncer: m.syncer,
		OnError:            m.noteError,
		LowerRecoveryPoint: func(to int64) error { return m.lowerRecoveryPoint(name, to) },
		NearlyFull:         m.options.NearlyFull,
		pools:              m.pools,
	}
}

func (m *Manager) path(name PartitionName) string { return filepath.Join(m.options.Dir, name.String()) }

// Open returns the log of a partition: the one that Load opened, or a new, empty one. A directory with the same name that
// belongs to another life of the topic is set aside as a stray (U-54, U-55). The log gets the configuration.
//
// It returns ErrQuarantined for a partition that could not be opened at the start, and ErrManagerClosed after Close.
func (m *Manager) Open(topic string, id meta.TopicID, partition int32, config Config) (*Log, error) {
	if err := m.Arm(); err != nil {
		return nil, err
	}
	name := PartitionName{topic, partition}
	for {
		l, wait, err := m.claim(name, id)
		if err != nil {
			return nil, err
		}
		if wait != nil {
			<-wait
			continue
		}
		if l == nil {
			break // claimed for creation
		}
		if l.TopicID() == id {
			l.SetConfig(config)
			return l, nil
		}
		if err := m.SetAside(l); err != nil {
			return nil, err
		}
	}
	l, err := m.create(name, id, config)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.mu.opening[name])
	delete(m.mu.opening, name)
	if err != nil {
		return nil, err
	}
	m.mu.logs[name] = l
	return l, nil
}

// claim finds an open log, or one that is being opened, or claims the name for the caller to open it.
func (m *Manager) claim(name PartitionName, id meta.TopicID) (l *Log, wait <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil, nil, ErrManagerClosed
	}
	if err := m.mu.quarantined[name]; err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", name, ErrQuarantined, err)
	}
	if l := m.mu.logs[name]; l != nil {
		return l, nil, nil
	}
	if wait := m.mu.opening[name]; wait != nil {
		return nil, wait, nil
	}
	m.mu.opening[name] = make(chan struct{})
	return nil, nil, nil
}

// create makes an empty log, of which nothing is on disk before something is written to it. A power cut before its first
// sync takes it away, and it is made again.
func (m *Manager) create(name PartitionName, id meta.TopicID, config Config) (*Log, error) {
	if err := m.forget(name); err != nil {
		return nil, err
	}
	if err := m.clearUnfinished(name); err != nil {
		return nil, fmt.Errorf("%w: create log %s: %w", ErrStorage, name, err)
	}
	l, err := newUnborn(m.logOptions(name, id, config), func() error { return m.makePartition(name, id) })
	if err != nil {
		return nil, fmt.Errorf("%w: create log %s: %w", ErrStorage, name, err)
	}
	// Something may stand in its place: better to know now than at the first append.
	if taken, err := vfs.Exists(m.options.FS, m.path(name)); err != nil || taken {
		if err == nil {
			err = l.beBorn()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: create log %s: %w", ErrStorage, name, err)
		}
	}
	return l, nil
}

// clearUnfinished removes what a crash left of a partition without batches: its empty segments, which may start at any
// offset, must not become those of the log that is made in its place.
func (m *Manager) clearUnfinished(name PartitionName) error {
	m.mu.Lock()
	_, unfinished := m.mu.unfinished[name]
	m.mu.Unlock()
	if !unfinished {
		return nil
	}
	if err := vfs.RemoveAll(m.options.FS, m.path(name)); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.mu.unfinished, name)
	m.mu.Unlock()
	return nil
}

// Close closes and syncs all logs, writes the checkpoints, and, if nothing went wrong, marks the shutdown as clean, last
// of all. brokerEpoch is the one under which this process served; −1 if it never did. Then it gives up the lock.
func (m *Manager) Close(brokerEpoch int64) error {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return nil
	}
	m.mu.closed = true
	armed := m.mu.armed
	logs := slices.Collect(maps.Values(m.mu.logs))
	m.mu.Unlock()
	defer m.unlock()
	if !armed {
		for _, l := range logs {
			l.abandon()
		}
		return nil // nothing was written; the last mark still holds
	}
	err := m.closeLogs(logs)
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	if err := m.writeCheckpoints(m.currentCheckpoints()); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if m.failed.Load() {
		return fmt.Errorf("%w: an I/O error was noted, so the shutdown is not marked as clean", ErrStorage)
	}
	id := m.DirectoryID()
	mark, err := json.Marshal(cleanMark{BrokerEpoch: brokerEpoch, DirectoryID: &id})
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(m.options.FS, filepath.Join(m.options.Dir, cleanFileName), mark)
}

// closeLogs closes logs, with one sync of the file system if they are many.
func (m *Manager) closeLogs(logs []*Log) error {
	unsynced := 0
	for _, l := range logs {
		if l.unsynced() {
			unsynced++
		}
	}
	each := unsynced <= syncAllAbove
	errs := m.parallel(syncWorkers, logs, func(l *Log) error { return l.close(each) })
	if each {
		return errs
	}
	return errors.Join(errs, lost(m.options.FS.SyncAll(m.options.Dir)))
}

// unsynced tells whether closing the log has something to write.
func (l *Log) unsynced() bool {
	if l.unborn.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, epochs := l.mu.epochs.unsaved()
	return epochs || l.mu.end > l.synced.Load() || l.names.unsynced() || l.newDir.Load()
}

// parallel does work on every log, workers at a time, and joins the errors.
func (m *Manager) parallel(workers int, logs []*Log, work func(*Log) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var next atomic.Int64
	for range min(workers, len(logs)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(logs)); i = next.Add(1) - 1 {
				if err := work(logs[i]); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
