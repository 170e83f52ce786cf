package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrCrashed is returned by every call on a [Memory] that has lost its power, and on its Files.
var ErrCrashed = errors.New("the disk lost its power")

// Memory is a disk in memory that can lose its power: see [Memory.Crash]. Everything it draws comes from its seed, so a
// test that calls it from one goroutine is repeated exactly by the same seed. It forgets nothing that is not synced
// before a crash, except that it keeps at most pendingBytesMax unsynced bytes of a file apart; older ones become durable
// by themselves, as a kernel's write-back does.
type Memory struct {
	mu struct {
		sync.Mutex
		random     *rand.Rand
		clock      func() time.Time // nil is none
		root       *inode
		names      []nameChange // unsynced changes of directories, in order
		serial     int64        // of the last change of anything
		durable    int64        // the largest serial of any change that is durable
		committed  int64        // serial when anything was last synced: what a file system with one journal has committed
		used       int64        // bytes of all files
		open       map[*memoryFile]struct{}
		capacity   int64 // 0 is no limit
		syncPoints int
		crashAt    int // sync point that crashes the disk; 0 is none
		crashed    bool
		failIn     int   // changes until failWith
		failWith   error // nil is none
	}
}

// inode is a file or a directory. A directory has entries; stable holds those that are durable. A file has data; durable
// is what is on the platter, and pending is what happened since, in order.
type inode struct {
	entries, stable map[string]*inode

	data, durable []byte
	pending       []dataChange
	pendingBytes  int
	modified      time.Time
	handles       map[*memoryFile]struct{}
	linked        bool
	failed        error
}

// nameChange is a creation (to only), a removal (from only) or a rename (both).
type nameChange struct {
	serial   int64
	from, to entryKey
	node     *inode
}

// entryKey is one entry of one directory; the zero value is none.
type entryKey struct {
	dir  *inode
	name string
}

// NewMemory returns an empty disk. The directory "/" exists, and relative names start there too.
func NewMemory(seed uint64) *Memory {
	m := &Memory{}
	m.mu.random = rand.New(rand.NewPCG(seed, 0x7469_6465_6d61_726b))
	m.mu.open = make(map[*memoryFile]struct{})
	m.mu.root = newDirectory()
	m.mu.root.linked = true
	return m
}

func newDirectory() *inode {
	return &inode{entries: make(map[string]*inode), stable: make(map[string]*inode)}
}

func (n *inode) isDir() bool { return n.entries != nil }

// SetCapacity bounds the bytes of all files; a write beyond it writes what fits and fails with [syscall.ENOSPC]. Zero is
// no bound.
func (m *Memory) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

// SetClock gives the disk the clock by which it notes when a file was modified. Without one it does not.
func (m *Memory) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.clock = now
}

func (m *Memory) touchLocked(node *inode) {
	if m.mu.clock != nil {
		node.modified = m.mu.clock()
	}
}

// UsedBytes returns the bytes of all files, those that are removed and still open included.
func (m *Memory) UsedBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.used
}

// FailAfter lets n more changes (creations, writes, truncations, renames, removals, syncs) succeed; then every one fails
// with err. With [ErrCrashed] the power is lost at that change. A nil err ends it.
func (m *Memory) FailAfter(n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.failIn, m.mu.failWith = n, err
}

// Kill closes every File, as the end of a process does; what was written stays, synced or not. It also ends what FailAfter
// began, so that a process can be killed at any change.
func (m *Memory) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.mu.open {
		f.closeLocked()
	}
	m.mu.failWith = nil
}

// SyncPoints returns how many times Sync, SyncDir and SyncAll have been called on this disk: the moments at which a test
// wants to cut the power, one after the other.
func (m *Memory) SyncPoints() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.syncPoints
}

// CrashAtSync cuts the power at the sync point with number n, counted from 1: that call and all later ones fail with
// [ErrCrashed]. The sync has then done nothing itself, but Crash may still keep all that it was to save. Zero ends it.
func (m *Memory) CrashAtSync(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.crashAt = n
}

// Changes returns how many changes this disk has seen, for tests that cut the power at one of them.
func (m *Memory) Changes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.serial
}

// changeLocked begins a change: it fails if the disk is off or told to fail.
func (m *Memory) changeLocked() error {
	if m.mu.crashed {
		return ErrCrashed
	}
	if m.mu.failWith != nil {
		if m.mu.failIn <= 0 {
			m.mu.crashed = errors.Is(m.mu.failWith, ErrCrashed)
			return m.mu.failWith
		}
		m.mu.failIn--
	}
	m.mu.serial++
	return nil
}

// syncLocked begins a sync point.
func (m *Memory) syncLocked() error {
	m.mu.syncPoints++
	if m.mu.crashAt != 0 && m.mu.syncPoints >= m.mu.crashAt {
		m.mu.crashed = true
	}
	return m.changeLocked()
}

// Open implements [FS].
func (m *Memory) Open(name string, flag int) (File, error) {
	if err := checkFlag(name, flag); err != nil {
		return nil, err
	}
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.openLocked(name, flag)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := &memoryFile{disk: m, node: node, name: name, writable: flag&os.O_RDWR != 0}
	if node.handles == nil {
		node.handles = make(map[*memoryFile]struct{})
	}
	node.handles[f] = struct{}{}
	m.mu.open[f] = struct{}{}
	return f, nil
}

func (m *Memory) openLocked(name string, flag int) (*inode, error) {
	if m.mu.crashed {
		return nil, ErrCrashed
	}
	key, node, err := m.findLocked(name)
	switch {
	case err != nil:
		return nil, err
	case node == nil && flag&os.O_CREATE == 0:
		return nil, fs.ErrNotExist
	case node == nil && key.dir == nil:
		return nil, syscall.EISDIR
	case node == nil:
		if err := m.changeLocked(); err != nil {
			return nil, err
		}
		node = &inode{linked: true}
		m.touchLocked(node)
		key.dir.entries[key.name] = node
		m.noteLocked(nameChange{to: key, node: node})
	case flag&os.O_EXCL != 0:
		return nil, fs.ErrExist
	case node.isDir():
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0 && len(node.data) > 0:
		if err := m.changeLocked(); err != nil {
			return nil, err
		}
		m.truncateLocked(node, 0)
	}
	return node, nil
}

// findLocked returns the entry that name means and what is there: nil if nothing is. The directory must exist. The entry
// of the root is zero.
func (m *Memory) findLocked(name string) (entryKey, *inode, error) {
	key, node := entryKey{}, m.mu.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		if part == "" || part == "." {
			continue
		}
		switch {
		case node == nil:
			return entryKey{}, nil, fs.ErrNotExist
		case !node.isDir():
			return entryKey{}, nil, syscall.ENOTDIR
		}
		key = entryKey{dir: node, name: part}
		node = node.entries[part]
	}
	return key, node, nil
}

// Rename implements [FS].
func (m *Memory) Rename(oldName, newName string) error {
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.renameLocked(oldName, newName); err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	return nil
}

func (m *Memory) renameLocked(oldName, newName string) error {
	if m.mu.crashed {
		return ErrCrashed
	}
	from, node, err := m.findLocked(oldName)
	if err != nil {
		return err
	}
	to, target, err := m.findLocked(newName)
	switch {
	case err != nil:
		return err
	case node == nil:
		return fs.ErrNotExist
	case from.dir == nil || to.dir == nil:
		return syscall.EBUSY
	case node == target:
		return nil
	case node.isDir() && within(newName, oldName):
		return syscall.EINVAL
	case target != nil && target.isDir():
		return fs.ErrExist // as package os: a directory is never replaced
	case target != nil && node.isDir():
		return syscall.ENOTDIR
	}
	if err := m.changeLocked(); err != nil {
		return err
	}
	if target != nil {
		m.unlinkLocked(target)
	}
	delete(from.dir.entries, from.name)
	to.dir.entries[to.name] = node
	m.noteLocked(nameChange{from: from, to: to, node: node})
	renameHandles(node, oldName, newName)
	return nil
}

// renameHandles tells open Files at and below a renamed name.
func renameHandles(node *inode, oldName, newName string) {
	for f := range node.handles {
		f.name = newName + strings.TrimPrefix(f.name, oldName)
	}
	for _, child := range node.entries {
		renameHandles(child, oldName, newName)
	}
}

// Remove implements [FS].
func (m *Memory) Remove(name string) error {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.removeLocked(name); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

func (m *Memory) removeLocked(name string) error {
	if m.mu.crashed {
		return ErrCrashed
	}
	key, node, err := m.findLocked(name)
	switch {
	case err != nil:
		return err
	case node == nil:
		return fs.ErrNotExist
	case key.dir == nil:
		return syscall.EBUSY
	case len(node.entries) > 0:
		return syscall.ENOTEMPTY
	}
	if err := m.changeLocked(); err != nil {
		return err
	}
	delete(key.dir.entries, key.name)
	m.noteLocked(nameChange{from: key, node: node})
	m.unlinkLocked(node)
	return nil
}

// unlinkLocked takes the name from a file; its bytes are free once nobody has it open.
func (m *Memory) unlinkLocked(node *inode) {
	node.linked = false
	if len(node.handles) == 0 {
		m.mu.used -= int64(len(node.data))
	}
}

// MkdirAll implements [FS].
func (m *Memory) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mkdirAllLocked(dir); err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

func (m *Memory) mkdirAllLocked(dir string) error {
	if m.mu.crashed {
		return ErrCrashed
	}
	node := m.mu.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(dir)), "/") {
		if part == "" || part == "." {
			continue
		}
		child := node.entries[part]
		switch {
		case child == nil:
			if err := m.changeLocked(); err != nil {
				return err
			}
			child = newDirectory()
			child.linked = true
			node.entries[part] = child
			m.noteLocked(nameChange{to: entryKey{dir: node, name: part}, node: child})
		case !child.isDir():
			return syscall.ENOTDIR
		}
		node = child
	}
	return nil
}

// List implements [FS].
func (m *Memory) List(dir string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.directoryLocked(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	entries := make([]Entry, 0, len(node.entries))
	for _, name := range slices.Sorted(maps.Keys(node.entries)) {
		child := node.entries[name]
		entries = append(entries, Entry{Name: name, Size: int64(len(child.data)), Modified: child.modified, Dir: child.isDir()})
	}
	return entries, nil
}

func (m *Memory) directoryLocked(dir string) (*inode, error) {
	if m.mu.crashed {
		return nil, ErrCrashed
	}
	_, node, err := m.findLocked(dir)
	switch {
	case err != nil:
		return nil, err
	case node == nil:
		return nil, fs.ErrNotExist
	case !node.isDir():
		return nil, syscall.ENOTDIR
	}
	return node, nil
}

// SyncDir implements [FS].
func (m *Memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.syncDirLocked(dir, false); err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

// SyncAll implements [FS]. Nothing outside of dir becomes durable, not even the entry of dir in its parent.
func (m *Memory) SyncAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.syncDirLocked(dir, true); err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}

func (m *Memory) syncDirLocked(dir string, deep bool) error {
	node, err := m.directoryLocked(dir)
	if err != nil {
		return err
	}
	if err := m.syncLocked(); err != nil {
		return err
	}
	dirs := map[*inode]bool{node: true}
	if deep {
		m.syncBelowLocked(node, dirs)
	}
	m.settleNamesLocked(dirs)
	m.mu.committed = m.mu.serial
	return nil
}

// syncBelowLocked makes the files at and below node durable and collects the directories.
func (m *Memory) syncBelowLocked(node *inode, dirs map[*inode]bool) {
	for _, child := range node.entries {
		if child.isDir() {
			dirs[child] = true
			m.syncBelowLocked(child, dirs)
		} else {
			m.settleDataLocked(child, len(child.pending))
		}
	}
}

// noteLocked remembers a change of names that is not durable yet.
func (m *Memory) noteLocked(change nameChange) {
	const namesMax = 4096 // beyond it the oldest become durable, as a journal is written every few seconds
	change.serial = m.mu.serial
	m.mu.names = append(m.mu.names, change)
	if len(m.mu.names) > namesMax {
		for _, old := range m.mu.names[:namesMax/2] {
			m.settleNameLocked(old)
		}
		m.mu.names = slices.Clone(m.mu.names[namesMax/2:])
	}
}

// settleNamesLocked makes the changes of the given directories durable, and the earlier ones of the same entries elsewhere
// that these rest on: a rename between two directories is durable when either is synced, as with a journal.
func (m *Memory) settleNamesLocked(dirs map[*inode]bool) {
	needed := make(map[entryKey]bool)
	chosen := make([]bool, len(m.mu.names))
	for i, change := range slices.Backward(m.mu.names) {
		if dirs[change.from.dir] || dirs[change.to.dir] || needed[change.from] || needed[change.to] {
			chosen[i] = true
			for _, key := range [...]entryKey{change.from, change.to} {
				if key.dir != nil {
					needed[key] = true
				}
			}
		}
	}
	kept := m.mu.names[:0]
	for i, change := range m.mu.names {
		if chosen[i] {
			m.settleNameLocked(change)
		} else {
			kept = append(kept, change)
		}
	}
	clear(m.mu.names[len(kept):])
	m.mu.names = kept
}

func (m *Memory) settleNameLocked(change nameChange) {
	if change.from.dir != nil {
		delete(change.from.dir.stable, change.from.name)
	}
	if change.to.dir != nil {
		change.to.dir.stable[change.to.name] = change.node
	}
	m.mu.durable = max(m.mu.durable, change.serial)
}

// String describes the disk for a failing test.
func (m *Memory) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "changes %d, sync points %d, bytes %d, unsynced names %d\n", m.mu.serial, m.mu.syncPoints, m.mu.used, len(m.mu.names))
	describe(&text, "", m.mu.root)
	return text.String()
}

func describe(text *strings.Builder, path string, node *inode) {
	for _, name := range slices.Sorted(maps.Keys(node.entries)) {
		child := node.entries[name]
		if child.isDir() {
			describe(text, path+"/"+name, child)
			continue
		}
		fmt.Fprintf(text, "%s/%s %d bytes, %d durable, %d unsynced changes\n", path, name, len(child.data), len(child.durable), len(child.pending))
	}
}
