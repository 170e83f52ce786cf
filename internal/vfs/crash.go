package vfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashMode says which unsynced changes a [Memory] may lose at a power cut, and in which combinations. Synced ones are
// kept by all modes.
type CrashMode int

const (
	// Prefix is the kind disk: all changes up to some moment after the last sync of anything survive, and none later.
	Prefix CrashMode = iota

	// Ext4 resembles ext4 with data=ordered: changes of names survive up to some moment, at least up to the last sync of
	// anything (there is one journal); of each file the changes up to a moment of its own, the last one perhaps cut
	// at a page.
	Ext4

	// Adversarial allows what POSIX allows: each unsynced creation, rename and removal is kept or undone by itself (a
	// rename as a whole; what rests on an undone one is undone too), each unsynced page of a file has any content
	// that it had since the sync, each sector of a torn page by itself, and the size is any that it was: pages that
	// were never written read as zeros.
	Adversarial
)

// CrashModes lists all modes, for tests that try each.
var CrashModes = [...]CrashMode{Prefix, Ext4, Adversarial}

// String implements [fmt.Stringer].
func (c CrashMode) String() string {
	switch c {
	case Prefix:
		return "prefix"
	case Ext4:
		return "ext4"
	case Adversarial:
		return "adversarial"
	}
	return fmt.Sprintf("CrashMode(%d)", int(c))
}

// Crash cuts the power, if it is still on, and returns a new disk with what one such cut leaves, all of it durable, with
// no capacity limit and no planned failure. The old disk answers nothing but [ErrCrashed] from then on. Calling it
// again draws another legal outcome of the same cut.
func (m *Memory) Crash(mode CrashMode) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.crashed = true
	after := NewMemory(m.mu.random.Uint64())
	after.mu.clock = m.mu.clock
	c := crash{random: m.mu.random, mode: mode, until: m.mu.serial, dirs: make(map[*inode]map[string]*inode)}
	least := max(m.mu.durable, m.mu.committed)
	if mode != Adversarial && m.mu.serial > least {
		c.until = least + c.random.Int64N(m.mu.serial-least+1)
	}
	c.changeNames(m.mu.names)
	after.mu.used = c.copyInto(after.mu.root, m.mu.root)
	return after
}

// crash is one power cut being drawn.
type crash struct {
	random *rand.Rand
	mode   CrashMode
	until  int64                        // serial of the last surviving change of names (Ext4), or of anything (Prefix)
	dirs   map[*inode]map[string]*inode // what the directories hold afterwards, where that is not stable
}

// entries returns what a directory holds after the crash, for changing it.
func (c *crash) entries(dir *inode) map[string]*inode {
	if c.dirs[dir] == nil {
		c.dirs[dir] = maps.Clone(dir.stable)
	}
	return c.dirs[dir]
}

// changeNames applies the surviving ones of the unsynced changes of names.
func (c *crash) changeNames(changes []nameChange) {
	undone := make(map[entryKey]bool) // entries of which a change is lost: all later ones are lost too
	chance := c.random.IntN(5)        // of losing one, in quarters: all kept, all lost, or a mixture
	for _, change := range changes {
		lost := change.serial > c.until
		if c.mode == Adversarial {
			lost = c.random.IntN(4) < chance
		}
		if lost || undone[change.from] || undone[change.to] {
			for _, key := range [...]entryKey{change.from, change.to} {
				if key.dir != nil {
					undone[key] = true
				}
			}
			continue
		}
		if change.from.dir != nil {
			delete(c.entries(change.from.dir), change.from.name)
		}
		if change.to.dir != nil {
			c.entries(change.to.dir)[change.to.name] = change.node
		}
	}
}

// copyInto fills a directory of the new disk and returns the bytes of its files. It goes by sorted names, so that a seed
// always draws the same.
func (c *crash) copyInto(after, before *inode) int64 {
	var bytes int64
	entries := c.entries(before)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		node := entries[name]
		var copied *inode
		if node.isDir() {
			copied = newDirectory()
			bytes += c.copyInto(copied, node)
		} else {
			data := c.contents(node)
			copied = &inode{data: data, durable: slices.Clone(data), modified: node.modified}
			bytes += int64(len(data))
		}
		copied.linked = true
		after.entries[name], after.stable[name] = copied, copied
	}
	return bytes
}

// contents draws what is left of a file.
func (c *crash) contents(node *inode) []byte {
	data := slices.Clone(node.durable)
	switch c.mode {
	case Prefix:
		for _, change := range node.pending {
			if change.serial <= c.until {
				data = change.applyTo(data)
			}
		}
	case Ext4:
		kept := c.random.IntN(len(node.pending) + 1)
		for _, change := range node.pending[:kept] {
			data = change.applyTo(data)
		}
		if kept < len(node.pending) {
			data = c.cutAtPage(node.pending[kept]).applyTo(data)
		}
	case Adversarial:
		data = c.mixPages(data, node.pending)
	}
	return data
}

// cutAtPage shortens a write to some of its pages, perhaps none; a truncation is kept.
func (c *crash) cutAtPage(change dataChange) dataChange {
	end := change.off + int64(len(change.data))
	pages := end/pageBytes - change.off/pageBytes // page boundaries inside
	if len(change.data) == 0 || pages == 0 {
		return dataChange{off: change.off, data: change.data}
	}
	boundary := (change.off/pageBytes + c.random.Int64N(pages+1)) * pageBytes
	return dataChange{off: change.off, data: change.data[:max(boundary-change.off, 0)]}
}

// mixPages draws the content of each page, and the size, from all that they were since the last sync, each by itself.
func (c *crash) mixPages(durable []byte, changes []dataChange) []byte {
	size := int64(len(durable))
	drawn := make(map[int64]*page)
	data := slices.Clone(durable)
	for i, change := range changes {
		first, end := change.off, change.off+int64(len(change.data))
		if change.data == nil {
			end = int64(len(data))
		}
		for number := first / pageBytes; number*pageBytes < end; number++ {
			if drawn[number] == nil {
				drawn[number] = &page{torn: c.random.IntN(4) == 0}
				drawn[number].take(data, number, 0, pageBytes)
			}
		}
		data = change.applyTo(data)
		if c.random.IntN(i+2) == 0 { // so that in the end each size is as likely as any other
			size = int64(len(data))
		}
		for number := first / pageBytes; number*pageBytes < end; number++ {
			c.redraw(drawn[number], data, number)
		}
	}
	if c.random.IntN(2) == 0 {
		size = int64(len(data)) // the pages are what most often differs, the size the least
	}
	mixed := resize(durable, size)
	for number, page := range drawn {
		if start := number * pageBytes; start < size {
			copy(mixed[start:], page.bytes[:])
		}
	}
	return mixed
}

// page is the drawn content of one page with unsynced changes.
type page struct {
	bytes    [pageBytes]byte
	versions int // seen so far after the durable one
	torn     bool
}

// redraw replaces the drawn content by the present one so that every version is as likely as any other.
func (c *crash) redraw(p *page, data []byte, number int64) {
	p.versions++
	if !p.torn {
		if c.random.IntN(p.versions+1) == 0 {
			p.take(data, number, 0, pageBytes)
		}
		return
	}
	for at := 0; at < pageBytes; at += sectorBytes {
		if c.random.IntN(p.versions+1) == 0 {
			p.take(data, number, at, at+sectorBytes)
		}
	}
}

// take copies a part of the page from the file; what is beyond the end is zero.
func (p *page) take(data []byte, number int64, from, to int) {
	clear(p.bytes[from:to])
	start := number*pageBytes + int64(from)
	if start < int64(len(data)) {
		copy(p.bytes[from:to], data[start:])
	}
}
