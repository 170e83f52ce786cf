package wire

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Size classes of a Pool: powers of two from 2 KiB to 16 MiB, which holds what clients send by default: a request of a
// batch of 1 MB for each of a dozen partitions. A bigger buffer is made for its user and left to the garbage collector.
const (
	classShiftMin = 11
	classShiftMax = 24
)

// trimInterval is how long a buffer may lie unused before its memory is given back.
const trimInterval = 30 * time.Second

// Pool hands out byte buffers from free lists by size class. The bytes kept on the lists are capped, and what nobody has
// needed for a while is dropped. It is safe for concurrent use.
type Pool struct {
	keepBytesMax int64
	poison       bool

	mu struct {
		sync.Mutex
		free      [classes][]*Buffer
		unused    [classes]int // the shortest that each list has been since the last trim
		keepBytes int64
		trimming  bool // a trim is due
	}
}

const classes = classShiftMax - classShiftMin + 1

// NewPool makes a pool that keeps at most keepBytesMax bytes of free buffers.
func NewPool(keepBytesMax int64) *Pool { return &Pool{keepBytesMax: keepBytesMax} }

// Poison makes the pool overwrite every buffer that comes back, so that a test sees a use after Release. Call it before
// the first Get.
func (p *Pool) Poison() { p.poison = true }

// poisonByte is what a released buffer is filled with: no record batch has a magic of 0xdb.
const poisonByte = 0xdb

// Buffer is a slice of bytes with a count of its users. The zero count belongs to the pool.
type Buffer struct {
	// Bytes is the content; its capacity is the size class. Users may reslice it within that capacity.
	Bytes []byte

	pool *Pool
	refs atomic.Int32
}

// Get hands out a buffer of n bytes with one user, the caller. Its content is arbitrary.
func (p *Pool) Get(n int) *Buffer {
	class := classOf(n)
	if class < 0 {
		b := &Buffer{Bytes: make([]byte, n), pool: p}
		b.refs.Store(1)
		return b
	}
	b := p.take(class)
	if b == nil {
		b = &Buffer{Bytes: make([]byte, 1<<(classShiftMin+class)), pool: p}
	}
	b.Bytes = b.Bytes[:n]
	b.refs.Store(1)
	return b
}

// SizeFor is the capacity that Get(n) will have: what to charge for it.
func SizeFor(n int) int {
	if class := classOf(n); class >= 0 {
		return 1 << (classShiftMin + class)
	}
	return n
}

// Retain adds a user, who must Release too.
func (b *Buffer) Retain() { b.refs.Add(1) }

// Release says that one user is done. After the last one the bytes belong to the pool: no slice of them may be kept.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("wire: a buffer was released more often than it was retained")
	}
	b.Bytes = b.Bytes[:cap(b.Bytes)]
	if b.pool.poison {
		for i := range b.Bytes {
			b.Bytes[i] = poisonByte
		}
	}
	b.pool.put(b)
}

// KeptBytes is the number of bytes on the free lists now.
func (p *Pool) KeptBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.keepBytes
}

func (p *Pool) take(class int) *Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.mu.free[class]
	if len(list) == 0 {
		return nil
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	p.mu.free[class] = list[:len(list)-1]
	p.mu.unused[class] = min(p.mu.unused[class], len(list)-1)
	p.mu.keepBytes -= int64(len(b.Bytes))
	return b
}

// trim drops, from each list, the buffers that were on it all the time since the last trim.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class, list := range p.mu.free {
		n := p.mu.unused[class]
		kept := copy(list, list[n:])
		clear(list[kept:])
		p.mu.free[class] = list[:kept]
		p.mu.unused[class] = kept
		p.mu.keepBytes -= int64(n) << (classShiftMin + class)
	}
	p.mu.trimming = false
	p.trimLaterLocked()
}

// trimLaterLocked arranges for the next trim, unless there is nothing to drop.
func (p *Pool) trimLaterLocked() {
	if p.mu.keepBytes > 0 && !p.mu.trimming {
		p.mu.trimming = true
		time.AfterFunc(trimInterval, p.trim)
	}
}

func (p *Pool) put(b *Buffer) {
	size := len(b.Bytes)
	class := classOf(size)
	if class < 0 || size != 1<<(classShiftMin+class) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.keepBytes+int64(size) <= p.keepBytesMax {
		p.mu.free[class] = append(p.mu.free[class], b)
		p.mu.keepBytes += int64(size)
		p.trimLaterLocked()
	}
}

// classOf is the index of the smallest class that holds n bytes, -1 if none does.
func classOf(n int) int {
	if n > 1<<classShiftMax {
		return -1
	}
	return max(bits.Len(uint(max(n, 1)-1))-classShiftMin, 0)
}
