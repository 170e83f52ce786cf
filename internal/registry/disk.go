//go:build unix

package registry

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is the space that this process may still use on the disk of a folder.
func freeBytes(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// fill writes zeros.
func fill(file *os.File, size int64) error {
	chunk := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := file.WriteAt(chunk[:min(int64(len(chunk)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}
