package record_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// The files of testdata/kafka were written by Apache Kafka 4.4.0's own classes (MemoryRecordsBuilder and
// MemoryRecords.filterTo).
func golden(t testing.TB, name string) record.Batch {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "kafka", name+".batch"))
	if err != nil {
		t.Fatal(err)
	}
	b, rest, err := record.Next(raw)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%s: %v, %d bytes follow", name, err, len(rest))
	}
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenEntries are the records of most of the files.
func goldenEntries(base int64) []entry {
	var long strings.Builder
	for i := range 300 {
		long.WriteString("line " + string(rune('0'+i%7)) + "\n")
	}
	return []entry{
		{Offset: base, Timestamp: 1_700_000_000_000, Key: []byte("key-0"), Value: []byte("value 0")},
		{Offset: base + 1, Timestamp: 1_700_000_000_500, Value: []byte("no key"), Headers: []record.Header{
			{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("null")}, {Key: []byte{}, Value: []byte{}},
		}},
		{Offset: base + 2, Timestamp: 1_699_999_999_000, Key: []byte("tombstone")},
		{Offset: base + 3, Timestamp: 1_700_000_000_500, Key: []byte{}, Value: []byte(long.String())},
	}
}

func TestReadKafkasBatches(t *testing.T) {
	for _, codec := range codecs {
		b := golden(t, codec.String())
		if b.Codec() != codec {
			t.Errorf("%s: codec %s", codec, b.Codec())
		}
		assertEqual(t, entries(t, b), goldenEntries(0))
		if _, err := record.Validate(b, record.DefaultRules, now, nil); err != nil {
			t.Errorf("%s: %v", codec, err)
		}
		if codec == record.None {
			continue
		}
		large := golden(t, "large-"+codec.String())
		got := entries(t, large)
		if len(got) != 2000 || string(got[1999].Key) != "k49" || got[1999].Timestamp != 1_700_000_001_999 {
			t.Errorf("large-%s: %d records, the last %+v", codec, len(got), got[len(got)-1])
		}
		if _, err := record.Validate(large, record.DefaultRules, now, nil); err != nil {
			t.Errorf("large-%s: %v", codec, err)
		}
	}
}

func TestRebuildKafkasBatches(t *testing.T) {
	producer := record.BuilderOptions{BaseOffset: 1000, LeaderEpoch: 5, HasProducer: true, ProducerID: 4000, ProducerEpoch: 3}
	transactional, appendTime := producer, producer
	transactional.Transactional, transactional.BaseSequence = true, 2147483646
	appendTime.BaseSequence, appendTime.TimestampType, appendTime.AppendTime = 17, record.LogAppendTime, 1_700_000_005_000
	for name, options := range map[string]record.BuilderOptions{
		"none": {LeaderEpoch: -1}, "transactional": transactional, "logappendtime": appendTime,
	} {
		want := golden(t, name)
		if got := build(t, options, goldenEntries(options.BaseOffset)...); !bytes.Equal(got, want) {
			t.Errorf("%s\n got %x\nwant %x", name, got, []byte(want))
		}
	}
}

func TestRebuildKafkasMarkers(t *testing.T) {
	for name, m := range map[string]record.Marker{
		"commit": {ProducerID: 4000, ProducerEpoch: 3, Type: record.Commit, CoordinatorEpoch: 21, Timestamp: 1_700_000_000_000},
		"abort":  {ProducerID: 4001, ProducerEpoch: 0, Type: record.Abort, CoordinatorEpoch: 0, Timestamp: 1_700_000_000_001},
	} {
		b := golden(t, name)
		if got := record.AppendMarker(nil, b.BaseOffset(), 9, m); !bytes.Equal(got, b) {
			t.Errorf("%s\n got %x\nwant %x", name, got, []byte(b))
		}
		if got, found, err := b.ReadMarker(nil); got != m || !found || err != nil {
			t.Errorf("%s: %+v, %t, %v", name, got, found, err)
		}
	}
}

// TestFilterAsKafka proves that compaction leaves the same bytes as Kafka's (KIP-534 for the delete horizon).
func TestFilterAsKafka(t *testing.T) {
	const horizon = 1_700_000_009_000 + 86_400_000
	plain := build(t, record.BuilderOptions{BaseOffset: 100, LeaderEpoch: 7}, goldenEntries(100)...)
	transactional := build(t, record.BuilderOptions{
		BaseOffset: 1000, LeaderEpoch: 5, HasProducer: true, ProducerID: 4000, ProducerEpoch: 3, BaseSequence: 17, Transactional: true,
	}, goldenEntries(1000)...)
	not := func(offsets ...int64) func(*record.Record) bool {
		return func(r *record.Record) bool {
			for _, offset := range offsets {
				if r.Offset == offset {
					return false
				}
			}
			return true
		}
	}
	for _, tc := range []struct {
		name  string
		batch record.Batch
		o     record.FilterOptions
		want  record.Filtered
	}{
		{"compacted", plain, record.FilterOptions{Keep: not(100, 102)}, record.Filtered{Read: 4, Kept: 2, MaxTimestamp: 1_700_000_000_500, OffsetOfMaxTimestamp: 101}},
		{"tombstone", plain, record.FilterOptions{Keep: not(103)}, record.Filtered{Read: 4, Kept: 3, MaxTimestamp: 1_700_000_000_500, OffsetOfMaxTimestamp: 101}},
		{"tombstone-again", golden(t, "tombstone"), record.FilterOptions{Keep: not(100, 101)}, record.Filtered{Read: 3, Kept: 1, MaxTimestamp: 1_699_999_999_000, OffsetOfMaxTimestamp: 102}},
		{"empty", transactional, record.FilterOptions{Keep: not(1000, 1001, 1002, 1003)}, record.Filtered{Read: 4, MaxTimestamp: 1_700_000_000_500, OffsetOfMaxTimestamp: 1003}},
		{"commit-horizon", golden(t, "commit"), record.FilterOptions{SetDeleteHorizon: true}, record.Filtered{Read: 1, Kept: 1, MaxTimestamp: 1_700_000_000_000, OffsetOfMaxTimestamp: 55}},
		{"logappendtime-compacted", golden(t, "logappendtime"), record.FilterOptions{Keep: not(1000, 1002)}, record.Filtered{Read: 4, Kept: 2, MaxTimestamp: 1_700_000_005_000, OffsetOfMaxTimestamp: 1001}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.KeepEmpty, tc.o.DeleteHorizon = true, horizon
			got, result, err := record.NewFilterer(record.DefaultLimits).Filter(nil, tc.batch, tc.o)
			if err != nil || result != tc.want {
				t.Errorf("got %+v, %v; want %+v", result, err, tc.want)
			}
			if want := golden(t, tc.name); !bytes.Equal(got, want) {
				t.Errorf("\n got %x\nwant %x", got, []byte(want))
			}
		})
	}
}
