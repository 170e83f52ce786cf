//go:build !linux

package vfs

import (
	"os"
	"path/filepath"
)

// syncBeforeEviction is true where it is not known that a later descriptor reports what went wrong for an earlier one.
const syncBeforeEviction = true

// syncAll syncs every file and directory at and below dir.
func syncAll(d *Disk, dir string) error {
	entries, err := d.List(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name)
		if entry.Dir {
			err = syncAll(d, path)
		} else {
			err = syncFile(d, path)
		}
		if err != nil {
			return err
		}
	}
	return d.SyncDir(dir)
}

func syncFile(d *Disk, name string) error {
	file, err := d.Open(name, os.O_RDWR)
	if os.IsNotExist(err) {
		return nil // removed since its directory was read
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// pwritevAll writes bufs at off, one call each.
func pwritevAll(fd int, bufs [][]byte, off int64) (int64, error) {
	var written int64
	for _, p := range bufs {
		n, err := pwriteAll(fd, p, off+written)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
