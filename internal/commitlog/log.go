package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Errors of a Log. Those that a client's batch may cause are in producers.go and in package record.
var (
	// ErrClosed is returned by every method that needs the files of a log that was closed or deleted.
	ErrClosed = errors.New("log is closed")
	// ErrStorage is returned by methods that write when the disk refuses (KAFKA_STORAGE_ERROR). It wraps the cause. After
	// anything but a full disk the log stays failed: it takes no more appends until it is opened again.
	ErrStorage = errors.New("storage error")
	// ErrDiskFull is returned, together with ErrStorage, by Append when there is no space. Nothing was appended; the log
	// takes appends again once there is space.
	ErrDiskFull = errors.New("disk is full")
	// ErrOutOfRange is returned by Read, and by RaiseStart, for an offset below the log start or above the log end
	// (OFFSET_OUT_OF_RANGE).
	ErrOutOfRange = errors.New("offset is out of range")
	// ErrUnexpectedOffset is returned by Append when a leader's batch starts below the log end.
	ErrUnexpectedOffset = errors.New("batch starts below the log end")
	// ErrSegmentSize is returned by Append when the batches of one call exceed the segment size (RECORD_LIST_TOO_LARGE).
	ErrSegmentSize = errors.New("batches exceed the segment size")
	// ErrTruncated is returned by Append when the log was truncated while the append waited for its turn: this broker no
	// longer leads (NOT_LEADER_OR_FOLLOWER).
	ErrTruncated = errors.New("log was truncated before the append")
)

// Options say which log to open and how.
type Options struct {
	FS        vfs.FS
	Dir       string // the partition's directory; made if it does not exist
	Topic     string // for errors and logging
	TopicID   meta.TopicID
	Partition int32
	Config    Config
	// Clean says that the log was closed and synced: it is opened without a scan. Otherwise everything from RecoveryPoint
	// on is read and checked.
	Clean bool
	// RecoveryPoint and LogStart are what the data directory's checkpoints say; 0 when they say nothing.
	RecoveryPoint, LogStart int64
	Now                     func() time.Time // default time.Now
	Logger                  *slog.Logger     // default discards
	Metrics                 *Metrics         // default: none
	// Syncer groups the syncs of many logs; by default the log has one of its own.
	Syncer *Syncer
	// OnError is told the first error that makes the log fail, before any caller sees it.
	OnError func(error)
	// LowerRecoveryPoint makes a lower recovery point durable before the log is truncated below it; a log that has none
	// in a checkpoint needs none.
	LowerRecoveryPoint func(to int64) error
	// NearlyFull tells whether the disk is nearly full: what left the log is then removed without a delay. Nil: never.
	NearlyFull func() bool

	pools *pools // shared by the logs of a Manager
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.pools == nil {
		o.pools = newPools()
	}
	if o.Syncer == nil {
		o.Syncer = NewSyncer(o.FS, o.Dir)
	}
	return o
}

// Hooks are what the owner of a log wants to hear. They are called by the goroutine that did the work, must be short, and
// must not append to, truncate or close the log.
type Hooks struct {
	// Appended is called once for each round of appends, before they return, with the new log end.
	Appended func(end int64)
	// Synced is called when the synced end has risen.
	Synced func(end int64)
}

// Log is one partition's log. All methods may be called concurrently.
type Log struct {
	options  Options
	logger   *slog.Logger
	slot     chan struct{} // one slot: its holder alone writes, rolls, truncates, swaps segments
	syncing  chan struct{} // one slot: its holder alone syncs; taken after slot where both are
	settings atomic.Pointer[settings]
	hooks    atomic.Pointer[Hooks]
	failure  atomic.Pointer[error]

	segments atomic.Pointer[[]*segment] // in offset order, never empty; the slice is never changed in place
	start    atomic.Int64               // log start
	end      atomic.Int64               // log end, as readers see it
	synced   atomic.Int64               // synced end: data and indexes below it are durable
	flushed  atomic.Int64               // unix nanoseconds of the last sync
	unasked  atomic.Int32               // appends that wait for a sync (FlushAcks) and that no round has counted

	mu struct {
		sync.Mutex
		next      int64       // the log end once everything that is pending has been written
		end       int64       // the log end; with the active segment's size one consistent pair
		pending   []*appendOp // waiting for the holder of the slot
		producers producerState
		epochs    epochCache
		recent    recentBatches // of the active segment
		snapshots []int64       // producer snapshots that were written and not synced
		truncated uint64        // counts truncations, so that a sync knows that its end is void
		// truncating says that the recovery point has sunk for a truncation, and the log end has not yet.
		truncating bool
		closed     bool
	}

	unborn atomic.Bool // nothing is on disk yet: see birth.go
	holder struct {    // belongs to the holder of the slot
		makeDir   func() error // of a log that is not born
		bearing   bool         // it was begun to be put on disk
		spare     []*appendOp
		bufs      [][]byte
		crowded   int     // writes for which others are waited for, because some were shared lately; see await
		snapshots []int64 // offsets of the producer snapshots in the directory, ascending
		doomed    []doomedSegment
	}
	names       nameChanges  // of the files in the directory
	newDir      atomic.Bool  // the directory itself is not yet durable in its parent
	doomedCount atomic.Int32 // len(holder.doomed)
	compaction  compaction
}

// nameChanges counts the files that were created, renamed or removed in a directory, to know whether all that is durable.
type nameChanges struct{ count, durable atomic.Uint64 }

// changed is called after a change.
func (n *nameChanges) changed() { n.count.Add(1) }

// last is the number of the last change, to be told to synced once the directory has been synced after it.
func (n *nameChanges) last() uint64 { return n.count.Load() }

func (n *nameChanges) synced(change uint64) {
	for durable := n.durable.Load(); durable < change && !n.durable.CompareAndSwap(durable, change); durable = n.durable.Load() {
	}
}

func (n *nameChanges) unsynced() bool { return n.durable.Load() < n.count.Load() }

// settings are a Config and what follows from it.
type settings struct {
	Config
	clientRules, coordinatorRules record.Rules
	decompressors                 *sync.Pool // of *record.Decompressor, for batches from clients
}

// newSettings takes a Config whose values ParseConfig or the caller has checked; an unknown codec keeps the producer's.
func newSettings(c Config, p *pools) *settings {
	s := &settings{Config: c, decompressors: &p.decompressors}
	s.clientRules = record.Rules{
		MaxMessageBytes: c.MessageBytesMax, TimestampBeforeMax: c.TimestampBeforeMax, TimestampAfterMax: c.TimestampAfterMax,
		Compacted: c.CleanupCompact, CompressionLevel: c.CompressionLevel, Client: true,
	}
	if c.LogAppendTime {
		s.clientRules.TimestampType = record.LogAppendTime
	}
	switch codec, err := record.ParseCodec(c.Compression); {
	case c.Compression == "uncompressed":
		s.clientRules.Compression = record.None
	case err == nil:
		s.clientRules.Compression = codec
	default:
		s.clientRules.KeepCodec = true
	}
	s.coordinatorRules = s.clientRules
	s.coordinatorRules.Client = false
	if limits := record.DefaultLimits; c.DecompressedBytesMax > 0 && int64(c.DecompressedBytesMax) < limits.DecompressedBytesMax {
		limits.DecompressedBytesMax = int64(c.DecompressedBytesMax)
		s.decompressors = &sync.Pool{New: func() any { return record.NewDecompressor(limits) }}
	}
	return s
}

// pools are what the logs of one data directory reuse. They are not shared by all directories of a process, because what
// is in them has channels, which must not leave the test bubble that made them.
type pools struct {
	ops           sync.Pool // of *appendOp
	decompressors sync.Pool // of *record.Decompressor, with the default limits
}

func newPools() *pools {
	return &pools{
		ops:           sync.Pool{New: func() any { return &appendOp{done: make(chan error, 1)} }},
		decompressors: sync.Pool{New: func() any { return record.NewDecompressor(record.DefaultLimits) }},
	}
}

// doomedSegment is a segment that left the log; its files go when its readers are done and the delay is over.
type doomedSegment struct {
	*segment
	since time.Time
}

// Topic is the name of the topic.
func (l *Log) Topic() string { return l.options.Topic }

// TopicID is the id of the topic's life that the log belongs to.
func (l *Log) TopicID() meta.TopicID { return l.options.TopicID }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.options.Partition }

// Name is the partition as checkpoints name it.
func (l *Log) Name() PartitionName { return PartitionName{l.options.Topic, l.options.Partition} }

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// EndOffset is the log end (LEO): the offset that the next record gets.
func (l *Log) EndOffset() int64 { return l.end.Load() }

// SyncedOffset is the end up to which everything survives a power cut.
func (l *Log) SyncedOffset() int64 { return l.synced.Load() }

// RecoveryPoint is the offset from which a start after a crash must scan.
func (l *Log) RecoveryPoint() int64 { return l.synced.Load() }

// LastStableOffset is the last stable offset for a high watermark: no open transaction has data below it.
func (l *Log) LastStableOffset(highWatermark int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.producers.replicated(min(highWatermark, l.mu.end))
	return max(l.mu.producers.lastStable(highWatermark), min(l.start.Load(), highWatermark))
}

// Size is the bytes of the batches in all segments.
func (l *Log) Size() int64 {
	var total int64
	for _, s := range *l.segments.Load() {
		total += s.size.Load()
	}
	return total
}

// SegmentCount is the number of segments.
func (l *Log) SegmentCount() int { return len(*l.segments.Load()) }

// Config is the present configuration.
func (l *Log) Config() Config { return l.settings.Load().Config }

// SetConfig changes the configuration of a log in use.
func (l *Log) SetConfig(c Config) { l.settings.Store(newSettings(c, l.options.pools)) }

// SetHooks sets who hears of appends and syncs.
func (l *Log) SetHooks(h Hooks) { l.hooks.Store(&h) }

// Producers are the producers that the log remembers, by id.
func (l *Log) Producers() []Producer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.list()
}

// StartVerification gives the ticket for a client's transactional batch; see TxnGuard. Zero: none is needed.
func (l *Log) StartVerification(producer int64, epoch int16, baseSequence int32) TxnGuard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.startVerification(producer, epoch, baseSequence, l.options.Now().UnixMilli())
}

// Epochs is the lineage of the log.
func (l *Log) Epochs() Epochs {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.Epochs
}

// LatestEpoch is the highest leader epoch the log knows, or meta.NoEpoch.
func (l *Log) LatestEpoch() meta.Epoch { return l.Epochs().LatestEpoch() }

// EpochEnd answers OffsetForLeaderEpoch: see Epochs.EndFor.
func (l *Log) EpochEnd(requested meta.Epoch) (meta.Epoch, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.EndFor(requested, l.mu.end)
}

// AssignEpoch says that epoch writes from start on (E-14a). The entry becomes durable with the next sync; recovery finds
// it in the batches too. It returns ErrBadEpoch for negative arguments.
func (l *Log) AssignEpoch(epoch meta.Epoch, start int64) error {
	l.mu.Lock()
	removed, err := l.mu.epochs.assign(epoch, start)
	l.mu.Unlock()
	l.logRemovedEpochs(epoch, removed)
	return err
}

func (l *Log) logRemovedEpochs(epoch meta.Epoch, removed []EpochEntry) {
	if len(removed) > 0 {
		l.logger.Warn("a new leader epoch replaces epochs that had data",
			slog.Int64("epoch", int64(epoch)), slog.Int64("offset", removed[0].Start), slog.Int("removed", len(removed)))
	}
}

// Err is the error that made the log fail, or nil.
func (l *Log) Err() error {
	if failure := l.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// fail notes an I/O error: the first one is reported and makes the log refuse to write. It returns the error as callers
// get it. A full disk does not make the log fail.
func (l *Log) fail(cause error) error {
	if diskFull(cause) && !errors.Is(cause, errLost) {
		return fmt.Errorf("%w: %w: %w", ErrStorage, ErrDiskFull, cause)
	}
	err := fmt.Errorf("%w: %w", ErrStorage, cause)
	if l.failure.CompareAndSwap(nil, &err) {
		l.logger.Error("log failed", slog.Any("err", cause))
		if l.options.OnError != nil {
			l.options.OnError(cause)
		}
	}
	return err
}

// diskFull tells whether an error says that there is no space.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// acquire takes the slot. After Close it is refused.
func (l *Log) acquire() error {
	l.slot <- struct{}{}
	l.mu.Lock()
	closed := l.mu.closed
	l.mu.Unlock()
	if closed {
		<-l.slot
		return ErrClosed
	}
	return nil
}

func (l *Log) release() { <-l.slot }

// active is the last segment.
func (l *Log) active() *segment {
	segments := *l.segments.Load()
	return segments[len(segments)-1]
}

// floorSegment is the index of the segment that holds offset: the last one whose base is not above it; 0 below the first.
func floorSegment(segments []*segment, offset int64) int {
	i, found := slices.BinarySearchFunc(segments, offset, func(s *segment, offset int64) int {
		switch {
		case s.base < offset:
			return -1
		case s.base > offset:
			return 1
		}
		return 0
	})
	if !found {
		i = max(i-1, 0)
	}
	return i
}

// path is a file of the log's directory.
func (l *Log) path(name string) string { return filepath.Join(l.options.Dir, name) }

// Close writes what is in memory, syncs the log and gives up its files. With the mark of a clean shutdown written after
// it, the next start needs no scan. Appends that wait get ErrClosed. Closing twice is no error.
func (l *Log) Close() error { return l.close(true) }

// close is Close; without sync the caller makes everything below the data directory durable afterwards.
func (l *Log) close(sync bool) error {
	if err := l.acquire(); err != nil {
		return nil //nolint:nilerr // closed before
	}
	defer l.release()
	l.failPending(ErrClosed, true)
	l.syncing <- struct{}{} // a sync that runs is waited for; none begins any more
	defer func() { <-l.syncing }()
	err := l.Err()
	if err == nil && !l.unborn.Load() {
		err = l.settle(sync)
	}
	for _, s := range *l.segments.Load() {
		s.close()
	}
	for _, d := range l.holder.doomed {
		d.close()
	}
	return err
}

// settle writes everything that a clean start relies on: the indexes with the greatest timestamp, a producer snapshot at
// the log end, the epochs; with sync it makes them and the batches durable.
func (l *Log) settle(sync bool) error {
	active := l.active()
	touched := active.writer.bytes > 0 && active.writer.firstTimestamp != unknownTimestamp
	if touched {
		if err := active.flushIndexes(true); err != nil {
			return l.fail(err)
		}
	}
	if err := l.takeSnapshot(l.end.Load(), nil); err != nil {
		return l.fail(err)
	}
	plan, err := l.planSync(sync)
	if err != nil {
		return err
	}
	if touched {
		active.pin()
		plan.closed = append(plan.closed, active)
	}
	if sync {
		err = l.syncFiles(plan)
	}
	_, err = l.endSync(plan, err)
	return err
}

// writePlain writes a file without syncing it: the caller's next sync does, or a checksum in the file tells.
func (l *Log) writePlain(name string, data []byte) error {
	return writePlain(l.options.FS, l.path(name), data)
}
