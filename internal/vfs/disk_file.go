package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noDescriptor is the value of pins while a file has no descriptor.
const noDescriptor = -1

// diskFile is a File of a Disk.
type diskFile struct {
	disk     *Disk
	name     string // guarded by disk.mu, or by being busy
	writable bool
	fd       int          // valid while pins >= 0
	slot     int          // place in the ring or -1; guarded by disk.mu
	pins     atomic.Int32 // users of the descriptor, or noDescriptor
	used     atomic.Bool  // since the hand of the ring last passed
	dirty    atomic.Bool  // written since the last Sync
	closed   atomic.Bool
	failed   atomic.Pointer[error] // the first error of a sync; kept, see File.Sync
}

// pin makes sure that there is a descriptor and that it stays until unpin.
func (f *diskFile) pin(op string) error {
	if f.closed.Load() {
		return f.fail(op, fs.ErrClosed)
	}
	if !f.used.Load() {
		f.used.Store(true)
	}
	if f.pinOpen() {
		return nil
	}
	f.disk.hold(f)
	defer f.disk.release(f)
	if f.pinOpen() {
		return nil
	}
	return f.openBusy(0)
}

// pinOpen pins the descriptor if there is one.
func (f *diskFile) pinOpen() bool {
	for {
		pins := f.pins.Load()
		if pins < 0 {
			return false
		}
		if f.pins.CompareAndSwap(pins, pins+1) {
			return true
		}
	}
}

// openBusy opens the descriptor and pins it. The caller holds f.
func (f *diskFile) openBusy(flag int) error {
	if f.closed.Load() {
		return f.fail("open", fs.ErrClosed)
	}
	mode := unix.O_RDONLY
	if f.writable {
		mode = unix.O_RDWR
	}
	mode |= flag&(os.O_CREATE|os.O_EXCL|os.O_TRUNC) | unix.O_CLOEXEC
	f.disk.makeRoom(false)
	fd, err := retryInt(func() (int, error) { return unix.Open(f.name, mode, 0o644) })
	for errors.Is(err, unix.EMFILE) && f.disk.makeRoom(true) {
		fd, err = retryInt(func() (int, error) { return unix.Open(f.name, mode, 0o644) })
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: f.name, Err: err}
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.open++
	d.enterRingLocked(f)
	f.fd = fd
	f.used.Store(true)
	f.pins.Store(1)
	return nil
}

// unpin ends the use of the descriptor. The last user closes it if the file was closed meanwhile.
func (f *diskFile) unpin() {
	if f.pins.Add(-1) == 0 && f.closed.Load() {
		_ = f.closeIdle() // nobody is left to hear of it; what matters was synced before Close
	}
}

// closeIdle closes the descriptor if there is one that nobody uses.
func (f *diskFile) closeIdle() error {
	d := f.disk
	d.mu.Lock()
	fd, ok := d.detachLocked(f)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) { // after EINTR the descriptor is gone too
		return f.fail("close", err)
	}
	return nil
}

// closeEvicted closes a descriptor taken from the ring and keeps an error for the next Sync.
func (f *diskFile) closeEvicted(fd int) {
	var err error
	if syncBeforeEviction && f.dirty.Load() {
		err = retry(func() error { return dataSync(fd) })
	}
	if closeErr := unix.Close(fd); err == nil && !errors.Is(closeErr, unix.EINTR) {
		err = closeErr
	}
	if err != nil {
		f.failed.CompareAndSwap(nil, &err)
	}
}

// ReadAt implements [File].
func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.disk.reads <- struct{}{}
	defer func() { <-f.disk.reads }()
	if err := f.pin("read"); err != nil {
		return 0, err
	}
	defer f.unpin()
	read := 0
	for read < len(p) {
		n, err := retryInt(func() (int, error) { return unix.Pread(f.fd, p[read:], off+int64(read)) })
		if err != nil {
			return read, f.fail("read", err)
		}
		if n == 0 {
			return read, io.EOF
		}
		read += n
	}
	return read, nil
}

// WriteAt implements [File].
func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.pinWrite("write"); err != nil {
		return 0, err
	}
	defer f.unpin()
	n, err := pwriteAll(f.fd, p, off)
	if err != nil {
		return n, f.fail("write", err)
	}
	return n, nil
}

// WriteV implements [File].
func (f *diskFile) WriteV(bufs [][]byte, off int64) (int64, error) {
	if err := f.pinWrite("write"); err != nil {
		return 0, err
	}
	defer f.unpin()
	n, err := pwritevAll(f.fd, bufs, off)
	if err != nil {
		return n, f.fail("write", err)
	}
	return n, nil
}

// Truncate implements [File].
func (f *diskFile) Truncate(size int64) error {
	if err := f.pinWrite("truncate"); err != nil {
		return err
	}
	defer f.unpin()
	if err := retry(func() error { return unix.Ftruncate(f.fd, size) }); err != nil {
		return f.fail("truncate", err)
	}
	return nil
}

// Sync implements [File].
func (f *diskFile) Sync() error {
	if err := f.pin("sync"); err != nil {
		return err
	}
	defer f.unpin()
	if failed := f.failed.Load(); failed != nil {
		return f.fail("sync", *failed)
	}
	f.dirty.Store(false) // before the sync: a write beside it must leave the mark
	if err := retry(func() error { return dataSync(f.fd) }); err != nil {
		f.failed.CompareAndSwap(nil, &err)
		return f.fail("sync", err)
	}
	return nil
}

// Size implements [File].
func (f *diskFile) Size() (int64, error) {
	if err := f.pin("stat"); err != nil {
		return 0, err
	}
	defer f.unpin()
	var stat unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &stat) }); err != nil {
		return 0, f.fail("stat", err)
	}
	return stat.Size, nil
}

// Descriptor implements [File].
func (f *diskFile) Descriptor() (int, func(), error) {
	if err := f.pin("descriptor"); err != nil {
		return 0, nil, err
	}
	return f.fd, f.unpin, nil
}

// Close implements [File].
func (f *diskFile) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	d := f.disk
	d.mu.Lock()
	d.forgetLocked(f)
	d.mu.Unlock()
	return f.closeIdle()
}

// Name implements [File].
func (f *diskFile) Name() string {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.name
}

// pinWrite pins for a change of the file.
func (f *diskFile) pinWrite(op string) error {
	if !f.writable {
		return f.fail(op, unix.EBADF)
	}
	if err := f.pin(op); err != nil {
		return err
	}
	f.dirty.Store(true)
	return nil
}

func (f *diskFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}

// pwriteAll writes all of p at off and returns how much it wrote.
func pwriteAll(fd int, p []byte, off int64) (int, error) {
	written := 0
	for written < len(p) {
		n, err := retryInt(func() (int, error) { return unix.Pwrite(fd, p[written:], off+int64(written)) })
		if err != nil {
			return written, err
		}
		if n == 0 {
			return written, io.ErrShortWrite
		}
		written += n
	}
	return written, nil
}

// retry repeats a call that a signal interrupted.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// retryInt is retry for calls with a result.
func retryInt(do func() (int, error)) (int, error) {
	for {
		if n, err := do(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
