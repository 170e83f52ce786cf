package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestParseHeader splits what kmsg frames, for every key at every version, with and without a client id.
func TestParseHeader(t *testing.T) {
	for i := range apis {
		api := &apis[i]
		for version := api.Min; version <= api.Max; version++ {
			for _, client := range []string{"", "client"} {
				req := kmsg.RequestForKey(api.Key)
				req.SetVersion(version)
				var options []kmsg.RequestFormatterOpt
				if client != "" {
					options = append(options, kmsg.FormatterClientID(client))
				}
				frame := kmsg.NewRequestFormatter(options...).AppendRequest(nil, req, 7)[4:]
				header, found, body, err := ParseHeader(frame)
				if err != nil || found != api || string(header.ClientID) != client || header.CorrelationID != 7 || header.Version != version {
					t.Fatalf("%s v%d: %+v, %v", api.Name, version, header, err)
				}
				if !bytes.Equal(body, req.AppendTo(nil)) {
					t.Errorf("%s v%d: body %x", api.Name, version, body)
				}
			}
		}
	}
}

// TestParseHeaderOfUnknowns returns what there is to refuse by.
func TestParseHeaderOfUnknowns(t *testing.T) {
	for _, frame := range [][]byte{{0x27, 0x0f, 0, 0, 0, 0, 0, 1}, {0xff, 0xff, 0, 0, 0, 0, 0, 1}, {0, 18, 0, 99, 0, 0, 0, 1}} {
		if header, _, body, err := ParseHeader(frame); err != nil || body != nil || header.CorrelationID != 1 {
			t.Errorf("%x: %+v, %v, %v", frame, header, body, err)
		}
	}
	if _, _, _, err := ParseHeader(make([]byte, 7)); !errors.Is(err, ErrMalformed) {
		t.Errorf("seven bytes: %v", err)
	}
}

// TestCheckRefuses names what no request may hold (reliability §4).
func TestCheckRefuses(t *testing.T) {
	tags := func(n int) []byte {
		body := []byte{1, 1}
		body = append(body, byte(n)|0x80, byte(n>>7))
		for tag := range n {
			body = append(body, byte(tag)|0x80, byte(tag>>7), 0)
		}
		return body
	}
	cases := []struct {
		name         string
		key, version int16
		body         []byte
		good         bool
	}{
		{"a count of 2^31-1", 3, 1, []byte{0x7f, 0xff, 0xff, 0xff}, false},
		{"a count of -2", 3, 1, []byte{0xff, 0xff, 0xff, 0xfe}, false},
		{"a null array", 3, 1, []byte{0xff, 0xff, 0xff, 0xff}, true},
		{"a null array that may not be", 3, 0, []byte{0xff, 0xff, 0xff, 0xff}, false},
		{"a compact null that may not be", 19, 5, []byte{0, 0, 0, 0, 0, 0, 0}, false},
		{"a count that its elements cannot fill", 2, 1, []byte{0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 't', 0, 0, 0, 0}, false},
		{"a negative string", 10, 0, []byte{0x80, 0}, false},
		{"a string beyond the end", 10, 0, []byte{0, 5, 'a'}, false},
		{"a varint of six bytes", 60, 0, []byte{1, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, false},
		{"a varint above 32 bits", 60, 0, []byte{1, 0xff, 0xff, 0xff, 0xff, 0x1f}, false},
		{"tags that do not rise", 60, 0, []byte{1, 2, 5, 0, 5, 0}, false},
		{"tags that rise", 60, 0, []byte{1, 2, 5, 0, 6, 1, 'x'}, true},
		{"a tag beyond the end", 60, 0, []byte{1, 1, 5, 9}, false},
		{"64 tags", 18, 3, tags(64), true},
		{"300 tags", 18, 3, tags(300), false},
		{"bytes after the end", 60, 0, []byte{1, 0, 'm', 'o', 'r', 'e'}, true},
		{"nothing", 60, 0, nil, false},
	}
	for _, c := range cases {
		err := Lookup(c.key).Check(c.version, c.body)
		if (err == nil) != c.good || (err != nil && !errors.Is(err, ErrMalformed)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestUvarint agrees with kmsg's writer at the edges.
func TestUvarint(t *testing.T) {
	for _, v := range []uint32{0, 1, 127, 128, 16383, 16384, 1 << 21, 1 << 28, math.MaxUint32} {
		var h FetchHeader
		h.uvarint(v)
		if got, n := uvarint(h.Bytes); got != v || n != len(h.Bytes) {
			t.Errorf("%d is read back as %d in %d bytes", v, got, n)
		}
	}
}

// TestChargeCoversTheDensestRequests decodes requests whose arrays hold many elements of the least size, one array at a
// time: even they take no more than ChargeFactor times their bytes.
func TestChargeCoversTheDensestRequests(t *testing.T) {
	const elements = 20_000
	for i := range apis {
		api := &apis[i]
		for version := api.Min; version <= api.Max; version++ {
			for _, path := range arraysOf(reflect.TypeOf(kmsg.RequestForKey(api.Key)).Elem(), nil) {
				req := kmsg.RequestForKey(api.Key)
				v := reflect.ValueOf(req).Elem()
				for depth, field := range path {
					n := 1
					if depth == len(path)-1 {
						n = elements
					}
					list := reflect.MakeSlice(v.Field(field).Type(), n, n)
					v.Field(field).Set(list)
					v = list.Index(0)
				}
				req.SetVersion(version)
				body := req.AppendTo(nil)
				if len(body) < elements {
					continue // this version does not carry the array
				}
				decoded := kmsg.RequestForKey(api.Key)
				decoded.SetVersion(version)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := decoded.ReadFrom(body)
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > uint64(measuredFactor*len(body)) {
					t.Errorf("%s v%d, array %v: %d bytes took %d, %v", api.Name, version, path, len(body), took, err)
				}
			}
		}
	}
}

// arraysOf finds the arrays of a kmsg struct, each as the field numbers on the way to it.
func arraysOf(s reflect.Type, above []int) [][]int {
	var paths [][]int
	for i := range s.NumField() {
		f := s.Field(i).Type
		if f.Kind() != reflect.Slice || f.Elem().Kind() == reflect.Uint8 {
			continue
		}
		path := append(slices.Clone(above), i)
		paths = append(paths, path)
		if f.Elem().Kind() == reflect.Struct {
			paths = append(paths, arraysOf(f.Elem(), path)...)
		}
	}
	return paths
}
