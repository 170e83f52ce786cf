package record

import (
	"bytes"
	"io"
	"testing"
)

// FuzzSkim: the two fast ways to walk a record agree with the plain one, on whether it is sound and on its fields.
func FuzzSkim(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 0})
	f.Add([]byte{0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f, 2, 2, 'k', 2, 'v', 4, 2, 'h', 1, 0, 0})
	f.Add([]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0})
	f.Add(appendRecord(nil, -5, 1<<30, []byte("key"), bytes.Repeat([]byte("v"), 300), 1, []byte{0, 1})[2:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		want := r.body(b)
		fast, ok := skim(b)
		if ok != (want == nil) {
			t.Fatalf("skim %t, body %v", ok, want)
		}
		if len(b) < recordBytesMin-1 { // skimRecord refuses it before
			return
		}
		s := stream{reader: io.MultiReader(bytes.NewReader(b), bytes.NewReader([]byte{9, 9, 9})), allowance: 1 << 30, window: make([]byte, 16)}
		slow, err := s.skimLarge(int32(len(b)))
		if (err == nil) != (want == nil) {
			t.Fatalf("skimLarge %v, body %v", err, want)
		}
		if want == nil {
			if f := (fields{r.timeDelta, int32(r.Offset), r.Key != nil}); fast != f || slow != f {
				t.Fatalf("body %+v, skim %+v, skimLarge %+v", f, fast, slow)
			}
		}
	})
}
