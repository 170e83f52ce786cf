package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// model is the naive log: a slice of batches. Every history drives it and a Log with the same steps.
type model struct {
	*opened
	random     *rand.Rand
	steps      []string // for the report of a failure
	batches    []record.Batch
	start, end int64
	synced     int64
	epoch      meta.Epoch
	written    []record.Batch // of producers, also those that retention removed
}

// sequence is the next one of a producer.
func (m *model) sequence(producer int64) int32 {
	for _, b := range slices.Backward(m.written) {
		if b.ProducerID() == producer {
			return b.LastSequence() + 1
		}
	}
	return 0
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nsteps:\n%s", fmt.Sprintf(format, args...), bytes.Join([][]byte{[]byte(fmt.Sprintln(m.steps))}, nil))
}

func (m *model) step(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}

// messages draws the records of a batch; timestamps are not in order.
func (m *model) messages() []message {
	messages := make([]message, 1+m.random.IntN(4))
	for i := range messages {
		value := make([]byte, m.random.IntN(120))
		for j := range value {
			value[j] = byte('a' + m.random.IntN(26))
		}
		messages[i] = message{m.clock.ms() - m.random.Int64N(50), fmt.Sprint(m.random.IntN(10)), string(value)}
	}
	m.clock.now = m.clock.now.Add(time.Duration(m.random.IntN(20)) * time.Millisecond)
	return messages
}

func (m *model) produce() {
	options := record.BuilderOptions{Codec: record.Codec(m.random.IntN(5))}
	messages := m.messages()
	if producer := m.random.Int64N(4); producer > 0 {
		options.HasProducer, options.ProducerID, options.BaseSequence = true, producer, m.sequence(producer)
	}
	batch := makeBatch(m.t, options, messages...)
	m.step("produce %d", len(messages))
	out, err := m.Append(m.t.Context(), Append{Batches: batch, Epoch: m.epoch})
	if err != nil {
		m.fatalf("append: %v", err)
	}
	if out.Base != m.end || out.Last != m.end+int64(len(messages))-1 || out.Duplicate {
		m.fatalf("append at %d: %+v", m.end, out)
	}
	m.batches = append(m.batches, slices.Clone(record.Batch(batch)))
	if options.HasProducer {
		m.written = append(m.written, m.batches[len(m.batches)-1])
	}
	m.end = out.Last + 1
}

// replicate appends what a leader might send: several batches, gaps between them, a new epoch.
func (m *model) replicate() {
	var data []byte
	if m.random.IntN(3) == 0 {
		m.epoch++
	}
	for range 1 + m.random.IntN(4) {
		base := m.end + m.random.Int64N(3)
		batch := record.Batch(makeBatch(m.t, record.BuilderOptions{}, m.messages()...))
		batch.Stamp(base, int32(m.epoch))
		m.batches = append(m.batches, slices.Clone(batch))
		data = append(data, batch...)
		m.end = batch.LastOffset() + 1
	}
	m.step("replicate to %d", m.end)
	if _, err := m.Append(m.t.Context(), Append{Batches: data, Epoch: meta.NoEpoch, Origin: FromLeader}); err != nil {
		m.fatalf("replicate: %v", err)
	}
}

func (m *model) truncate() {
	to := m.start + m.random.Int64N(m.end-m.start+2)
	m.step("truncate %d", to)
	if err := m.Truncate(to); err != nil {
		m.fatalf("truncate: %v", err)
	}
	if to >= m.end {
		return
	}
	first := m.end
	for n := len(m.batches); n > 0 && m.batches[n-1].LastOffset() >= to; n-- {
		first = m.batches[n-1].BaseOffset()
		m.batches = m.batches[:n-1]
	}
	if n := len(m.batches); n > 0 {
		m.end = m.batches[n-1].LastOffset() + 1
	} else if m.end = m.EndOffset(); m.end > min(to, first) {
		m.fatalf("truncate to %d: end %d", to, m.end)
	}
	m.start = min(m.start, m.end)
	m.synced = min(m.synced, m.end)
	m.written = slices.DeleteFunc(m.written, func(b record.Batch) bool { return b.LastOffset() >= m.end })
}

func (m *model) raiseStart() {
	m.start += m.random.Int64N(m.end - m.start + 1)
	m.step("raise start %d", m.start)
	if err := m.RaiseStart(m.start); err != nil {
		m.fatalf("raise start: %v", err)
	}
}

func (m *model) maintain() {
	config := m.Config()
	config.RetentionBytes = -1
	if m.random.IntN(2) == 0 {
		config.RetentionBytes = m.random.Int64N(20 << 10)
	}
	m.SetConfig(config)
	m.clock.now = m.clock.now.Add(time.Minute)
	if _, err := m.Maintain(m.clock.now, m.end); err != nil {
		m.fatalf("maintain: %v", err)
	}
	m.step("maintain with %d: start %d to %d", config.RetentionBytes, m.start, m.StartOffset())
	if m.StartOffset() < m.start {
		m.fatalf("retention lowered the start from %d to %d", m.start, m.StartOffset())
	}
	m.start = m.StartOffset()
}

func (m *model) restart() {
	clean := m.random.IntN(2) == 0
	m.step("restart clean=%v", clean)
	recovery := m.reopen(clean)
	if recovery.CutBytes > 0 {
		m.fatalf("restart cut %+v", recovery)
	}
	if clean {
		m.synced = m.end
	}
}

// check holds everything that can be asked of the log against the naive one.
func (m *model) check() {
	m.t.Helper()
	if m.StartOffset() != m.start || m.EndOffset() != m.end || m.SyncedOffset() < m.synced || m.SyncedOffset() > m.end {
		m.fatalf("log from %d to %d synced %d, want %d to %d, %d", m.StartOffset(), m.EndOffset(), m.SyncedOffset(), m.start, m.end, m.synced)
	}
	first := 0
	for first < len(m.batches) && m.batches[first].LastOffset() < m.start {
		first++
	}
	m.batches = m.batches[first:]
	if len(m.batches) == 0 {
		return
	}
	m.checkRead()
	m.checkTimes()
	latest := m.batches[len(m.batches)-1].PartitionLeaderEpoch()
	if got := m.LatestEpoch(); got != meta.Epoch(latest) {
		m.fatalf("latest epoch %d, last batch has %d", got, latest)
	}
}

func (m *model) checkRead() {
	offset := m.start + m.random.Int64N(m.end-m.start+1)
	end := m.start + m.random.Int64N(m.end-m.start+1)
	bytesMax := m.random.Int32N(3000)
	slice, err := m.Read(offset, bytesMax, end, true)
	if err != nil {
		m.fatalf("read %d: %v", offset, err)
	}
	defer slice.Release()
	got := make([]byte, slice.Bytes())
	if err := slice.CopyTo(got); err != nil {
		m.fatalf("read %d: %v", offset, err)
	}
	var want []byte
	for _, b := range m.batches {
		if b.LastOffset() < offset {
			continue
		}
		if b.LastOffset() >= end || offset >= end || len(want) > 0 && len(want)+len(b) > int(bytesMax) {
			break
		}
		want = append(want, b...)
	}
	// A read ends with a segment at the latest.
	if !bytes.HasPrefix(want, got) || len(want) > 0 && len(got) == 0 {
		m.fatalf("read %d below %d, at most %d: %d bytes, want a prefix of %d", offset, end, bytesMax, len(got), len(want))
	}
	if len(got) < len(want) {
		last := m.batches[0]
		for rest := got; len(rest) > 0; {
			last, rest, _ = record.Next(rest)
		}
		if !slices.ContainsFunc(*m.segments.Load(), func(s *segment) bool { return s.base > last.BaseOffset() && s.base <= last.LastOffset()+3 }) {
			m.fatalf("read %d below %d, at most %d: %d of %d bytes, without a segment's end", offset, end, bytesMax, len(got), len(want))
		}
	}
}

func (m *model) checkTimes() { // U-98, U-99
	ts := m.clock.ms() - m.random.Int64N(2000)
	end := m.start + m.random.Int64N(m.end-m.start+1)
	var want, largest TimeOffset
	var found, any bool
	for _, b := range m.batches {
		for records := b.Records(nil); records.Next(); {
			r := records.Record()
			if r.Offset < m.start || r.Offset >= end {
				continue
			}
			at := TimeOffset{r.Offset, r.Timestamp, meta.Epoch(b.PartitionLeaderEpoch())}
			if !found && r.Timestamp >= ts {
				want, found = at, true
			}
			if b.LastOffset() < end && (!any || r.Timestamp > largest.Timestamp) {
				largest, any = at, true
			}
		}
	}
	got, gotFound, err := m.OffsetForTimestamp(ts, end)
	if err != nil || gotFound != found || got != want {
		m.fatalf("timestamp %d below %d: %+v %v %v, want %+v %v", ts, end, got, gotFound, err, want, found)
	}
	got, gotFound, err = m.MaxTimestamp(end)
	if m.start == m.batches[0].BaseOffset() && (err != nil || gotFound != any || got != largest) {
		m.fatalf("max timestamp below %d: %+v %v %v, want %+v %v", end, got, gotFound, err, largest, any)
	}
}

func TestHistoriesAgainstSlice(t *testing.T) { // E-16, E-33, U-98, U-99, U-101, U-129
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			o := openTest(t, func(o *Options) {
				o.Config.IndexInterval = random.Int32N(500)
				o.Config.FileDeleteDelay = 0
				o.Config.ProducerExpiry = 1 << 60
				o.Config.Retention = -1
			})
			m := &model{opened: o, random: random}
			for range 120 {
				switch n := random.IntN(40); {
				case n < 22:
					m.produce()
				case n < 28:
					m.replicate()
				case n < 30:
					m.truncate()
				case n < 31:
					m.raiseStart()
				case n < 33:
					m.maintain()
				case n < 36:
					m.restart()
				default:
					m.step("sync")
					if _, err := m.Sync(t.Context()); err != nil {
						m.fatalf("sync: %v", err)
					}
					m.synced = m.end
				}
				m.check()
			}
		})
	}
}

// TestPowerCuts cuts the power at a random sync of a random history: what was synced is there, and the log is what was
// appended up to some batch.
func TestPowerCuts(t *testing.T) { // D9, I1, reliability: traps 4 and 10
	for seed := range uint64(120) {
		mode := vfs.CrashModes[seed%uint64(len(vfs.CrashModes))]
		t.Run(fmt.Sprintf("%d-%v", seed, mode), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			disk := vfs.NewMemory(seed)
			d := openDirectory(t, disk, "/data")
			disk.CrashAtSync(disk.SyncPoints() + 1 + random.IntN(150))
			var appended []record.Batch
			var acked int64
			for !powerIsOut(disk) {
				runUntilCut(t, d, random, &appended, &acked)
			}
			after := disk.Crash(mode)
			again := openDirectory(t, after, "/data")
			l, err := again.Open("topic", topicID(1), 0, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			o := &opened{Log: l, t: t, clock: d.clock}
			if l.EndOffset() < acked {
				t.Fatalf("log ends at %d, %d was synced", l.EndOffset(), acked)
			}
			if l.EndOffset() == l.StartOffset() {
				return
			}
			for i, b := range o.readAll(l.StartOffset(), 1<<20) {
				if !bytes.Equal(b, appended[i]) {
					t.Fatalf("batch %d differs after the power cut", i)
				}
			}
			o.fill(20, 100)
			o.readAll(0, 1000)
		})
	}
}

func powerIsOut(disk *vfs.Memory) bool {
	_, err := disk.List("/")
	return errors.Is(err, vfs.ErrCrashed)
}

// runUntilCut appends, syncs and checkpoints until the power is cut.
func runUntilCut(t *testing.T, d *directory, random *rand.Rand, appended *[]record.Batch, acked *int64) {
	l, err := d.Open("topic", topicID(1), 0, testConfig())
	for err == nil {
		messages := make([]message, 1+random.IntN(3))
		for i := range messages {
			messages[i] = message{d.clock.ms(), "k", string(make([]byte, random.IntN(200)))}
		}
		batch := record.Batch(makeBatch(t, record.BuilderOptions{HasProducer: true, ProducerID: 1 + int64(len(*appended)), Codec: record.LZ4}, messages...))
		if _, err = l.Append(t.Context(), Append{Batches: batch, Epoch: meta.Epoch(len(*appended) / 20)}); err != nil {
			break
		}
		*appended = append(*appended, batch)
		switch random.IntN(6) {
		case 0, 1, 2:
			if end, syncErr := l.Sync(t.Context()); syncErr == nil {
				*acked = end
			} else {
				err = syncErr
			}
		case 3:
			err = d.Checkpoint()
		}
	}
}
