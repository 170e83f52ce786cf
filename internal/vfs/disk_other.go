//go:build !linux

package vfs

import "errors"

// syncBeforeEviction is true where it is not known that a later descriptor reports what went wrong for an earlier one.
const syncBeforeEviction = true

// syncAll makes everything at and below dir durable.
func syncAll(d *Disk, dir string) error { return d.syncTree(dir) }

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

// UnwrittenBytes returns errors.ErrUnsupported: this system does not tell how much a SyncAll may have to write.
func UnwrittenBytes() (int64, error) { return 0, errors.ErrUnsupported }
