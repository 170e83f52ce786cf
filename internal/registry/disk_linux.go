package registry

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves the bytes of a file, so that a write into them cannot meet a full disk.
func allocate(file *os.File, size int64) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fill(file, size)
	}
	return err
}

// allocateBeyond reserves the first size bytes of a file without changing its length or content. A file system that
// cannot do it leaves the file as it is.
func allocateBeyond(file *os.File, size int64) error {
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}
