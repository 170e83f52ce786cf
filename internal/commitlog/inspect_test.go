package commitlog

import (
	"os"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// closedFiles is what a log of several segments leaves behind, by kind.
func closedFiles(t *testing.T) (vfs.FS, map[FileKind][]string) {
	t.Helper()
	o := openTest(t, nil)
	o.fill(60, 100)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := o.options.FS.List(o.options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[FileKind][]string{}
	for _, e := range entries {
		name := o.options.Dir + "/" + e.Name
		names[KindOf(name)] = append(names[KindOf(name)], name)
	}
	return o.options.FS, names
}

func TestInspectAClosedLog(t *testing.T) {
	fsys, names := closedFiles(t)
	if len(names[SegmentFile]) < 2 || len(names[UnknownFile]) > 0 {
		t.Fatalf("files: %v", names)
	}
	next := int64(0)
	for _, name := range names[SegmentFile] {
		if base, err := BaseOffsetOf(name); err != nil || base != next {
			t.Errorf("%s: base %d, %v, want %d", name, base, err, next)
		}
		err := InspectSegment(fsys, name, func(_ int64, b record.Batch) error {
			if b.BaseOffset() != next {
				t.Errorf("%s: batch at %d, want %d", name, b.BaseOffset(), next)
			}
			next = b.LastOffset() + 1
			return b.CheckCRC()
		})
		if err != nil {
			t.Error(err)
		}
		if faults, err := VerifySegment(fsys, name); err != nil || len(faults) > 0 {
			t.Errorf("verify %s: %v, %v", name, faults, err)
		}
	}
	entries, err := InspectOffsetIndex(fsys, names[OffsetIndex][0])
	if err != nil || len(entries) == 0 {
		t.Errorf("offset index: %d entries, %v", len(entries), err)
	}
	if entries, err := InspectTimeIndex(fsys, names[TimeIndex][0]); err != nil || len(entries) == 0 {
		t.Errorf("time index: %d entries, %v", len(entries), err)
	}
}

// VerifySegment bites: each damage is named.
func TestVerifySegmentNamesFaults(t *testing.T) {
	damage := func(t *testing.T, fsys vfs.FS, name string, at int64) {
		t.Helper()
		f, err := fsys.Open(name, os.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		kind FileKind
		at   int64
		want string
	}{
		{SegmentFile, record.HeaderBytes + 5, "batch at position 0: "},
		{SegmentFile, 7, "below"}, // the base offset, which no checksum covers, goes from 0 to 1: the next batch is below its end
		{OffsetIndex, 7, "offset index entry 0"},
		{TimeIndex, 7, "time index entry 0"},
	} {
		fsys, names := closedFiles(t)
		damage(t, fsys, names[test.kind][0], test.at)
		faults, err := VerifySegment(fsys, names[SegmentFile][0])
		if err != nil || !strings.Contains(strings.Join(faults, "\n"), test.want) {
			t.Errorf("%s damaged at %d: faults %q, error %v; want %q", test.kind, test.at, faults, err, test.want)
		}
	}
}

// An index that Kafka left open is padded with zeros.
func TestInspectPaddedIndex(t *testing.T) {
	fsys := vfs.NewMemory(1)
	if err := fsys.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		t.Helper()
		if err := vfs.WriteAtomic(fsys, name, data); err != nil {
			t.Fatal(err)
		}
	}
	put("/d/00000000000000000100.index", append([]byte{0, 0, 0, 9, 0, 0, 1, 0}, make([]byte, 80)...))
	put("/d/00000000000000000200.index", make([]byte, 80))
	got, err := InspectOffsetIndex(fsys, "/d/00000000000000000100.index")
	if err != nil || len(got) != 1 || got[0] != (OffsetEntry{109, 256}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := InspectOffsetIndex(fsys, "/d/00000000000000000200.index"); err != nil || len(got) != 0 {
		t.Errorf("padding only: got %v, %v", got, err)
	}
}
