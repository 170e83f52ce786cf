package commitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// seeded is a source of ids that differ.
type seeded byte

func (s *seeded) Read(p []byte) (int, error) {
	for i := range p {
		*s++
		p[i] = byte(*s) &^ 0x80
	}
	return len(p), nil
}

func topicID(n byte) meta.TopicID { return meta.TopicID{0: 1, 15: n} }

// directory is a data directory under test.
type directory struct {
	*Manager
	t       *testing.T
	options ManagerOptions
	clock   *clock

	unsettled bool // nobody has heard yet what a start has lost
}

func openDirectory(t *testing.T, fsys vfs.FS, dir string) *directory {
	t.Helper()
	return openDirectoryIn(t, fsys, dir, "boot")
}

// openDirectoryIn opens it under a boot of the machine: after a power cut there is another one.
func openDirectoryIn(t *testing.T, fsys vfs.FS, dir, boot string) *directory {
	t.Helper()
	c := newClock()
	d := &directory{t: t, clock: c, options: ManagerOptions{
		FS: fsys, Dir: dir, NodeID: 1, ClusterID: "cluster", BootID: boot, Now: c.read, Random: new(seeded),
	}}
	d.start()
	return d
}

// start opens the directory and loads its logs.
func (d *directory) start() RecoverySummary {
	d.t.Helper()
	m, err := OpenManager(d.options)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Manager = m
	d.t.Cleanup(m.unlock)
	if err := m.SetCluster("cluster"); err != nil {
		d.t.Fatal(err)
	}
	summary, err := m.Load(d.t.Context(), func(string) Config { return testConfig() })
	if err != nil {
		d.t.Fatal(err)
	}
	if !d.unsettled {
		if err := m.Settle(); err != nil {
			d.t.Fatal(err)
		}
	}
	return summary
}

// TestKillBeforeSettling: a process that is killed after a power cut, before the cluster knows what that took, must not make
// the next start count as clean. D9
func TestKillBeforeSettling(t *testing.T) {
	disk := vfs.NewMemory(1)
	d := openDirectoryIn(t, disk, "data", "boot")
	d.log("a", topicID(1), 0).fill(3, 50)
	d.options.FS, d.options.BootID, d.unsettled = disk.Crash(vfs.Prefix), "another boot", true
	for start := range 3 {
		d.start()
		if state := d.StartState(); state.SameBoot || !state.OtherBoot {
			t.Errorf("start %d after the power cut: %+v", start, state)
		}
		d.unlock() // the process is killed
	}
	d.unsettled = false
	d.start()
	d.unlock()
	d.start()
	if state := d.StartState(); !state.SameBoot {
		t.Errorf("after a kill of a settled process: %+v", state)
	}
}

func (d *directory) log(topic string, id meta.TopicID, partition int32) *opened {
	d.t.Helper()
	l, err := d.Open(topic, id, partition, testConfig())
	if err != nil {
		d.t.Fatal(err)
	}
	return &opened{Log: l, t: d.t, clock: d.clock}
}

func (d *directory) names() []string {
	d.t.Helper()
	entries, err := d.options.FS.List(d.options.Dir)
	if err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

func TestManagerCleanAndUncleanStops(t *testing.T) { // D9
	for _, kind := range []string{"disk", "memory"} {
		t.Run(kind, func(t *testing.T) {
			var fsys vfs.FS = vfs.NewMemory(1)
			dir := "/data"
			if kind == "disk" {
				fsys, dir = vfs.NewDisk(vfs.Options{}), filepath.Join(t.TempDir(), "data")
			}
			d := openDirectory(t, fsys, dir)
			if s := d.StartState(); !s.New || s.Marked || s.SameBoot {
				t.Errorf("first start: %+v", s)
			}
			for p := range int32(3) {
				d.log("topic", topicID(1), p).fill(20, 100)
			}
			if err := d.Close(7); err != nil {
				t.Fatal(err)
			}
			directoryID := d.DirectoryID()

			summary := d.start()
			if s := d.StartState(); s.New || !s.Marked || s.BrokerEpoch != 7 || !s.SameBoot || d.DirectoryID() != directoryID {
				t.Errorf("after a clean stop: %+v", s)
			}
			if summary.Partitions != 3 || summary.Scanned != 0 {
				t.Errorf("after a clean stop: %+v", summary)
			}
			for p := range int32(3) {
				o := d.log("topic", topicID(1), p)
				if got := o.readAll(0, 1000); len(got) != 20 {
					t.Errorf("partition %d has %d batches", p, len(got))
				}
				o.fill(5, 100)
			}
			if slices.Contains(d.names(), cleanFileName) {
				t.Error("the mark is still there although logs are in use")
			}
			d.unlock() // the process dies

			summary = d.start()
			if s := d.StartState(); s.Marked || !s.SameBoot {
				t.Errorf("after a kill: %+v", s)
			}
			if summary.Partitions != 3 || summary.Scanned != 3 || summary.CutBytes != 0 {
				t.Errorf("after a kill: %+v", summary)
			}
			if got := d.log("topic", topicID(1), 2).readAll(0, 1000); len(got) != 25 {
				t.Errorf("%d batches after a kill", len(got))
			}
		})
	}
}

// A stop during which the disk fails, at whatever step, is not taken for a clean one (KAFKA-10471, KAFKA-13315): Close says
// so, and the next start scans. Only where all that failed was the sync of the mark's own name may the mark stay: what it
// says is true.
func TestManagerStopOnAFailingDisk(t *testing.T) {
	marked := -1 // the last step that failed and left a mark
	for step := 0; ; step++ {
		disk := vfs.NewMemory(1)
		d := openDirectory(t, disk, "/data")
		for p := range int32(2) {
			d.log("topic", topicID(1), p).fill(20, 100)
		}
		disk.FailAfter(step, syscall.EIO)
		err := d.Close(7)
		disk.FailAfter(0, nil)
		summary := d.start()
		if err == nil {
			if !d.StartState().Marked || summary.Scanned != 0 {
				t.Errorf("after a clean stop: %+v, %+v", d.StartState(), summary)
			}
			if step < 5 || marked >= 0 && marked < step-1 {
				t.Errorf("a stop changes the disk %d times, and left a mark when step %d failed", step, marked)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("step %d: the stop says %v", step, err)
		}
		if d.StartState().Marked {
			marked = step
		} else if summary.Scanned != 2 {
			t.Errorf("step %d failed: %+v, %+v", step, d.StartState(), summary)
		}
		for p := range int32(2) {
			if got := d.log("topic", topicID(1), p).readAll(0, 1000); len(got) != 20 {
				t.Errorf("step %d failed: partition %d has %d batches", step, p, len(got))
			}
		}
	}
}

func TestManagerRefusesToStart(t *testing.T) {
	disk, dir := vfs.NewDisk(vfs.Options{}), filepath.Join(t.TempDir(), "data")
	d := openDirectory(t, disk, dir)
	var locked *LockedError
	if _, err := OpenManager(d.options); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second opener: %v", err)
	}
	if err := d.Close(-1); err != nil {
		t.Fatal(err)
	}
	var mismatch *MismatchError
	other := d.options
	other.NodeID = 2
	if _, err := OpenManager(other); !errors.As(err, &mismatch) || mismatch.Field != "node.id" {
		t.Errorf("other node: %v", err)
	}
	other = d.options
	other.ClusterID = "another"
	if _, err := OpenManager(other); !errors.As(err, &mismatch) || mismatch.Field != "cluster.id" {
		t.Errorf("other cluster: %v", err)
	}
	meta := filepath.Join(dir, metaFileName)
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), "tidemark.format.version=1", "tidemark.format.version=9", 1)
	if err := os.WriteFile(meta, []byte(newer), 0o644); err != nil {
		t.Fatal(err)
	}
	var format *NewerFormatError
	if _, err := OpenManager(d.options); !errors.As(err, &format) || format.Have != 9 {
		t.Errorf("newer format: %v", err)
	}
	if err := os.WriteFile(meta, []byte("version=1\nnode.id=one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenManager(d.options); !errors.Is(err, ErrBadMeta) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("bad node id: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other = d.options
	other.Dir = file
	if _, err := OpenManager(other); !errors.Is(err, ErrUnwritable) || !strings.Contains(err.Error(), file) {
		t.Errorf("not a directory: %v", err)
	}
}

func TestManagerDeletesAndSetsAside(t *testing.T) { // U-54, U-55, U-57, U-59
	d := openDirectory(t, vfs.NewMemory(1), "/data")
	o := d.log("topic", topicID(1), 0)
	o.fill(10, 100)
	if err := o.RaiseStart(4); err != nil {
		t.Fatal(err)
	}
	if err := d.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	again := d.log("topic", topicID(2), 0) // another life of the topic
	if again.EndOffset() != 0 || again.StartOffset() != 0 {
		t.Errorf("the new life starts with offsets %d to %d", again.StartOffset(), again.EndOffset())
	}
	if strays := d.Strays(); len(strays) != 1 || !strings.HasSuffix(strays[0], "-stray") {
		t.Errorf("strays: %q", strays)
	}
	slice, err := o.Read(4, 100, 20, true)
	if !errors.Is(err, ErrClosed) {
		t.Errorf("read of a stray: %v, %v", slice, err)
	}
	again.fill(1, 10)
	held, err := again.Read(0, 100, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(again.Log); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(again.Log); err != nil {
		t.Errorf("second delete: %v", err)
	}
	count := func(suffix string) (n int) {
		for _, name := range d.names() {
			if strings.HasSuffix(name, suffix) {
				n++
			}
		}
		return n
	}
	d.clock.now = d.clock.now.Add(time.Hour)
	d.Maintain(d.clock.now, true, true)
	if count("-delete") != 1 {
		t.Error("swept although a reader holds a slice")
	}
	if err := held.CopyTo(make([]byte, held.Bytes())); err != nil {
		t.Errorf("read of a deleted log that was begun before: %v", err)
	}
	held.Release()
	d.Maintain(d.clock.now, true, true)
	if count("-delete") != 0 || count("-stray") != 1 {
		t.Errorf("after the sweep: %q", d.names())
	}
	third := d.log("topic", topicID(3), 0)
	if third.EndOffset() != 0 {
		t.Errorf("end %d after deletion", third.EndOffset())
	}
}

func TestManagerSetsBadPartitionsAside(t *testing.T) { // U-56, U-80
	fsys := vfs.NewMemory(1)
	d := openDirectory(t, fsys, "/data")
	for p := range int32(3) {
		d.log("topic", topicID(1), p).fill(3, 10)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove("/data/topic-1/" + partitionMetadataFileName); err != nil {
		t.Fatal(err)
	}
	summary := d.start()
	if summary.Partitions != 2 || len(summary.Quarantined) != 1 || summary.Quarantined[0].Name.Partition != 1 {
		t.Errorf("%+v", summary)
	}
	if _, err := d.Open("topic", topicID(1), 1, testConfig()); !errors.Is(err, ErrQuarantined) {
		t.Errorf("open: %v", err)
	}
	d.log("topic", topicID(1), 2).fill(1, 1)
	if err := d.Close(2); err != nil {
		t.Fatal(err)
	}
}

// A power cut may leave the names of a new partition's segments without any content: its directory still tells a start that
// there are partitions, and none of its files becomes part of the log that is made in its place.
func TestManagerMakesUnfinishedPartitionAnew(t *testing.T) {
	fsys := vfs.NewMemory(1)
	if err := fsys.MkdirAll("/data/topic-0"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000000000000000000.log", "00000000000000000007.log", "00000000000000000007.index", partitionMetadataFileName} {
		file, err := fsys.Open("/data/topic-0/"+name, os.O_RDWR|os.O_CREATE)
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d := openDirectory(t, fsys, "/data")
	if held, err := d.HoldsPartitions(); err != nil || !held {
		t.Errorf("holds partitions: %v, %v", held, err)
	}
	if got := d.Strays(); len(got) != 0 {
		t.Errorf("strays %q", got)
	}
	l := d.log("topic", topicID(1), 0)
	l.fill(3, 10)
	if l.StartOffset() != 0 || l.EndOffset() != 6 {
		t.Errorf("offsets %d to %d, want 0 to 6", l.StartOffset(), l.EndOffset())
	}
	entries, err := fsys.List("/data/topic-0")
	if err != nil || slices.ContainsFunc(entries, func(e vfs.Entry) bool { return strings.HasPrefix(e.Name, "00000000000000000007.") }) {
		t.Errorf("the old life's segment is there: %v, %v", entries, err)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
}

func TestManagerStartsWithoutSpace(t *testing.T) { // U-72, U-73
	fsys := vfs.NewMemory(1)
	d := openDirectory(t, fsys, "/data")
	o := d.log("topic", topicID(1), 0)
	o.fill(30, 100)
	d.unlock()
	fill := func() {
		used := int64(0)
		for _, dir := range []string{"/data", "/data/topic-0"} {
			entries, err := fsys.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				used += e.Size
			}
		}
		fsys.SetCapacity(used)
	}
	fill()
	if summary := d.start(); summary.Partitions != 1 || summary.CutBytes != 0 {
		t.Fatalf("%+v", summary)
	}
	o = d.log("topic", topicID(1), 0)
	fill()
	batch := func() []byte { return makeBatch(t, record.BuilderOptions{}, message{1, "k", strings.Repeat("v", 300)}) }
	for range 3 {
		if _, err := o.Append(t.Context(), Append{Batches: batch()}); !errors.Is(err, ErrDiskFull) || !errors.Is(err, ErrStorage) {
			t.Fatalf("append without space: %v", err)
		}
	}
	if got := o.readAll(0, 1000); len(got) != 30 {
		t.Errorf("%d batches", len(got))
	}
	fsys.SetCapacity(1 << 20)
	if out, err := o.Append(t.Context(), Append{Batches: batch()}); err != nil || out.Base != 60 {
		t.Errorf("append with space again: %+v, %v", out, err)
	}
	if o.Err() != nil {
		t.Errorf("the log failed: %v", o.Err())
	}
}

func TestManagerManyPartitions(t *testing.T) {
	d := openDirectory(t, vfs.NewMemory(1), "/data")
	for p := range int32(200) {
		d.log("topic", topicID(1), p).produceIn(3, record.BuilderOptions{}, message{1, "k", "v"})
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	if summary := d.start(); summary.Partitions != 200 {
		t.Errorf("%+v", summary)
	}
	if epoch := d.log("topic", topicID(1), 150).LatestEpoch(); epoch != 3 {
		t.Errorf("epoch %d", epoch)
	}
}

func TestPartitionNames(t *testing.T) {
	for dir, want := range map[string]PartitionName{
		"a-0": {"a", 0}, "a-b-12": {"a-b", 12}, "-1-3": {"-1", 3}, "a-": {}, "a": {}, "-3": {}, "a-01": {}, "a-2147483648": {},
	} {
		got, ok := parsePartitionName(dir)
		if got != want || ok != (want != PartitionName{}) {
			t.Errorf("%q: %v %v", dir, got, ok)
		}
		if ok && got.String() != dir {
			t.Errorf("%q becomes %q", dir, got)
		}
	}
	if got := fmt.Sprint(segmentName(1234, logSuffix)); got != "00000000000000001234.log" {
		t.Error(got)
	}
}

// Opening what Kafka wrote would take every partition for a stray, so it is refused before anything is touched.
func TestManagerRefusesPartitionsOfKafka(t *testing.T) {
	disk, dir := vfs.NewDisk(vfs.Options{}), filepath.Join(t.TempDir(), "data")
	d := openDirectory(t, disk, dir)
	d.log("topic", topicID(1), 0).fill(1, 10)
	if err := d.Close(-1); err != nil {
		t.Fatal(err)
	}
	kafkas := "#\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\nnode.id=1\n"
	if err := os.WriteFile(filepath.Join(dir, metaFileName), []byte(kafkas), 0o644); err != nil {
		t.Fatal(err)
	}
	options := d.options
	options.ClusterID, options.NodeID = "", 1
	var foreign *ForeignError
	if _, err := OpenManager(options); !errors.As(err, &foreign) || foreign.Dir != dir {
		t.Errorf("partitions of Kafka: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "topic-0")); err != nil {
		t.Fatal(err)
	}
	m, err := OpenManager(options) // a directory that was only formatted holds nothing to lose
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(-1); err != nil {
		t.Error(err)
	}
}

// Load counts the logs that it has opened, so that a long recovery can be watched.
func TestManagerCountsLoadedLogs(t *testing.T) {
	disk, dir := vfs.NewDisk(vfs.Options{}), filepath.Join(t.TempDir(), "data")
	d := openDirectory(t, disk, dir)
	for partition := range int32(3) {
		d.log("topic", topicID(1), partition).fill(1, 10)
	}
	if err := d.Close(-1); err != nil {
		t.Fatal(err)
	}
	var counts [][2]int
	d.options.Loaded = func(done, all int) { counts = append(counts, [2]int{done, all}) }
	m, err := OpenManager(d.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Load(t.Context(), func(string) Config { return testConfig() }); err != nil {
		t.Fatal(err)
	}
	if want := [][2]int{{0, 3}, {1, 3}, {2, 3}, {3, 3}}; !slices.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	if err := m.Close(-1); err != nil {
		t.Error(err)
	}
}
