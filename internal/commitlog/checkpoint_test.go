package commitlog

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

func TestOffsetCheckpoint(t *testing.T) {
	offsets := map[PartitionName]int64{{"orders", 10}: 7, {"orders", 2}: 5, {"a-b_c.d", 0}: 1 << 40}
	text := encodeOffsets(offsets)
	if want := "0\n3\na-b_c.d 0 1099511627776\norders 2 5\norders 10 7\n"; string(text) != want {
		t.Errorf("wrote %q, want %q", text, want)
	}
	if got, err := decodeOffsets(text); err != nil || !maps.Equal(got, offsets) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, text := range []string{
		"", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0 1\nb 0 1\n", "0\n1\na 0\n", "0\n1\na 0 1 2\n", "0\n1\na -1 1\n",
		"0\n1\na 0 -1\n", "0\n1\na 0 x\n", "0\n2\na 0 1\na 0 2\n", "0\n1\na 0 9999999999999999999\n", "0\n1000000000\n",
	} {
		if got, err := decodeOffsets([]byte(text)); !errors.Is(err, ErrBadCheckpoint) {
			t.Errorf("%q: %v, %v; want ErrBadCheckpoint", text, got, err)
		}
	}
}

func TestPartitionMetadata(t *testing.T) {
	id := meta.TopicID{1, 2, 3, 255}
	text := encodePartitionMetadata(id)
	if want := "version: 0\ntopic_id: AQID_wAAAAAAAAAAAAAAAA"; string(text) != want {
		t.Errorf("wrote %q, want %q", text, want)
	}
	for _, text := range [][]byte{text, append(text, '\n'), bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))} {
		if got, err := decodePartitionMetadata(text); err != nil || got != id {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "version: 0", "version: 1\ntopic_id: AQID_wAAAAAAAAAAAAAAAA", "version: 0\ntopic: AQID_wAAAAAAAAAAAAAAAA",
		"version: 0\ntopic_id: short", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "topic_id: x\nversion: 0",
	} {
		if got, err := decodePartitionMetadata([]byte(text)); !errors.Is(err, ErrBadPartitionMetadata) {
			t.Errorf("%q: %v, %v; want ErrBadPartitionMetadata", text, got, err)
		}
	}
}

// Whatever decodes survives a round trip.
func FuzzOffsetCheckpoint(f *testing.F) {
	f.Add([]byte("0\n2\norders 2 5\norders 10 7\n"))
	f.Add([]byte("0\n1\na 0 x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		offsets, err := decodeOffsets(text)
		if err != nil {
			if !errors.Is(err, ErrBadCheckpoint) {
				t.Fatalf("error %v is not ErrBadCheckpoint", err)
			}
			return
		}
		if again, err := decodeOffsets(encodeOffsets(offsets)); err != nil || !maps.Equal(again, offsets) {
			t.Fatalf("%v became %v, %v", offsets, again, err)
		}
	})
}

// Whatever decodes is an id that survives a round trip.
func FuzzPartitionMetadata(f *testing.F) {
	f.Add([]byte("version: 0\ntopic_id: AQID_wAAAAAAAAAAAAAAAA"))
	f.Add([]byte("version: 1\ntopic_id: x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, err := decodePartitionMetadata(text)
		if err != nil {
			if !errors.Is(err, ErrBadPartitionMetadata) {
				t.Fatalf("error %v is not ErrBadPartitionMetadata", err)
			}
			return
		}
		if again, err := decodePartitionMetadata(encodePartitionMetadata(id)); err != nil || again != id {
			t.Fatalf("%v became %v, %v", id, again, err)
		}
	})
}
