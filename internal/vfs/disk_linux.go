package vfs

import (
	"io"

	"golang.org/x/sys/unix"
)

// syncBeforeEviction is false where closing a descriptor loses neither bytes nor errors: see [Disk].
const syncBeforeEviction = false

// vectorsMax is IOV_MAX, the buffers that one call takes.
const vectorsMax = 1024

// dataSync makes the contents and the size of a file durable.
func dataSync(fd int) error { return unix.Fdatasync(fd) }

// syncAll makes everything on the file system of dir durable.
func syncAll(_ *Disk, dir string) error { return withDir(dir, unix.Syncfs) }

// pwritevAll writes bufs at off, up to vectorsMax with each call. It changes neither bufs nor the bytes.
func pwritevAll(fd int, bufs [][]byte, off int64) (int64, error) {
	var written int64
	for len(bufs) > 0 {
		batch := bufs[:min(len(bufs), vectorsMax)]
		n, err := retryInt(func() (int, error) { return unix.Pwritev(fd, batch, off+written) })
		if err != nil {
			return written, err
		}
		moved := 0
		for moved < len(batch) && n >= len(batch[moved]) {
			n -= len(batch[moved])
			written += int64(len(batch[moved]))
			moved++
		}
		bufs = bufs[moved:]
		switch {
		case n > 0: // cut inside a buffer: finish that one alone, so that the caller's slices stay as they are
			rest, err := pwriteAll(fd, bufs[0][n:], off+written+int64(n))
			written += int64(n + rest)
			if err != nil {
				return written, err
			}
			bufs = bufs[1:]
		case moved == 0:
			return written, io.ErrShortWrite
		}
	}
	return written, nil
}
