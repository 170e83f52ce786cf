package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPoolReusesBySizeClass(t *testing.T) {
	p := NewPool(16 << 10)
	p.Poison()
	b := p.Get(5000)
	if len(b.Bytes) != 5000 || cap(b.Bytes) != SizeFor(5000) || SizeFor(5000) != 8192 {
		t.Fatalf("got %d of %d bytes", len(b.Bytes), cap(b.Bytes))
	}
	kept := b.Bytes[:1]
	b.Retain()
	b.Release()
	if p.KeptBytes() != 0 {
		t.Fatal("a buffer with a user went back")
	}
	b.Release()
	if p.KeptBytes() != 8192 || kept[0] != poisonByte {
		t.Fatalf("after the last release %d bytes are kept, first byte %#x", p.KeptBytes(), kept[0])
	}
	if again := p.Get(4097); again != b {
		t.Error("the free buffer was not handed out again")
	}
}

func TestPoolKeepsNoMoreThanItsCap(t *testing.T) {
	p := NewPool(8 << 10)
	var all []*Buffer
	for range 10 {
		all = append(all, p.Get(4096))
	}
	all = append(all, p.Get(1<<classShiftMax+1))
	for _, b := range all {
		b.Release()
	}
	if got := p.KeptBytes(); got != 8<<10 {
		t.Errorf("%d bytes are kept, want the cap of %d", got, 8<<10)
	}
}

// A burst leaves buffers behind that nobody needs again: they go, those in use stay.
func TestPoolDropsWhatIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1 << 20)
		var burst []*Buffer
		for range 4 {
			burst = append(burst, p.Get(4096))
		}
		for _, b := range burst {
			b.Release()
		}
		for range 3 {
			time.Sleep(trimInterval / 2)
			p.Get(4096).Release()
			time.Sleep(trimInterval / 2)
			synctest.Wait()
		}
		if got := p.KeptBytes(); got != 4096 {
			t.Errorf("%d bytes are kept, want the one buffer that is in use", got)
		}
		time.Sleep(3 * trimInterval)
		synctest.Wait()
		if got := p.KeptBytes(); got != 0 || p.mu.trimming {
			t.Errorf("an unused pool keeps %d bytes, a trim is due: %t", got, p.mu.trimming)
		}
	})
}

func TestPoolBufferReleasedTwice(t *testing.T) {
	b := NewPool(0).Get(1)
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("a second release went unseen")
		}
	}()
	b.Release()
}
