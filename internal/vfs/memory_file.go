package vfs

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

const (
	pageBytes   = 4096 // what a kernel writes back at once
	sectorBytes = 512  // what a disk writes whole

	// pendingBytesMax and pendingChangesMax bound what is kept apart of one file; beyond them the older half is durable.
	pendingBytesMax   = 8 << 20
	pendingChangesMax = 4096
)

// dataChange is one unsynced write or truncation of a file.
type dataChange struct {
	serial int64
	off    int64
	data   []byte // nil for a truncation to off
}

// applyTo carries the change out on a file's bytes.
func (c dataChange) applyTo(data []byte) []byte {
	if c.data == nil {
		return resize(data, c.off)
	}
	data = resize(data, max(int64(len(data)), c.off+int64(len(c.data))))
	copy(data[c.off:], c.data)
	return data
}

// resize cuts or extends with zeros, amortising growth.
func resize(data []byte, size int64) []byte {
	old := len(data)
	if size <= int64(old) {
		return data[:size]
	}
	data = slices.Grow(data, int(size)-old)[:size]
	clear(data[old:])
	return data
}

// changeDataLocked carries a change out and remembers it as unsynced.
func (m *Memory) changeDataLocked(node *inode, change dataChange) {
	change.serial = m.mu.serial
	m.touchLocked(node)
	before := len(node.data)
	node.data = change.applyTo(node.data)
	m.mu.used += int64(len(node.data) - before)
	node.pending = append(node.pending, change)
	node.pendingBytes += len(change.data)
	if node.pendingBytes > pendingBytesMax || len(node.pending) > pendingChangesMax {
		m.settleDataLocked(node, (len(node.pending)+1)/2)
	}
}

func (m *Memory) truncateLocked(node *inode, size int64) {
	m.changeDataLocked(node, dataChange{off: size})
}

// settleDataLocked makes the first n unsynced changes of a file durable.
func (m *Memory) settleDataLocked(node *inode, n int) {
	for _, change := range node.pending[:n] {
		node.durable = change.applyTo(node.durable)
		node.pendingBytes -= len(change.data)
		m.mu.durable = max(m.mu.durable, change.serial)
	}
	node.pending = slices.Delete(node.pending, 0, n)
}

// memoryFile is a File of a Memory. Its fields are guarded by the disk's lock.
type memoryFile struct {
	disk     *Memory
	node     *inode
	name     string
	writable bool
	closed   bool
}

// checkLocked fails if the file cannot be used.
func (f *memoryFile) checkLocked() error {
	switch {
	case f.disk.mu.crashed:
		return ErrCrashed
	case f.closed:
		return fs.ErrClosed
	}
	return nil
}

// changeLocked begins a change of the file.
func (f *memoryFile) changeLocked() error {
	if err := f.checkLocked(); err != nil {
		return err
	}
	if !f.writable {
		return syscall.EBADF
	}
	return f.disk.changeLocked()
}

// ReadAt implements [File].
func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.checkLocked()
	if err == nil && off < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, f.failLocked("read", err)
	}
	n := 0
	if off < int64(len(f.node.data)) {
		n = copy(p, f.node.data[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [File].
func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.WriteV([][]byte{p}, off)
	return int(n), err
}

// WriteV implements [File].
func (f *memoryFile) WriteV(bufs [][]byte, off int64) (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.changeLocked()
	if err == nil && off < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, f.failLocked("write", err)
	}
	data := slices.Concat(bufs...) // never aliases the caller's
	fits := int64(len(data))
	if free := f.disk.mu.capacity - f.disk.mu.used; f.disk.mu.capacity != 0 {
		growth := off + fits - int64(len(f.node.data))
		fits = max(fits-max(growth-max(free, 0), 0), 0)
	}
	if fits > 0 {
		f.disk.changeDataLocked(f.node, dataChange{off: off, data: data[:fits:fits]})
	}
	if fits < int64(len(data)) {
		return fits, f.failLocked("write", syscall.ENOSPC)
	}
	return fits, nil
}

// Truncate implements [File].
func (f *memoryFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.changeLocked()
	if err == nil && size < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return f.failLocked("truncate", err)
	}
	f.disk.truncateLocked(f.node, size)
	return nil
}

// Sync implements [File].
func (f *memoryFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.checkLocked()
	if err == nil && f.node.failed != nil {
		err = f.node.failed
	}
	if err == nil {
		if err = f.disk.syncLocked(); err != nil {
			f.node.failed = err
		}
	}
	if err != nil {
		return f.failLocked("sync", err)
	}
	f.disk.settleDataLocked(f.node, len(f.node.pending))
	f.disk.mu.committed = f.disk.mu.serial
	return nil
}

// Size implements [File].
func (f *memoryFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkLocked(); err != nil {
		return 0, f.failLocked("stat", err)
	}
	return int64(len(f.node.data)), nil
}

// Descriptor implements [File]: there is none.
func (f *memoryFile) Descriptor() (int, func(), error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkLocked(); err != nil {
		return 0, nil, f.failLocked("descriptor", err)
	}
	return 0, nil, ErrNoDescriptor
}

// Close implements [File].
func (f *memoryFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.closeLocked()
	return nil
}

func (f *memoryFile) closeLocked() {
	if f.closed {
		return
	}
	f.closed = true
	delete(f.node.handles, f)
	delete(f.disk.mu.open, f)
	if len(f.node.handles) == 0 {
		f.node.failed = nil
		if !f.node.linked {
			f.disk.mu.used -= int64(len(f.node.data))
		}
	}
}

// Name implements [File].
func (f *memoryFile) Name() string {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.name
}

func (f *memoryFile) failLocked(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}
