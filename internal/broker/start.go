package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// start assembles the parts, and waits for what they need: the data directory and the registry. Logs are opened while the
// registry starts. After an error, stop undoes what was done.
func (b *Broker) start(ctx context.Context) error {
	reporting, enough := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() { b.reportSlowStart(reporting) })
	defer func() {
		enough()
		reporter.Wait()
	}()
	if err := b.openDirectory(); err != nil {
		return err
	}
	group, startCtx := errgroup.WithContext(ctx)
	if b.hasNoSpace() {
		group.SetLimit(1)
	}
	group.Go(func() error { return b.openRegistry(startCtx) })
	group.Go(func() error { return b.openLogs(startCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	b.reportRecovery()
	return b.assemble(ctx)
}

// slowStart is how often a start that goes on says what it waits for.
const slowStart = 10 * time.Second

// reportSlowStart logs the phases that run, as /startupz has them, until ctx ends.
func (b *Broker) reportSlowStart(ctx context.Context) {
	tick := time.NewTicker(slowStart)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, phase := range b.phases.Status().Phases {
			if phase.State == "running" {
				b.logger.Info("the start goes on", slog.String("phase", phase.Name), slog.Int64("ms", int64(phase.Milliseconds)),
					slog.String("detail", phase.Detail), slog.String("hint", phase.Hint))
			}
		}
	}
}

// hasNoSpace tells whether the registry must start before anything else writes: on a full disk its member gives up the rest
// of its last log segment and takes it again, and a checkpoint of a partition written in between would sit in its place.
func (b *Broker) hasNoSpace() bool {
	const spare = 64 << 20
	free, _, err := b.config.FreeBytes(b.config.DataDir)
	return err == nil && free < spare
}

// openDirectory locks the data directory and holds what it says against the configuration.
func (b *Broker) openDirectory() (err error) {
	phase := b.phases.Begin("data directory", "another process may hold its lock")
	b.logs, err = commitlog.OpenManager(commitlog.ManagerOptions{
		FS: b.config.FS, Dir: b.config.DataDir, NodeID: b.config.BrokerID, BootID: bootID(), Now: b.config.Now,
		Logger: b.logger, Registerer: b.gatherer, OnError: b.logFailed,
		Loaded:                func(done, all int) { b.opening.Detail(fmt.Sprintf("%d of %d partitions", done, all)) },
		OpenWorkers:           int(b.setting("num.recovery.threads.per.data.dir")),
		MaintenanceInterval:   b.duration("log.retention.check.interval.ms"),
		CheckpointInterval:    b.duration("log.flush.offset.checkpoint.interval.ms"),
		HighWatermarkInterval: b.duration("replica.high.watermark.checkpoint.interval.ms"),
		NearlyFull:            b.nearlyFull,
		Compaction:            b.compactionLimits,
	})
	if err != nil {
		return err
	}
	phase.End()
	return nil
}

// compactionRate is the bound of what compaction reads and writes, in bytes per second; 0 is none.
func (b *Broker) compactionRate(image *meta.Image) int64 {
	rate, err := strconv.ParseFloat(b.configs.Value(image, "log.cleaner.io.max.bytes.per.second"), 64)
	if err != nil || rate >= math.MaxInt64 {
		return 0
	}
	return max(int64(rate), 1)
}

// logFailed is told the first I/O error of any log, before whoever met it is. It returns at once.
func (b *Broker) logFailed(error) {
	select {
	case b.ioError <- struct{}{}:
	default:
	}
	if p := b.running.Load(); p != nil {
		p.table.LogFailed()
	}
}

// nearlyFull tells whether produce is refused for want of space.
func (b *Broker) nearlyFull() bool {
	p := b.running.Load()
	return p != nil && p.disk.err() != nil
}

// compactionLimits are the cleaner's keys as they count at this moment.
func (b *Broker) compactionLimits() commitlog.CompactionLimits {
	image := b.state.load()
	return commitlog.CompactionLimits{
		Off:            !b.configs.Bool(image, "log.cleaner.enable"),
		Interval:       time.Duration(b.configs.Int(image, "log.cleaner.backoff.ms")) * time.Millisecond,
		KeyBytesMax:    b.configs.Int(image, "log.cleaner.dedupe.buffer.size"),
		BytesPerSecond: b.compactionRate(image),
	}
}

// setting is a numeric broker key as the properties file has it; what is set at run time comes later.
func (b *Broker) setting(key string) int64 { return b.configs.Int(emptyImage, key) }

func (b *Broker) duration(key string) time.Duration {
	return time.Duration(b.setting(key)) * time.Millisecond
}

// emptyImage has no dynamic configuration.
var emptyImage = meta.NewImage("")

// openLogs opens every partition in the data directory, with the configuration that all topics have by default: their own
// comes with the registry.
func (b *Broker) openLogs(ctx context.Context) error {
	b.opening = b.phases.Begin("logs", "after an unclean stop every segment is read from its recovery point on")
	config, err := commitlog.ParseConfig(nil, b.configs.Lookup(emptyImage))
	if err != nil {
		return fmt.Errorf("default topic configuration: %w", err)
	}
	summary, err := b.logs.Load(ctx, func(string) commitlog.Config { return config })
	if err != nil {
		return fmt.Errorf("open logs: %w", err)
	}
	b.opening.Detail(fmt.Sprintf("%d partitions, %d scanned", summary.Partitions, summary.Scanned))
	b.opening.End()
	return nil
}

// cutNamed bounds how many partitions the summary of a recovery names.
const cutNamed = 10

// reportRecovery says in one line what an unclean stop has cost.
func (b *Broker) reportRecovery() {
	summary, state := b.logs.Summary(), b.logs.StartState()
	if state.New || state.Marked && summary.Scanned == 0 {
		return
	}
	var cut []string
	for _, c := range summary.Cut[:min(len(summary.Cut), cutNamed)] {
		cut = append(cut, fmt.Sprintf("%s (%d bytes at offset %d)", c.Name, c.CutBytes, c.CutOffset))
	}
	if more := len(summary.Cut) - len(cut); more > 0 {
		cut = append(cut, fmt.Sprintf("and %d more", more))
	}
	b.logger.Warn("the last stop was unclean: logs were checked",
		slog.Int("partitions", summary.Partitions), slog.Int("scanned", summary.Scanned), slog.Int64("scanned_bytes", summary.ScannedBytes),
		slog.Int64("cut_bytes", summary.CutBytes), slog.String("cut", strings.Join(cut, ", ")), slog.Int("set_aside", len(summary.Quarantined)),
		slog.Int64("took_ms", summary.Duration.Milliseconds()))
}

// assemble makes the parts that stand on the data directory and the registry, and reads the configurations.
func (b *Broker) assemble(ctx context.Context) (err error) {
	b.state = &state{
		images: newImages(b.logs.ClusterID()), broker: b.config.BrokerID, cluster: b.cluster, keys: b.configs, logger: b.logger,
		slot: make(chan struct{}, 1),
	}
	b.peers = newPeers(b.config.BrokerID, b.dialBroker)
	var others replica.Leaders
	if len(b.config.Cluster) > 1 {
		others = leaders{b}
	}
	b.table, err = replica.NewTable(replica.Config{
		Broker: b.config.BrokerID, Leaders: others, Lease: b.leaseLength(), Logs: b.logs, TopicConfig: b.state.topicConfig, ISR: b.state, Roles: roles{b}, Logger: b.logger,
		Registerer: b.gatherer,
		Fetch: replica.FetchConfig{
			Wait: b.duration("replica.fetch.wait.max.ms"), BytesMin: int32(b.setting("replica.fetch.min.bytes")),
			PartitionMax: int32(b.setting("replica.fetch.max.bytes")), BytesMax: int32(b.setting("replica.fetch.response.max.bytes")),
			Backoff:          b.duration("replica.fetch.backoff.ms"),
			ConnectionsOfOne: func() int { return int(b.configs.Int(b.state.load(), "num.replica.fetchers")) },
		},
		Throttled: b.state.throttled,
		Throttle: replica.ThrottleConfig{
			LeaderRate:   func() int64 { return b.configs.Int(b.state.load(), "leader.replication.throttled.rate") },
			FollowerRate: func() int64 { return b.configs.Int(b.state.load(), "follower.replication.throttled.rate") },
			Samples:      int(b.setting("replication.quota.window.num")), Sample: time.Duration(b.setting("replication.quota.window.size.seconds")) * time.Second,
		},
		FetchTimeout: b.duration("replica.socket.timeout.ms"), LagMax: b.duration("replica.lag.time.max.ms"),
	})
	if err != nil {
		return err
	}
	b.state.table = b.table
	b.disk = &diskWatcher{
		dir: b.config.DataDir, free: b.config.FreeBytes, refuse: b.table.RefuseAppends, logger: b.logger,
		min: func() uint64 { return uint64(b.configs.Int(b.state.load(), "log.storage.free.min.bytes")) },
	}
	b.disk.look()
	if err := b.state.readConfigs(ctx); err != nil {
		return err
	}
	b.admin = controller.NewAdmin(controller.AdminConfig{
		Cluster: b.cluster, Broker: b.config.BrokerID, Image: b.state.load, Random: rand.Reader, Keys: b.configs.Keys(), Settings: b.configs.Lookup(emptyImage),
		Partitions: int32(b.setting("num.partitions")), Replication: int16(b.setting("default.replication.factor")),
		DeletionDisabled: !b.configs.Bool(emptyImage, "delete.topic.enable"), CheckBroker: b.checkBroker,
	})
	if b.groups, err = b.newGroups(); err != nil {
		return err
	}
	b.state.topicsDeleted = b.groups.TopicsDeleted
	if err := b.registerMetrics(); err != nil {
		return err
	}
	b.running.Store(&parts{b.embedded, b.state, b.table, b.disk})
	return b.logs.Arm()
}

// stop undoes start in reverse order. The mark of a clean shutdown is the last thing that is written into the data
// directory; the registry is closed after it.
func (b *Broker) stop() error {
	var errs []error
	if b.peers != nil {
		b.peers.close()
	}
	if b.table != nil {
		b.table.Close()
	}
	if b.embedded != nil {
		b.embedded.Relieve() // the logs' last checkpoints and the clean mark want a few KiB
	}
	if b.logs != nil {
		epoch := int64(-1)
		if b.state != nil {
			if self, found := b.state.load().Broker(b.config.BrokerID); found && self.Epoch > 0 {
				epoch = self.Epoch
			}
		}
		errs = append(errs, b.logs.Close(epoch))
	}
	switch {
	case b.embedded != nil:
		errs = append(errs, b.embedded.Close())
	case b.store != nil && b.config.Registry == nil:
		errs = append(errs, b.store.Close())
	}
	if b.door != nil {
		errs = append(errs, b.door.Close())
	}
	return errors.Join(errs...)
}
