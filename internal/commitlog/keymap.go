package commitlog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"
)

// keySlotBytes is what one key costs in a keyMap.
const keySlotBytes = 24

// keySlotsMin is how many slots a keyMap starts with.
const keySlotsMin = 1 << 10

// keyMap tells for each key of the dirty part of a log the last offset at which it was seen. Its memory is bounded: when it
// is full, the part of the log that it covers ends there, and the next compaction goes on.
//
// A key is known by 128 bits of SHA-256 over a secret and the key. Two keys with one hash would make compaction drop a
// record that nothing supersedes. By chance that takes some 2^64 keys in one pass; because the secret is drawn for each
// keyMap, nobody can prepare such keys either, as they could for an unkeyed MD5.
type keyMap struct {
	slots    []keySlot // open addressing; their number is no power of two
	used     int
	slotsMax int
	hash     hash.Hash
	secret   [16]byte
	sum      [sha256.Size]byte
}

// keySlot is free when next is zero.
type keySlot struct {
	high, low uint64
	next      int64 // the offset and one
}

// newKeyMap makes a map that takes at most bytesMax bytes, and never fewer than its first slots.
func newKeyMap(bytesMax int64) *keyMap {
	m := &keyMap{slotsMax: int(max(bytesMax/keySlotBytes, keySlotsMin)), hash: sha256.New()}
	m.clear()
	return m
}

// clear forgets all keys, and gives back the memory of a large map.
func (m *keyMap) clear() {
	_, _ = rand.Read(m.secret[:]) // never fails
	if len(m.slots) > keySlotsMin || m.slots == nil {
		m.slots = make([]keySlot, keySlotsMin)
	} else {
		clear(m.slots)
	}
	m.used = 0
}

// put notes that key was seen at offset, which is above all earlier ones. It returns false, and changes nothing, when the
// key is new and the map is full.
func (m *keyMap) put(key []byte, offset int64) bool {
	high, low := m.digest(key)
	slot := m.find(high, low)
	if slot.next == 0 {
		if m.used >= len(m.slots)/8*7 {
			if !m.grow() {
				return false
			}
			slot = m.find(high, low)
		}
		slot.high, slot.low = high, low
		m.used++
	}
	slot.next = offset + 1
	return true
}

// last is the last offset at which key was seen, or −1.
func (m *keyMap) last(key []byte) int64 {
	high, low := m.digest(key)
	return m.find(high, low).next - 1
}

func (m *keyMap) digest(key []byte) (high, low uint64) {
	m.hash.Reset()
	m.hash.Write(m.secret[:])
	m.hash.Write(key)
	sum := m.hash.Sum(m.sum[:0])
	return binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])
}

// find is the slot of a hash, or the free one that it would take. There is always a free one.
func (m *keyMap) find(high, low uint64) *keySlot {
	at, _ := bits.Mul64(high, uint64(len(m.slots)))
	for i := int(at); ; i++ {
		if i == len(m.slots) {
			i = 0
		}
		if slot := &m.slots[i]; slot.next == 0 || slot.high == high && slot.low == low {
			return slot
		}
	}
}

// grow makes room, unless the old and the new slots together would exceed the bound.
func (m *keyMap) grow() bool {
	before := m.slots
	room := m.slotsMax - len(before)
	size := 2 * len(before)
	if 3*size > m.slotsMax {
		size = room // the next doubling would not fit: take all that there is
	}
	if size <= len(before) {
		return false
	}
	m.slots = make([]keySlot, size)
	for i := range before {
		if before[i].next != 0 {
			*m.find(before[i].high, before[i].low) = before[i]
		}
	}
	return true
}
