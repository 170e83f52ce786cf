package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// fuzzFile puts data in a file of a disk in memory.
func fuzzFile(t *testing.T, disk vfs.FS, name string, data []byte) vfs.File {
	t.Helper()
	if err := disk.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	file, err := disk.Open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return file
}

// fuzzIndex opens arbitrary bytes as an index: a look-up never panics, and either says that the index is corrupt or finds
// the last entry of the file that is not above the target, as a naive search does.
func fuzzIndex(f *testing.F, width int, by column) {
	var entries []byte
	for i := range int64(200) {
		if width == offsetEntryBytes {
			entries = appendOffsetEntry(entries, i*3+1, i*4096)
		} else {
			entries = appendTimeEntry(entries, 1_700_000_000_000+i, i*3+1)
		}
	}
	f.Add(entries, int64(77))
	f.Add(entries[:width], int64(0))
	f.Add(entries[:width*65], int64(1<<40))
	f.Add([]byte{}, int64(5))
	f.Add(entries[:width+1], int64(5))
	f.Add(make([]byte, 40*width), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, target int64) {
		disk := vfs.NewMemory(1)
		var x index
		x.open(fuzzFile(t, disk, "/data/index", data), width, int64(len(data)))
		e, found, err := x.floor(by, target)
		if errors.Is(err, errIndexCorrupt) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := -1
		for i := 0; i*width < len(data) && by.of(data[i*width:]) <= target; i++ {
			want = i
		}
		if found != (want >= 0) || found && !bytes.Equal(e[:width], data[want*width:(want+1)*width]) {
			t.Fatalf("floor %d: %v %x, want entry %d", target, found, e, want)
		}
		if err := x.truncate(by, target); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for kept*width < len(data) && by.of(data[kept*width:]) < target {
			kept++
		}
		if x.count() != kept {
			t.Fatalf("truncate %d: %d entries left, want %d", target, x.count(), kept)
		}
	})
}

func FuzzOffsetIndex(f *testing.F) { fuzzIndex(f, offsetEntryBytes, offsetColumn) }

func FuzzTimeIndex(f *testing.F) { fuzzIndex(f, timeEntryBytes, timestampColumn) }

// FuzzSegmentRecover opens arbitrary bytes as a segment after an unclean stop. Recovery keeps a prefix of the bytes that is
// whole batches with true checksums and ascending offsets; a second recovery cuts nothing; and every kept offset is read.
func FuzzSegmentRecover(f *testing.F) {
	var whole []byte
	for i := range int64(6) {
		options := record.BuilderOptions{BaseOffset: i * 2, LeaderEpoch: int32(i / 2), Codec: record.Codec(i % 5)}
		if i%2 == 1 {
			options.HasProducer, options.ProducerID, options.BaseSequence = true, 7, int32(i)
			options.Transactional = i == 3
		}
		b := record.NewBuilder(options)
		b.Append(1000+i, []byte("key"), []byte("value"))
		b.Append(1001+i, nil, bytes.Repeat([]byte{'x'}, 40))
		batch, err := b.Batch()
		if err != nil {
			f.Fatal(err)
		}
		whole = append(whole, batch...)
	}
	whole = record.AppendMarker(whole, 12, 2, record.Marker{ProducerID: 7, Type: record.Abort, Timestamp: 1})
	f.Add(whole, true)
	f.Add(whole[:len(whole)-5], false)
	f.Add(slices.Concat(whole, make([]byte, 100)), false)
	f.Add(slices.Concat(whole, whole), true)
	f.Add([]byte{0}, false)
	f.Fuzz(func(t *testing.T, data []byte, sums bool) {
		if data = bytes.Clone(data); sums { // as if the writer had been wrong, and not the disk
			for b, rest, err := record.Next(data); err == nil; b, rest, err = record.Next(rest) {
				binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
			}
		}
		disk := vfs.NewMemory(1)
		name := "/data/" + segmentName(0, logSuffix)
		_ = fuzzFile(t, disk, name, data).Close()
		o := Options{FS: disk, Dir: "/data", Topic: "fuzz", Config: testConfig()}
		l, recovery, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := vfs.ReadFile(disk, name, int64(len(data)))
		if err != nil || !bytes.HasPrefix(data, kept) || int64(len(kept)) != l.Size() || recovery.CutBytes != int64(len(data)-len(kept)) {
			t.Fatalf("kept %d of %d bytes, %+v, %v", len(kept), len(data), recovery, err)
		}
		end := int64(0)
		for rest := kept; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Next(rest); err != nil || b.CheckCRC() != nil || b.BaseOffset() < end {
				t.Fatalf("a bad batch was kept at offset %d: %v", b.BaseOffset(), err)
			}
			end = b.LastOffset() + 1
			slice, err := l.Read(b.LastOffset(), 1, l.EndOffset(), true)
			if err != nil || slice.Bytes() != int64(len(b)) {
				t.Fatalf("read %d: %d bytes, %v", b.LastOffset(), slice.Bytes(), err)
			}
			slice.Release()
		}
		if end != l.EndOffset() {
			t.Fatalf("end %d, want %d", l.EndOffset(), end)
		}
		if _, _, err := l.MaxTimestamp(end); err != nil && !damagedRecords(err) {
			t.Fatal(err)
		}
		l.abandon()
		if again, recovery, err := Open(o); err != nil || recovery.CutBytes > 0 || again.EndOffset() != end {
			t.Fatalf("second recovery: %+v, %v", recovery, err)
		}
	})
}

// damagedRecords tells whether a checksum that is true hides records that are not: only their reader can find out.
func damagedRecords(err error) bool {
	return errors.Is(err, record.ErrInvalid) || errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrTooLarge) || errors.Is(err, record.ErrCodec)
}

// FuzzMetaProperties decodes arbitrary text as meta.properties: what decodes is written and read back the same.
func FuzzMetaProperties(f *testing.F) {
	f.Add([]byte("#\n#Mon Nov 30 2026\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\ntidemark.format.version=1\n"))
	f.Add([]byte("version=1\n"))
	f.Add([]byte("node.id=99999999999\nversion=1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, err := decodeIdentity(text)
		if err != nil {
			if !errors.Is(err, ErrBadMeta) {
				t.Fatal(err)
			}
			return
		}
		if id.node < 0 {
			return // encode is for brokers, which have an id
		}
		again, err := decodeIdentity(id.encode(newClock().now))
		if err != nil || again != id {
			t.Fatalf("%+v becomes %+v, %v", id, again, err)
		}
	})
}
