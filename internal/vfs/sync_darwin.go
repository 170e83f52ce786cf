package vfs

import "golang.org/x/sys/unix"

// dataSync makes a file durable. On this system fsync only hands the bytes to the drive; F_FULLFSYNC flushes its cache.
func dataSync(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	return err
}
