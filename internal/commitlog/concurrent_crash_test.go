package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// TestPowerCutUnderLoad cuts the power while clients append and wait for syncs, readers read, and the log rolls, is
// checkpointed and loses old segments, all at once. What was acknowledged after a sync is there exactly once, at its
// offset (I1, I5, I7). The schedule is the operating system's: a seed only sets the moment and the outcome of the cut.
func TestPowerCutUnderLoad(t *testing.T) {
	for seed := range max(*crashSeeds/6, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { cutUnderLoad(t, seed) })
	}
}

// loadClient is an idempotent producer that waits for syncs.
type loadClient struct {
	id    int64
	acked map[int64]record.Batch // by base offset: appended, and a sync has passed it
	err   error
}

func cutUnderLoad(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 4))
	disk := vfs.NewMemory(seed)
	d := openDirectory(t, disk, "/data")
	config := testConfig()
	if random.IntN(2) == 0 {
		config.RetentionBytes = 10_000
	}
	// One log of four clients, or four logs of one client each, which a round syncs one by one or with one SyncAll.
	logs := make([]*Log, 1+3*random.IntN(2))
	all := random.IntN(2) == 0
	d.syncer.SyncAllAllowed = func() bool { return all }
	d.syncer.holder.costs = syncCosts{each: syncCost{took: time.Hour, rounds: syncTrialRounds}}
	for p := range logs {
		var err error
		if logs[p], err = d.Open("topic", topicID(1), int32(p), config); err != nil {
			t.Fatal(err)
		}
	}
	disk.CrashAtSync(disk.SyncPoints() + 1 + random.IntN(200))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var background, clients sync.WaitGroup
	background.Go(func() { _ = d.syncer.Run(ctx) })
	background.Go(func() {
		for ctx.Err() == nil {
			_ = d.Checkpoint() // fails once the power is gone
			for _, l := range logs {
				_, _ = l.Maintain(d.clock.now, l.SyncedOffset())
			}
		}
	})
	var read atomic.Int64
	background.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			n, err := readTail(logs[i%len(logs)])
			read.Add(n)
			if err != nil && !errors.Is(err, vfs.ErrCrashed) {
				t.Errorf("read: %v", err)
				return
			}
		}
	})
	loads := make([]*loadClient, 4)
	for i := range loads {
		c := &loadClient{id: int64(i + 1), acked: map[int64]record.Batch{}}
		loads[i] = c
		clients.Go(func() { c.run(ctx, logs[i%len(logs)], d.clock.ms()) })
	}
	clients.Wait()
	stop()
	background.Wait()
	for _, c := range loads {
		if !errors.Is(c.err, vfs.ErrCrashed) {
			t.Errorf("client %d ended with %v", c.id, c.err)
		}
	}

	mode := vfs.CrashModes[random.IntN(len(vfs.CrashModes))]
	again := openDirectoryIn(t, disk.Crash(mode), "/data", "the next boot")
	for p := range logs {
		reopened, err := again.Open("topic", topicID(1), int32(p), config)
		if err != nil {
			t.Fatal(err)
		}
		own := loads
		if len(logs) > 1 {
			own = loads[p : p+1]
		}
		checkAcked(t, &opened{Log: reopened, t: t, clock: again.clock}, own)
	}
}

// run appends one batch after the other until the power is gone.
func (c *loadClient) run(ctx context.Context, l *Log, now int64) {
	sequence := int32(0)
	for {
		b := record.NewBuilder(record.BuilderOptions{HasProducer: true, ProducerID: c.id, BaseSequence: sequence})
		for i := range 1 + int(sequence)%4 {
			b.Append(now, nil, make([]byte, 40*i))
		}
		batch, err := b.Batch()
		if err != nil {
			c.err = err
			return
		}
		out, err := l.Append(ctx, Append{Batches: batch, Epoch: 1})
		if err == nil && (out.Duplicate || out.Count != int(batch.Count())) {
			err = fmt.Errorf("append answered %+v", out)
		}
		if err == nil {
			_, err = l.Sync(ctx)
		}
		if err != nil {
			c.err = err
			return
		}
		c.acked[out.Base] = append(record.Batch(nil), batch...) // stamped by the log
		sequence += batch.Count()
	}
}

// readTail reads the last batches and checks them.
func readTail(l *Log) (batches int64, err error) {
	end := l.EndOffset()
	from := max(l.StartOffset(), end-20)
	slice, err := l.Read(from, 4096, end, true)
	if errors.Is(err, ErrOutOfRange) {
		return 0, nil // retention was faster
	}
	if err != nil {
		return 0, err
	}
	defer slice.Release()
	data := make([]byte, slice.Bytes())
	if err := slice.CopyTo(data); err != nil {
		return 0, err
	}
	for len(data) > 0 {
		batch, rest, err := record.Next(data)
		if err == nil {
			err = batch.CheckCRC()
		}
		if err != nil {
			return batches, err
		}
		data = rest
		batches++
	}
	return batches, nil
}

// checkAcked finds every acknowledged batch above the log start at its offset, and every producer's sequences without gap
// or repetition.
func checkAcked(t *testing.T, l *opened, clients []*loadClient) {
	t.Helper()
	next := map[int64]int32{}
	found := map[int64]record.Batch{}
	start := l.StartOffset()
	for _, b := range l.readAll(start, 1<<20) {
		want, seen := next[b.ProducerID()]
		if b.BaseSequence() != want && (seen || start == 0) {
			t.Errorf("producer %d has sequence %d at %d, want %d", b.ProducerID(), b.BaseSequence(), b.BaseOffset(), want)
		}
		next[b.ProducerID()] = b.LastSequence() + 1
		found[b.BaseOffset()] = b
	}
	for _, c := range clients {
		for base, batch := range c.acked {
			if got := found[base]; base >= start && string(got) != string(batch) {
				t.Errorf("the batch of producer %d at %d was acknowledged after a sync and is not there", c.id, base)
			}
		}
	}
}
