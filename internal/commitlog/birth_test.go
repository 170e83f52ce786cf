package commitlog

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// partitionNames are the partition directories of a data directory, whatever state they are in.
func (d *directory) partitionNames() []string {
	return slices.DeleteFunc(d.names(), func(name string) bool { return !strings.Contains(name, "topic-") })
}

// A partition that nobody has written to has nothing on disk: not while it is served, not after a clean stop, and not after
// it was deleted. The first append makes it.
func TestUnborn(t *testing.T) {
	fsys := vfs.NewMemory(1)
	d := openDirectory(t, fsys, "/data")
	written, silent, gone := d.log("topic", topicID(1), 0), d.log("topic", topicID(1), 1), d.log("topic", topicID(1), 2)
	for _, l := range []*opened{written, silent, gone} {
		if l.StartOffset() != 0 || l.EndOffset() != 0 || l.Size() != 0 || l.SegmentCount() != 1 {
			t.Errorf("%s: offsets %d to %d", l.Name(), l.StartOffset(), l.EndOffset())
		}
		if slice, err := l.Read(0, 100, 0, true); err != nil || len(slice.Runs) != 0 {
			t.Errorf("%s: read %v, %v", l.Name(), slice, err)
		}
		if _, found, err := l.OffsetForTimestamp(0, 0); err != nil || found {
			t.Errorf("%s: an offset for a time: %v, %v", l.Name(), found, err)
		}
		if _, found, err := l.MaxTimestamp(0); err != nil || found {
			t.Errorf("%s: a greatest timestamp: %v, %v", l.Name(), found, err)
		}
		if err := l.AssignEpoch(0, 0); err != nil {
			t.Error(err)
		}
		if end, err := l.Sync(t.Context()); err != nil || end != 0 {
			t.Errorf("%s: synced to %d, %v", l.Name(), end, err)
		}
	}
	if err := errors.Join(d.Delete(gone.Log), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	if got := d.partitionNames(); len(got) != 0 {
		t.Errorf("on disk before anything was written: %q", got)
	}
	written.fill(1, 10)
	if got := d.partitionNames(); !slices.Equal(got, []string{"topic-0"}) {
		t.Errorf("on disk after one append: %q", got)
	}
	if got := written.Epochs(); len(got) != 1 {
		t.Errorf("epochs %v", got)
	}
	if err := d.Close(-1); err != nil {
		t.Fatal(err)
	}
	summary := d.start()
	if summary.Partitions != 1 || summary.Lost || len(summary.Quarantined) > 0 {
		t.Errorf("found %+v", summary)
	}
	if l := d.log("topic", topicID(1), 0); l.EndOffset() != 2 {
		t.Errorf("log end %d", l.EndOffset())
	}
}

// A log that a full disk does not let be born is tried again, and leaves nothing when it is deleted instead.
func TestUnbornOnFullDisk(t *testing.T) { // U-72
	fsys := vfs.NewMemory(1)
	d := openDirectory(t, fsys, "/data")
	later, never := d.log("topic", topicID(1), 0), d.log("topic", topicID(1), 1)
	fsys.SetCapacity(fsys.UsedBytes())
	for _, l := range []*opened{later, never} {
		if _, err := l.try(record.BuilderOptions{}, message{l.clock.ms(), "k", "v"}); !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: append on a full disk: %v", l.Name(), err)
		}
	}
	fsys.SetCapacity(1 << 30)
	if err := d.Delete(never.Log); err != nil {
		t.Fatal(err)
	}
	later.fill(1, 10)
	for _, name := range d.partitionNames() {
		if name != "topic-0" && !strings.HasSuffix(name, deleteSuffix) {
			t.Errorf("on disk: %q", name)
		}
	}
	if err := d.Close(-1); err != nil {
		t.Fatal(err)
	}
}
