package commitlog

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// TestBatchScanReadsEveryBatch whole, whatever its size and wherever the scan starts; with a file that ends too early it
// says so.
func TestBatchScanReadsEveryBatch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var file []byte
	var starts []int64
	for _, size := range []int{
		1, 100, 4000, 16 << 10, batchKeepBytes, batchScanBytes, 1, batchScanBytes + batchKeepBytes, 3 * batchScanBytes, 100, 70 << 10,
		70 << 10, 200 << 10, 300 << 10, 40,
	} {
		for range 3 {
			starts = append(starts, int64(len(file)))
			value := make([]byte, size+random.IntN(50))
			for i := range value {
				value[i] = byte(random.Uint32())
			}
			file = append(file, makeBatch(t, record.BuilderOptions{}, message{1, "", string(value)})...)
		}
	}
	for i, start := range starts {
		scan := newBatchScan(bytes.NewReader(file), start, int64(len(file)))
		for _, want := range starts[i:] {
			b, err := scan.next()
			if err != nil || b.position != want || !bytes.Equal(b.Batch, file[want:b.after()]) || b.CheckCRC() != nil {
				t.Fatalf("scan from %d: batch at %d, want %d: %v", start, b.position, want, err)
			}
			if _, found := slices.BinarySearch(starts, b.after()); !found && b.after() != int64(len(file)) {
				t.Fatalf("scan from %d: batch at %d ends at %d", start, want, b.after())
			}
		}
		if _, err := scan.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("scan from %d ends with %v", start, err)
		}
		scan.close()
	}
	scan := newBatchScan(bytes.NewReader(file[:len(file)-1]), starts[len(starts)-1], int64(len(file)))
	defer scan.close()
	if _, err := scan.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is shorter than it should be: %v", err)
	}
}
