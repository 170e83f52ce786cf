package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/internal/yardstick"
)

// TestDescriptorsStayUnderTheLimit holds many more files than descriptors and uses them from several goroutines at once.
func TestDescriptorsStayUnderTheLimit(t *testing.T) {
	const files, openMax, workers, rounds = 200, 10, 4, 500
	disk, dir := NewDisk(Options{OpenFilesMax: openMax}), t.TempDir()
	held := make([]File, files)
	for i := range held {
		file, err := disk.Open(filepath.Join(dir, fmt.Sprint(i)), os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		held[i] = file
		if _, err := file.WriteAt(fmt.Appendf(nil, "file %03d", i), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := disk.OpenDescriptors(); got != openMax {
		t.Errorf("%d descriptors after %d files, want %d", got, files, openMax)
	}
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range rounds {
				i := random.IntN(files)
				got, want := make([]byte, 8), fmt.Sprintf("file %03d", i)
				if _, err := held[i].ReadAt(got, 0); err != nil || string(got) != want {
					t.Errorf("read %q, %v; want %q", got, err, want)
				}
				if err := held[i].Sync(); err != nil {
					t.Error(err)
				}
				if open := disk.OpenDescriptors(); open > openMax+workers {
					t.Errorf("%d descriptors, want at most %d and one for each worker", open, openMax)
				}
			}
		})
	}
	group.Wait()
	for _, file := range held {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := disk.OpenDescriptors(); got != 0 {
		t.Errorf("%d descriptors after closing all, want 0", got)
	}
	if len(disk.mu.files)+len(disk.mu.busy)+len(disk.mu.moves)+len(disk.mu.ring) != 0 {
		t.Errorf("after closing all, something is left: %+v", &disk.mu)
	}
}

// TestFilesNotUsedHoldNoDescriptor: a hundred thousand segments are held by a process that may open twenty thousand files.
func TestFilesNotUsedHoldNoDescriptor(t *testing.T) {
	disk, name := NewDisk(Options{}), filepath.Join(t.TempDir(), "a")
	if err := WriteAtomic(disk, name, []byte("a")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		file, err := disk.Open(name, os.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
	}
	if got := disk.OpenDescriptors(); got != 0 {
		t.Errorf("%d descriptors for 100 files never used, want 0", got)
	}
}

// TestVictims: the hand passes over files used since its last round and over those with unsynced bytes.
func TestVictims(t *testing.T) {
	disk, dir := NewDisk(Options{OpenFilesMax: 3}), t.TempDir()
	create := func(name string) *diskFile {
		file, err := disk.Open(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file.(*diskFile)
	}
	dirty, idle, busy := create("dirty"), create("idle"), create("busy")
	if _, err := dirty.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*diskFile{dirty, idle} {
		f.used.Store(false)
	}
	hasDescriptor := func(f *diskFile) bool { return f.pins.Load() != noDescriptor }

	fourth := create("fourth")
	if !hasDescriptor(dirty) || hasDescriptor(idle) || !hasDescriptor(busy) {
		t.Error("the first to go was not the idle file without unsynced bytes")
	}
	for _, f := range []*diskFile{busy, fourth} { // pinned: the dirty one is all that is left
		if _, release, err := f.Descriptor(); err != nil {
			t.Fatal(err)
		} else {
			defer release()
		}
	}
	create("fifth")
	if hasDescriptor(dirty) || !hasDescriptor(busy) || !hasDescriptor(fourth) {
		t.Error("the second to go was not the file with unsynced bytes, the only one not in use")
	}
	if err := dirty.Sync(); err != nil {
		t.Errorf("sync through a new descriptor: %v", err)
	}
}

// TestDescriptorSurvivesClose: a response being sent keeps its segment's descriptor, and nothing is left after it.
func TestDescriptorSurvivesClose(t *testing.T) {
	disk, name := NewDisk(Options{OpenFilesMax: 1}), filepath.Join(t.TempDir(), "a")
	file, err := disk.Open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("sent"), 0); err != nil {
		t.Fatal(err)
	}
	fd, release, err := file.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if n, err := unix.Pread(fd, got, 0); err != nil || string(got[:n]) != "sent" {
		t.Errorf("read %q, %v through the pinned descriptor", got[:n], err)
	}
	release()
	if got := disk.OpenDescriptors(); got != 0 {
		t.Errorf("%d descriptors after the release, want 0", got)
	}
}

// TestSyncErrorIsKept: a sync that failed once never succeeds later, nor does one whose descriptor failed to close.
func TestSyncErrorIsKept(t *testing.T) {
	disk, dir := NewDisk(Options{}), t.TempDir()
	file, err := disk.Open(filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.(*diskFile).closeEvicted(-1) // as a close that reports a late write error
	for range 2 {
		if err := file.Sync(); !errors.Is(err, syscall.EBADF) {
			t.Errorf("sync after an error: %v, want the error of the close", err)
		}
	}
}

// TestDiskModified: the time of a file is that of the operating system.
func TestDiskModified(t *testing.T) {
	disk, dir := NewDisk(Options{}), t.TempDir()
	if err := WriteAtomic(disk, filepath.Join(dir, "a"), []byte("a")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := disk.List(dir)
	if err != nil || len(entries) != 1 || !entries[0].Modified.Equal(info.ModTime()) {
		t.Errorf("list: %+v, %v; want the time %v", entries, err, info.ModTime())
	}
}

func TestFreeBytes(t *testing.T) {
	free, total, err := FreeBytes(t.TempDir())
	if err != nil || free == 0 || free > total {
		t.Errorf("free %d of %d, %v", free, total, err)
	}
	if _, _, err := FreeBytes(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("free bytes of a missing directory: %v, want ErrNotExist", err)
	}
}

func TestDefaults(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	o := Options{}.WithDefaults()
	if want := int(min(uint64(limit.Cur), 1<<20) / 2); o.OpenFilesMax != want || o.ReadsMax != 64 {
		t.Errorf("defaults %+v, want %d open files and 64 reads", o, want)
	}
}

// BenchmarkWrite compares a vectored write through File with one on its bare descriptor, and with a write of joined bytes.
func BenchmarkWrite(b *testing.B) {
	disk := NewDisk(Options{})
	file, err := disk.Open(filepath.Join(b.TempDir(), "a"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	bufs := [][]byte{make([]byte, 1024), make([]byte, 1024), make([]byte, 1024), make([]byte, 1024)}
	joined := make([]byte, 4096)
	fd, release, err := file.Descriptor()
	if err != nil {
		b.Fatal(err)
	}
	defer release()
	bare := func(int) error { _, err := pwritevAll(fd, bufs, 0); return err }
	compare(b, "WriteV", func(int) error { _, err := file.WriteV(bufs, 0); return err }, bare)
	compare(b, "WriteAt", func(int) error { _, err := file.WriteAt(joined, 0); return err }, bare)
}

// compare runs one call of ours beside one bare system call.
func compare(b *testing.B, name string, ours, bare func(i int) error) {
	repeat := func(call func(i int) error) func(n int) error {
		return func(n int) error {
			for i := range n {
				if err := call(i); err != nil {
					return err
				}
			}
			return nil
		}
	}
	b.Run(name, func(b *testing.B) {
		yardstick.Run(b, yardstick.Contest{Ours: repeat(ours), Raw: repeat(bare), Turn: 500})
	})
}

// BenchmarkRead compares ReadAt with the bare system call, with descriptors at hand and one opened for each read.
func BenchmarkRead(b *testing.B) {
	p := make([]byte, 512)
	open := func(openMax int) []File {
		disk, dir := NewDisk(Options{OpenFilesMax: openMax}), b.TempDir()
		files := make([]File, 16)
		for i := range files {
			file, err := disk.Open(filepath.Join(dir, fmt.Sprint(i)), os.O_RDWR|os.O_CREATE)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = file.Close() })
			if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
				b.Fatal(err)
			}
			files[i] = file
		}
		return files
	}
	held, few := open(16), open(4)
	fd, release, err := held[0].Descriptor()
	if err != nil {
		b.Fatal(err)
	}
	defer release()
	bare := func(int) error { _, err := unix.Pread(fd, p, 0); return err }
	compare(b, "ReadAt", func(i int) error { _, err := held[i%len(held)].ReadAt(p, 0); return err }, bare)
	compare(b, "ReadAt opening each time", func(i int) error { _, err := few[i%len(few)].ReadAt(p, 0); return err }, bare)
}
