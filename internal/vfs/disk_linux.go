package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// syncBeforeEviction is false where closing a descriptor loses neither bytes nor errors: see [Disk].
const syncBeforeEviction = false

// vectorsMax is IOV_MAX, the buffers that one call takes.
const vectorsMax = 1024

// dataSync makes the contents and the size of a file durable.
func dataSync(fd int) error { return unix.Fdatasync(fd) }

// syncAll makes everything on the file system of dir durable. A syncfs of a kernel before 5.8 keeps to itself what it could
// not write, so there every file is asked as well.
func syncAll(d *Disk, dir string) error {
	if err := withDir(dir, unix.Syncfs); err != nil || syncfsReports() {
		return err
	}
	return d.syncTree(dir)
}

// syncfsReports tells whether the kernel is Linux 5.8 or newer; one that cannot be read counts as older.
var syncfsReports = sync.OnceValue(func() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	return reportsSince(unix.ByteSliceToString(name.Release[:]))
})

func reportsSince(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major > 5 || major == 5 && minor >= 8)
}

// UnwrittenBytes returns about how many bytes the system has taken from writers, of this process and of all others and for
// all file systems, and not yet written to a disk: more than that a [Disk]'s SyncAll does not have to write. The error is
// errors.ErrUnsupported where the system does not tell.
func UnwrittenBytes() (int64, error) {
	file, err := memoryInfo()
	if err != nil {
		return 0, errors.ErrUnsupported
	}
	text := make([]byte, 4<<10)
	n, err := file.ReadAt(text, 0)
	if n == 0 {
		return 0, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	return parseUnwritten(text[:n])
}

// memoryInfo is the kernel's account of memory, kept open: reading it takes five microseconds, opening it another twenty.
var memoryInfo = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/meminfo") })

// parseUnwritten adds up what is dirty and what is being written.
func parseUnwritten(text []byte) (int64, error) {
	var total int64
	for _, name := range []string{"Dirty:", "Writeback:"} {
		_, rest, found := bytes.Cut(text, []byte("\n"+name))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		number, unit, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		kib, err := strconv.ParseInt(string(number), 10, 64)
		if !found || err != nil || string(unit) != "kB" {
			return 0, fmt.Errorf("%q of the kernel's account of memory: %w", line, errors.ErrUnsupported)
		}
		total += kib << 10
	}
	return total, nil
}

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
