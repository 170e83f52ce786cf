package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime/metrics"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkAllocation fails if decode allocates more than a decoder of n bytes may. The runtime counts late what others in
// the process have allocated, so only an excess that comes again is one.
func checkAllocation(t *testing.T, n int, decode func()) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var took uint64
	for range 4 {
		metrics.Read(sample)
		before := sample[0].Value.Uint64()
		decode()
		metrics.Read(sample)
		if took = sample[0].Value.Uint64() - before; took <= uint64(ChargeFactor*n+allocationSlack) {
			return
		}
	}
	t.Fatalf("decoding %d bytes took %d", n, took)
}

// allocationSlack is what a decode may take beside ChargeFactor times its input: the request itself, and what the
// runtime allocates in whole spans.
const allocationSlack = 64 << 10

// FuzzRequest decodes arbitrary bytes as a request of every key and version. What Check lets through makes kmsg allocate
// no more than ChargeFactor times its size, and what kmsg then encodes again is walked by Check to its last byte.
func FuzzRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range apis {
		for version := apis[i].Min; version <= apis[i].Max; version++ {
			req := kmsg.RequestForKey(apis[i].Key)
			fill(r, reflect.ValueOf(req).Elem(), 0)
			req.SetVersion(version)
			f.Add(byte(apis[i].Key), byte(version), req.AppendTo(nil))
		}
	}
	f.Add(byte(3), byte(9), []byte{0xff, 0xff, 0xff, 0x7f, 1, 1, 1})           // a count beyond the bytes
	f.Add(byte(19), byte(2), bytes.Repeat([]byte{0, 0, 0, 4, 0, 0, 0, 0}, 64)) // counts within counts
	f.Add(byte(18), byte(3), append([]byte{1, 1, 200}, make([]byte, 300)...))  // many tagged fields
	f.Fuzz(func(t *testing.T, key, version byte, body []byte) {
		api := Lookup(int16(key))
		if api == nil || !api.Supports(int16(version)) {
			return
		}
		err := api.Check(int16(version), body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s v%d: %v is not ErrMalformed", api.Name, version, err)
			}
			return
		}
		var req kmsg.Request
		checkAllocation(t, len(body), func() {
			req = kmsg.RequestForKey(api.Key)
			req.SetVersion(int16(version))
			err = req.ReadFrom(body)
		})
		if err != nil {
			return
		}
		again := req.AppendTo(nil)
		w := walker{in: again, version: int16(version), flexible: api.IsFlexible(int16(version)), tags: len(again)}
		if err := w.object(api.fields); err != nil || len(w.in) != 0 {
			t.Fatalf("%s v%d: %v with %d bytes left of what kmsg encoded: %x", api.Name, version, err, len(w.in), again)
		}
	})
}

// FuzzProduceRequest compares our parser with kmsg: what ours takes, kmsg takes too and finds the same in; what kmsg
// encodes, ours takes.
func FuzzProduceRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for version := int16(3); version <= 13; version++ {
		f.Add(byte(version), produceBody(version, 2, 10))
		req := kmsg.NewPtrProduceRequest()
		fill(r, reflect.ValueOf(req).Elem(), 0)
		req.SetVersion(version)
		f.Add(byte(version), req.AppendTo(nil))
	}
	f.Add(byte(9), []byte{0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, version byte, body []byte) {
		if version < 3 || version > 13 {
			return
		}
		var ours Produce
		var err error
		checkAllocation(t, len(body), func() {
			ours = Produce{}
			err = ours.Parse(int16(version), body)
		})
		theirs := kmsg.NewPtrProduceRequest()
		theirs.SetVersion(int16(version))
		theirsErr := theirs.ReadFrom(body)
		if err == nil {
			if theirsErr != nil {
				t.Fatalf("v%d: kmsg refuses what was parsed: %v", version, theirsErr)
			}
			dropTags(theirs)
			if got, want := kmsgProduce(&ours, int16(version)).AppendTo(nil), theirs.AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("v%d:\ngot  %x\nwant %x", version, got, want)
			}
		}
		if theirsErr == nil {
			dropTags(theirs)
			if err := ours.Parse(int16(version), theirs.AppendTo(nil)); err != nil {
				t.Fatalf("v%d: what kmsg encodes is refused: %v", version, err)
			}
		}
	})
}

// dropTags forgets the tagged fields that nobody knows: our parser skips them.
func dropTags(req *kmsg.ProduceRequest) {
	req.UnknownTags = kmsg.Tags{}
	for i := range req.Topics {
		req.Topics[i].UnknownTags = kmsg.Tags{}
		for j := range req.Topics[i].Partitions {
			req.Topics[i].Partitions[j].UnknownTags = kmsg.Tags{}
		}
	}
}

// FuzzHeader splits arbitrary frames: no panic, nothing beyond the frame, and a body that ends where the frame does.
func FuzzHeader(f *testing.F) {
	for i := range apis {
		for _, version := range []int16{apis[i].Min, apis[i].Max} {
			req := kmsg.RequestForKey(apis[i].Key)
			req.SetVersion(version)
			frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 7)
			f.Add(frame[4:])
		}
	}
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		header, api, body, err := ParseHeader(frame)
		switch {
		case err != nil:
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
		case api != nil && api.Supports(header.Version):
			if len(body) > len(frame)-headerFixedBytes-2 || !bytes.HasSuffix(frame, body) {
				t.Fatalf("the body is %d of %d bytes", len(body), len(frame))
			}
			if len(header.ClientID) > len(frame) {
				t.Fatal("the client id is longer than the frame")
			}
		}
	})
}
