//go:build !linux

package registry

import "os"

// allocate reserves the bytes of a file by writing them.
func allocate(file *os.File, size int64) error { return fill(file, size) }

// allocateBeyond does nothing: the system cannot reserve blocks beyond a file's end.
func allocateBeyond(*os.File, int64) error { return nil }
