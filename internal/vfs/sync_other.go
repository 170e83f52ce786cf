//go:build !linux && !darwin

package vfs

import "golang.org/x/sys/unix"

// dataSync makes a file durable.
func dataSync(fd int) error { return unix.Fsync(fd) }
