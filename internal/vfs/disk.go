package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options are the limits of a [Disk].
type Options struct {
	// OpenFilesMax is how many descriptors the Disk keeps open. Files in use at one moment may exceed it, since they
	// cannot be closed. Default: half of the process's limit (RLIMIT_NOFILE), so that the other half is left to
	// connections. At least 1.
	OpenFilesMax int

	// ReadsMax is how many ReadAt calls run at once; others wait. Each one that misses the page cache blocks a thread of
	// the operating system, and a disk serves no more than this at once anyway. Default 64.
	ReadsMax int
}

// WithDefaults returns the options with every zero replaced by its default.
func (o Options) WithDefaults() Options {
	if o.OpenFilesMax <= 0 {
		o.OpenFilesMax = openFilesDefault()
	}
	if o.ReadsMax <= 0 {
		o.ReadsMax = 64
	}
	return o
}

// openFilesDefault is half of the process's limit; a limit that is unknown or absent counts as 1,048,576.
func openFilesDefault() int {
	const unlimited = 1 << 20
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unlimited / 2
	}
	return int(max(min(uint64(limit.Cur), unlimited)/2, 1))
}

// Disk is the file system of the operating system with a bounded number of open descriptors.
//
// Descriptors form a ring with a hand (the clock approximation of least-recently-used): using a file sets a bit and takes
// no lock, so reads and writes of different files never meet. A file in use is pinned and never closed.
//
// Closing the descriptor of a file with unsynced bytes loses nothing on Linux: dirty pages belong to the inode, and a sync
// through a later descriptor covers them. A write-back error that nobody has been told yet is reported to the first
// descriptor opened after it (errseq_t, Linux 4.17), as long as the kernel keeps the inode in memory; files with unsynced
// bytes are therefore closed last. Elsewhere a file is synced before such a close, and the error is kept for Sync.
//
// Lock order: mu only; it is never held across a system call. Exclusion that spans one is by busy and moves.
type Disk struct {
	options Options
	reads   chan struct{} // one token for each running read

	mu struct {
		sync.Mutex
		files map[string][]*diskFile      // open Files by present name
		busy  map[*diskFile]chan struct{} // whose descriptor is being opened or whose name is changing; closed at the end
		moves []*move                     // renames and removals under way
		ring  []*diskFile                 // those with a descriptor that may be closed
		hand  int                         // where the search for a victim goes on
		open  int                         // descriptors, those of removed files included
	}
}

// move is a rename or a removal under way. Nothing below its paths is opened until it is done.
type move struct {
	paths []string
	done  chan struct{}
}

// NewDisk returns the real disk. It opens nothing yet.
func NewDisk(options Options) *Disk {
	options = options.WithDefaults()
	d := &Disk{options: options, reads: make(chan struct{}, options.ReadsMax)}
	d.mu.files = make(map[string][]*diskFile)
	d.mu.busy = make(map[*diskFile]chan struct{})
	return d
}

// OpenDescriptors returns how many descriptors are open now, for metrics.
func (d *Disk) OpenDescriptors() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.open
}

// Open implements [FS]. A file that exists and is not truncated is not opened before its first use.
func (d *Disk) Open(name string, flag int) (File, error) {
	if err := checkFlag(name, flag); err != nil {
		return nil, err
	}
	name = filepath.Clean(name)
	f := &diskFile{disk: d, name: name, writable: flag&os.O_RDWR != 0, slot: -1}
	f.pins.Store(noDescriptor)

	d.mu.Lock()
	for {
		other := d.moveOfLocked(name)
		if other == nil {
			break
		}
		d.mu.Unlock()
		<-other.done
		d.mu.Lock()
	}
	d.mu.files[name] = append(d.mu.files[name], f)
	d.mu.busy[f] = make(chan struct{})
	d.mu.Unlock()
	defer d.release(f)

	var err error
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err = f.openBusy(flag); err == nil {
			f.unpin()
		}
	} else {
		err = checkRegular(name)
	}
	if err != nil {
		d.mu.Lock()
		d.forgetLocked(f)
		d.mu.Unlock()
		return nil, err
	}
	return f, nil
}

// checkRegular finds out without a descriptor what opening would say.
func checkRegular(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return nil
}

// Rename implements [FS].
func (d *Disk) Rename(oldName, newName string) error {
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	m := d.begin(oldName, newName)
	defer d.end(m)
	info, err := os.Lstat(oldName)
	if err != nil {
		return err
	}
	if oldName == newName {
		return nil
	}
	moved := d.take(oldName, info.IsDir())
	defer d.release(moved...)
	replaced := d.take(newName, false)
	defer d.release(replaced...)
	if err := keepOpen(replaced); err != nil {
		return err
	}
	if err := os.Rename(oldName, newName); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orphanLocked(replaced)
	for _, f := range moved {
		if d.forgetLocked(f) {
			f.name = newName + strings.TrimPrefix(f.name, oldName)
			d.mu.files[f.name] = append(d.mu.files[f.name], f)
		}
	}
	return nil
}

// Remove implements [FS]. If the file is still open here, its descriptor is opened first and then kept, so that the
// File works on; it counts towards the descriptors but can no longer be closed to make room.
func (d *Disk) Remove(name string) error {
	name = filepath.Clean(name)
	m := d.begin(name)
	defer d.end(m)
	removed := d.take(name, false)
	defer d.release(removed...)
	if err := keepOpen(removed); err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orphanLocked(removed)
	return nil
}

// keepOpen opens the descriptors of files that are about to lose their name. Files closed meanwhile need none.
func keepOpen(files []*diskFile) error {
	for _, f := range files {
		if f.pins.Load() != noDescriptor {
			continue
		}
		switch err := f.openBusy(0); {
		case err == nil:
			f.unpin()
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrClosed):
		default:
			return err
		}
	}
	return nil
}

// MkdirAll implements [FS].
func (d *Disk) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o755) }

// List implements [FS].
func (d *Disk) List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(found))
	for _, one := range found {
		entry := Entry{Name: one.Name(), Dir: one.IsDir()}
		if !entry.Dir {
			info, err := one.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since the directory was read
			}
			if err != nil {
				return nil, err
			}
			entry.Size, entry.Modified = info.Size(), info.ModTime()
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// SyncDir implements [FS].
func (d *Disk) SyncDir(dir string) error {
	return withDir(dir, func(fd int) error { return unix.Fsync(fd) })
}

// SyncAll implements [FS].
func (d *Disk) SyncAll(dir string) error { return syncAll(d, dir) }

// syncTree syncs every file and directory at and below dir.
func (d *Disk) syncTree(dir string) error {
	entries, err := d.List(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name)
		if entry.Dir {
			err = d.syncTree(path)
		} else {
			err = d.syncFile(path)
		}
		if err != nil {
			return err
		}
	}
	return d.SyncDir(dir)
}

func (d *Disk) syncFile(name string) error {
	file, err := d.Open(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since its directory was read
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// withDir opens a directory outside the ring for one call.
func withDir(dir string, do func(fd int) error) error {
	fd, err := retryInt(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	err = retry(func() error { return do(fd) })
	if closeErr := unix.Close(fd); err == nil && !errors.Is(closeErr, unix.EINTR) {
		err = closeErr
	}
	if err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// FreeBytes returns how many bytes of the file system that holds dir this process may still use, and its size.
func FreeBytes(dir string) (free, total uint64, err error) {
	var stat unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(stat.Bsize)
	return uint64(stat.Bavail) * block, uint64(stat.Blocks) * block, nil
}

// begin waits until no other move touches the paths and registers this one.
func (d *Disk) begin(paths ...string) *move {
	m := &move{paths: paths, done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		other := d.overlapLocked(m)
		if other == nil {
			d.mu.moves = append(d.mu.moves, m)
			return m
		}
		d.mu.Unlock()
		<-other.done
		d.mu.Lock()
	}
}

func (d *Disk) end(m *move) {
	d.mu.Lock()
	for i, one := range d.mu.moves {
		if one == m {
			d.mu.moves = append(d.mu.moves[:i], d.mu.moves[i+1:]...)
			break
		}
	}
	d.mu.Unlock()
	close(m.done)
}

func (d *Disk) overlapLocked(m *move) *move {
	for _, other := range d.mu.moves {
		for _, a := range other.paths {
			for _, b := range m.paths {
				if within(a, b) || within(b, a) {
					return other
				}
			}
		}
	}
	return nil
}

// moveOfLocked returns a move that changes what name means.
func (d *Disk) moveOfLocked(name string) *move {
	for _, m := range d.mu.moves {
		for _, path := range m.paths {
			if within(name, path) {
				return m
			}
		}
	}
	return nil
}

// within reports whether name is dir or lies below it.
func within(name, dir string) bool {
	rest, found := strings.CutPrefix(name, dir)
	return found && (rest == "" || rest[0] == filepath.Separator || strings.HasSuffix(dir, string(filepath.Separator)))
}

// take makes the open Files called name busy, and those below it if deep, and returns them. The caller has begun a move
// of name, so no more can come.
func (d *Disk) take(name string, deep bool) []*diskFile {
	d.mu.Lock()
	taken := append([]*diskFile(nil), d.mu.files[name]...)
	if deep {
		for other, files := range d.mu.files {
			if other != name && within(other, name) {
				taken = append(taken, files...)
			}
		}
	}
	d.mu.Unlock()
	for _, f := range taken {
		d.hold(f)
	}
	return taken
}

// hold waits until f is not busy and makes it so. Whoever holds a file never waits for anything but the disk.
func (d *Disk) hold(f *diskFile) {
	d.mu.Lock()
	for {
		done, busy := d.mu.busy[f]
		if !busy {
			d.mu.busy[f] = make(chan struct{})
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		<-done
		d.mu.Lock()
	}
}

// release ends what hold began.
func (d *Disk) release(files ...*diskFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range files {
		close(d.mu.busy[f])
		delete(d.mu.busy, f)
	}
}

// forgetLocked takes f out of the names and reports whether it was there.
func (d *Disk) forgetLocked(f *diskFile) bool {
	files := d.mu.files[f.name]
	for i, one := range files {
		if one != f {
			continue
		}
		if len(files) == 1 {
			delete(d.mu.files, f.name)
		} else {
			d.mu.files[f.name] = append(files[:i:i], files[i+1:]...)
		}
		return true
	}
	return false
}

// orphanLocked marks files that have no name any more: their descriptors stay.
func (d *Disk) orphanLocked(files []*diskFile) {
	for _, f := range files {
		d.forgetLocked(f)
		d.leaveRingLocked(f)
	}
}

func (d *Disk) enterRingLocked(f *diskFile) {
	f.slot = len(d.mu.ring)
	d.mu.ring = append(d.mu.ring, f)
}

func (d *Disk) leaveRingLocked(f *diskFile) {
	if f.slot < 0 {
		return
	}
	last := len(d.mu.ring) - 1
	d.mu.ring[f.slot] = d.mu.ring[last]
	d.mu.ring[f.slot].slot = f.slot
	d.mu.ring[last] = nil
	d.mu.ring = d.mu.ring[:last]
	f.slot = -1
}

// makeRoom closes a descriptor if one more would be too many, or if force. It reports whether it closed one.
func (d *Disk) makeRoom(force bool) bool {
	d.mu.Lock()
	if !force && d.mu.open < d.options.OpenFilesMax {
		d.mu.Unlock()
		return false
	}
	victim, fd := d.victimLocked()
	d.mu.Unlock()
	if victim == nil {
		return false
	}
	victim.closeEvicted(fd)
	return true
}

// victimLocked takes a descriptor that nobody uses out of the ring: one not used since the hand last passed, without
// unsynced bytes if there is one near.
func (d *Disk) victimLocked() (*diskFile, int) {
	const lookFurther = 32 // files looked at after the first one with unsynced bytes
	var dirty *diskFile
	steps := 2 * len(d.mu.ring)
	for ; steps > 0; steps-- {
		if d.mu.hand >= len(d.mu.ring) {
			d.mu.hand = 0
		}
		f := d.mu.ring[d.mu.hand]
		d.mu.hand++
		if _, busy := d.mu.busy[f]; busy || f.pins.Load() != 0 || f.used.Swap(false) {
			continue
		}
		if f.dirty.Load() {
			if dirty == nil {
				dirty, steps = f, min(steps, lookFurther)
			}
			continue
		}
		if fd, ok := d.detachLocked(f); ok {
			return f, fd
		}
	}
	if dirty != nil {
		if fd, ok := d.detachLocked(dirty); ok {
			return dirty, fd
		}
	}
	return nil, 0
}

// detachLocked takes the descriptor from a file that nobody has pinned; the caller closes it.
func (d *Disk) detachLocked(f *diskFile) (int, bool) {
	if !f.pins.CompareAndSwap(0, noDescriptor) {
		return 0, false
	}
	d.leaveRingLocked(f)
	d.mu.open--
	return f.fd, true
}
