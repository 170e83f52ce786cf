package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	ballastName = "ballast"

	// ballastReserve must be free beyond the ballast before it is created again: produce is refused below 128 MiB, and the
	// ballast must not be what brings the disk there.
	ballastReserve = 192 << 20

	// ballastRelease: with less free space than this the ballast is given up, so that etcd can open and go on.
	ballastRelease = 64 << 20

	// databaseReserve is what etcd's database may grow by on a disk without a free byte. Deleting a topic takes some KiB.
	databaseReserve = 8 << 20
)

// ballast is a file of no content whose space is given back when the disk is full: etcd ends when it cannot write, and an operator who wants to delete a topic needs a running registry (U-72, U-73).
type ballast struct {
	path string
	size int64
	free func(dir string) (uint64, error)
}

// release gives the space back if the disk needs it, and tells whether it did.
func (b ballast) release() (released bool, err error) {
	free, err := b.free(filepath.Dir(b.path))
	if err == nil && free >= ballastRelease {
		return false, nil
	}
	err = os.Remove(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// reserveDatabase makes sure that etcd's database has its blocks: the file has holes where nothing was written yet and
// grows by steps, and a write into either needs space that a full disk does not have.
func reserveDatabase(dir string) error {
	size, err := databaseBytes(dir)
	if err != nil || size == 0 {
		return err
	}
	file, err := os.OpenFile(databasePath(dir), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(allocateBeyond(file, size+databaseReserve), file.Close())
}

// restore creates the file if it is missing and there is room.
func (b ballast) restore() (created bool, err error) {
	if b.size <= 0 {
		return false, nil
	}
	if info, err := os.Stat(b.path); err == nil && info.Size() == b.size {
		return false, nil
	}
	free, err := b.free(filepath.Dir(b.path))
	if err != nil {
		return false, err
	}
	if free < uint64(b.size)+ballastReserve {
		return false, nil
	}
	file, err := os.OpenFile(b.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	if err := errors.Join(allocate(file, b.size), file.Close()); err != nil {
		return false, errors.Join(fmt.Errorf("reserve %d bytes: %w", b.size, err), os.Remove(b.path))
	}
	return true, nil
}

// removeTorn removes preallocated WAL segments that an earlier process did not finish: etcd ignores them, but on a full
// disk their space is wanted.
func removeTorn(dir string) error {
	torn, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.tmp"))
	if err != nil {
		return fmt.Errorf("look for unfinished registry files: %w", err)
	}
	for _, path := range torn {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove unfinished registry file: %w", err)
		}
	}
	return nil
}
