package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// disks are all implementations; each case of the suite runs over all of them.
var disks = []struct {
	name string
	make func(t *testing.T) (vfs.FS, string)
}{
	{"disk", func(t *testing.T) (vfs.FS, string) { return vfs.NewDisk(vfs.Options{}), t.TempDir() }},
	{"disk with two descriptors", func(t *testing.T) (vfs.FS, string) {
		return vfs.NewDisk(vfs.Options{OpenFilesMax: 2, ReadsMax: 1}), t.TempDir()
	}},
	{"memory", func(t *testing.T) (vfs.FS, string) {
		disk := vfs.NewMemory(1)
		must(t, disk.MkdirAll("/data"))
		return disk, "/data"
	}},
	{"memory after a crash", func(t *testing.T) (vfs.FS, string) {
		disk := vfs.NewMemory(1)
		must(t, disk.MkdirAll("/data"))
		must(t, disk.SyncDir("/"))
		return disk.Crash(vfs.Adversarial), "/data"
	}},
}

// TestConformance is the contract of FS and File, over every disk.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, disk vfs.FS, dir string)
	}{
		{"open", testOpen},
		{"read and write", testReadWrite},
		{"vectors", testVectors},
		{"truncate", testTruncate},
		{"list", testList},
		{"rename", testRename},
		{"rename of a directory", testRenameDirectory},
		{"rename over an open file", testRenameOver},
		{"remove", testRemove},
		{"close", testClose},
		{"sync", testSync},
		{"helpers", testHelpers},
		{"concurrent use", testConcurrent},
	}
	for _, disk := range disks {
		for _, one := range cases {
			t.Run(disk.name+"/"+one.name, func(t *testing.T) {
				fs, dir := disk.make(t)
				one.run(t, fs, dir)
			})
		}
	}
}

func testOpen(t *testing.T, disk vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
		if _, err := disk.Open(name, flag); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open of a missing file with flag %#x: %v, want ErrNotExist", flag, err)
		}
	}
	for _, flag := range []int{os.O_WRONLY, os.O_CREATE, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_EXCL} {
		if _, err := disk.Open(name, flag); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("open with flag %#x: %v, want ErrInvalid", flag, err)
		}
	}
	if _, err := disk.Open(filepath.Join(dir, "none", "a"), os.O_RDWR|os.O_CREATE); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("create in a missing directory: %v, want ErrNotExist", err)
	}
	file := open(t, disk, name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if got := file.Name(); got != name {
		t.Errorf("name %q, want %q", got, name)
	}
	if _, err := disk.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exclusive creation of an existing file: %v, want ErrExist", err)
	}
	if _, err := disk.Open(filepath.Join(name, "b"), os.O_RDWR|os.O_CREATE); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("create below a file: %v, want ENOTDIR", err)
	}
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
		if _, err := disk.Open(dir, flag); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("open of a directory with flag %#x: %v, want EISDIR", flag, err)
		}
	}
	write(t, file, 0, "hello")
	reader := open(t, disk, name, os.O_RDONLY)
	expect(t, reader, "hello")
	if _, err := reader.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("write to a file opened for reading: %v, want EBADF", err)
	}
	if err := reader.Truncate(0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("truncation of a file opened for reading: %v, want EBADF", err)
	}
	expect(t, open(t, disk, name, os.O_RDWR|os.O_CREATE), "hello")
	expect(t, open(t, disk, name, os.O_RDWR|os.O_TRUNC), "")
	expect(t, file, "")
}

func testReadWrite(t *testing.T, disk vfs.FS, dir string) {
	file := open(t, disk, filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE)
	write(t, file, 3, "abc")
	expect(t, file, "\x00\x00\x00abc")
	write(t, file, 1, "zz")
	expect(t, file, "\x00zzabc")
	for _, one := range []struct {
		off, length int64
		want        string
		err         error
	}{
		{0, 6, "\x00zzabc", nil},
		{2, 2, "za", nil},
		{4, 9, "bc", io.EOF},
		{6, 1, "", io.EOF},
		{99, 1, "", io.EOF},
		{6, 0, "", nil},
	} {
		p := make([]byte, one.length)
		n, err := file.ReadAt(p, one.off)
		if string(p[:n]) != one.want || !errors.Is(err, one.err) {
			t.Errorf("read %d at %d: %q, %v; want %q, %v", one.length, one.off, p[:n], err, one.want, one.err)
		}
	}
	if _, err := file.ReadAt(make([]byte, 1), -1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("read at -1: %v, want EINVAL", err)
	}
	if _, err := file.WriteAt([]byte("a"), -1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("write at -1: %v, want EINVAL", err)
	}
	p := []byte("mine")
	if _, err := file.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	copy(p, "gone")
	expect(t, file, "minebc")
}

func testVectors(t *testing.T, disk vfs.FS, dir string) {
	for _, count := range []int{0, 1, 2, 1023, 1024, 1025, 3000} {
		file := open(t, disk, filepath.Join(dir, fmt.Sprint(count)), os.O_RDWR|os.O_CREATE)
		write(t, file, 0, "head")
		bufs := make([][]byte, 0, count)
		for i := range count {
			bufs = append(bufs, fmt.Appendf(nil, "%*d", i%5, i%7)[:i%5]) // some are empty
		}
		want := "head" + string(bytes.Join(bufs, nil))
		before := slices.Clone(bufs)
		n, err := file.WriteV(bufs, 4)
		if err != nil || n != int64(len(want)-4) {
			t.Errorf("%d buffers: wrote %d, %v; want %d", count, n, err, len(want)-4)
		}
		expect(t, file, want)
		for i := range bufs {
			if !bytes.Equal(bufs[i], before[i]) {
				t.Fatalf("%d buffers: the caller's slice %d was changed", count, i)
			}
		}
	}
}

func testTruncate(t *testing.T, disk vfs.FS, dir string) {
	file := open(t, disk, filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE)
	write(t, file, 0, "abcdef")
	must(t, file.Truncate(2))
	expect(t, file, "ab")
	must(t, file.Truncate(4))
	expect(t, file, "ab\x00\x00")
	if err := file.Truncate(-1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("truncation to -1: %v, want EINVAL", err)
	}
}

func testList(t *testing.T, disk vfs.FS, dir string) {
	for _, name := range []string{"b", "c", "a"} {
		write(t, open(t, disk, filepath.Join(dir, name), os.O_RDWR|os.O_CREATE), 0, name+name)
	}
	must(t, disk.MkdirAll(filepath.Join(dir, "aa", "x", "y")))
	must(t, disk.MkdirAll(filepath.Join(dir, "aa", "x")))
	got, err := disk.List(dir)
	for i := range got {
		if got[i].Dir && !got[i].Modified.IsZero() {
			t.Errorf("directory %s has a time", got[i].Name)
		}
		got[i].Modified = time.Time{}
	}
	want := []vfs.Entry{{Name: "a", Size: 2}, {Name: "aa", Dir: true}, {Name: "b", Size: 2}, {Name: "c", Size: 2}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("list: %v, %v; want %v", got, err, want)
	}
	if _, err := disk.List(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("list of a missing directory: %v, want ErrNotExist", err)
	}
	if _, err := disk.List(filepath.Join(dir, "a")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("list of a file: %v, want ENOTDIR", err)
	}
	if err := disk.MkdirAll(filepath.Join(dir, "a", "b")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("directory below a file: %v, want ENOTDIR", err)
	}
}

func testRename(t *testing.T, disk vfs.FS, dir string) {
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	file := open(t, disk, a, os.O_RDWR|os.O_CREATE)
	idle := open(t, disk, a, os.O_RDONLY)
	write(t, file, 0, "first")
	must(t, disk.Rename(a, b))
	if file.Name() != b || idle.Name() != b {
		t.Errorf("names %q and %q after the rename, want %q", file.Name(), idle.Name(), b)
	}
	other := open(t, disk, a, os.O_RDWR|os.O_CREATE)
	write(t, other, 0, "second")
	spend(t, disk, dir)
	write(t, file, 5, "+")
	expect(t, idle, "first+")
	expect(t, other, "second")
	must(t, disk.Rename(b, b))
	expect(t, file, "first+")
	if err := disk.Rename(c, a); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of a missing file: %v, want ErrNotExist", err)
	}
	if err := disk.Rename(b, filepath.Join(dir, "none", "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename into a missing directory: %v, want ErrNotExist", err)
	}
	must(t, disk.MkdirAll(c))
	if err := disk.Rename(b, c); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename over a directory: %v, want ErrExist", err)
	}
	if err := disk.Rename(c, filepath.Join(c, "d")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("rename of a directory into itself: %v, want EINVAL", err)
	}
	expect(t, file, "first+")
	expect(t, other, "second")
}

func testRenameDirectory(t *testing.T, disk vfs.FS, dir string) {
	old, renamed := filepath.Join(dir, "t-0"), filepath.Join(dir, "t-0.delete")
	must(t, disk.MkdirAll(filepath.Join(old, "deep")))
	must(t, disk.MkdirAll(filepath.Join(dir, "t-01")))
	outside := open(t, disk, filepath.Join(dir, "t-01", "a"), os.O_RDWR|os.O_CREATE)
	a := open(t, disk, filepath.Join(old, "a"), os.O_RDWR|os.O_CREATE)
	b := open(t, disk, filepath.Join(old, "deep", "b"), os.O_RDWR|os.O_CREATE)
	write(t, a, 0, "a")
	write(t, b, 0, "b")
	must(t, disk.Rename(old, renamed))
	spend(t, disk, dir)
	for _, one := range []struct {
		file vfs.File
		name string
	}{
		{a, filepath.Join(renamed, "a")},
		{b, filepath.Join(renamed, "deep", "b")},
		{outside, filepath.Join(dir, "t-01", "a")},
	} {
		if got := one.file.Name(); got != one.name {
			t.Errorf("name %q, want %q", got, one.name)
		}
	}
	must(t, disk.MkdirAll(filepath.Join(old, "deep")))
	write(t, open(t, disk, filepath.Join(old, "a"), os.O_RDWR|os.O_CREATE), 0, "new")
	spend(t, disk, dir)
	expect(t, a, "a")
	expect(t, b, "b")
	must(t, vfs.RemoveAll(disk, renamed))
	spend(t, disk, dir)
	expect(t, a, "a")
	expect(t, b, "b")
}

func testRenameOver(t *testing.T, disk vfs.FS, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	replaced := open(t, disk, b, os.O_RDWR|os.O_CREATE)
	write(t, replaced, 0, "old")
	file := open(t, disk, a, os.O_RDWR|os.O_CREATE)
	write(t, file, 0, "new")
	spend(t, disk, dir)
	must(t, disk.Rename(a, b))
	spend(t, disk, dir)
	expect(t, replaced, "old")
	expect(t, file, "new")
	expect(t, open(t, disk, b, os.O_RDONLY), "new")
	must(t, replaced.Close())
	expect(t, file, "new")
}

func testRemove(t *testing.T, disk vfs.FS, dir string) {
	name := filepath.Join(dir, "d", "a")
	if err := disk.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removal in a missing directory: %v, want ErrNotExist", err)
	}
	must(t, disk.MkdirAll(filepath.Dir(name)))
	file := open(t, disk, name, os.O_RDWR|os.O_CREATE)
	write(t, file, 0, "kept")
	if err := disk.Remove(filepath.Dir(name)); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("removal of a full directory: %v, want ENOTEMPTY", err)
	}
	spend(t, disk, dir)
	must(t, disk.Remove(name))
	if err := disk.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second removal: %v, want ErrNotExist", err)
	}
	again := open(t, disk, name, os.O_RDWR|os.O_CREATE)
	write(t, again, 0, "other")
	spend(t, disk, dir)
	expect(t, file, "kept")
	expect(t, again, "other")
	must(t, file.Close())
	expect(t, again, "other")
	must(t, disk.Remove(name))
	must(t, disk.Remove(filepath.Dir(name)))
}

func testClose(t *testing.T, disk vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	file := open(t, disk, name, os.O_RDWR|os.O_CREATE)
	other := open(t, disk, name, os.O_RDWR)
	write(t, file, 0, "a")
	must(t, file.Close())
	must(t, file.Close())
	_, readErr := file.ReadAt(make([]byte, 1), 0)
	_, writeErr := file.WriteAt([]byte("b"), 0)
	_, sizeErr := file.Size()
	_, _, descriptorErr := file.Descriptor()
	for _, err := range []error{readErr, writeErr, sizeErr, descriptorErr, file.Truncate(0), file.Sync()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("use of a closed file: %v, want ErrClosed", err)
		}
	}
	expect(t, other, "a")
}

func testSync(t *testing.T, disk vfs.FS, dir string) {
	file := open(t, disk, filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE)
	write(t, file, 0, "a")
	must(t, file.Sync())
	must(t, file.Sync())
	must(t, disk.SyncDir(dir))
	must(t, disk.SyncAll(dir))
	if err := disk.SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sync of a missing directory: %v, want ErrNotExist", err)
	}
	if err := disk.SyncAll(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sync of everything below a missing directory: %v, want ErrNotExist", err)
	}
}

func testHelpers(t *testing.T, disk vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	for _, want := range []string{"first", "", "second, which is longer"} {
		must(t, vfs.WriteAtomic(disk, name, []byte(want)))
		got, err := vfs.ReadFile(disk, name, 100)
		if err != nil || string(got) != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
	if _, err := vfs.ReadFile(disk, name, 5); !errors.Is(err, vfs.ErrTooLarge) {
		t.Errorf("read of a file over the limit: %v, want ErrTooLarge", err)
	}
	if err := vfs.WriteAtomic(disk, filepath.Join(dir, "none", "a"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("atomic write into a missing directory: %v, want ErrNotExist", err)
	}
	entries, err := disk.List(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("after the atomic writes: %v, %v; want one file", entries, err)
	}
	must(t, disk.MkdirAll(filepath.Join(dir, "b", "c")))
	must(t, vfs.WriteAtomic(disk, filepath.Join(dir, "b", "c", "d"), nil))
	for path, want := range map[string]bool{"a": true, "b": true, "b/c/d": true, "x": false, "x/y": false, "a/x": false} {
		got, err := vfs.Exists(disk, filepath.Join(dir, path))
		if err != nil || got != want {
			t.Errorf("exists %s: %v, %v; want %v", path, got, err, want)
		}
	}
	must(t, vfs.RemoveAll(disk, filepath.Join(dir, "b")))
	must(t, vfs.RemoveAll(disk, filepath.Join(dir, "b")))
	must(t, vfs.RemoveAll(disk, name))
	if entries, err := disk.List(dir); err != nil || len(entries) != 0 {
		t.Errorf("after removing all: %v, %v; want nothing", entries, err)
	}
}

// testConcurrent moves names under files in use: every File must go on seeing its own bytes.
func testConcurrent(t *testing.T, disk vfs.FS, dir string) {
	const workers, rounds = 8, 60
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			home := filepath.Join(dir, fmt.Sprintf("w%d", worker))
			text := fmt.Sprintf("worker %d", worker)
			if err := disk.MkdirAll(home); err != nil {
				t.Error(err)
				return
			}
			file, err := disk.Open(filepath.Join(home, "a"), os.O_RDWR|os.O_CREATE)
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			if _, err := file.WriteAt([]byte(text), 0); err != nil {
				t.Error(err)
			}
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					got := make([]byte, len(text))
					for range rounds {
						if _, err := file.ReadAt(got, 0); err != nil || string(got) != text {
							t.Errorf("read %q, %v; want %q", got, err, text)
						}
					}
				})
			}
			for round := range rounds {
				next := filepath.Join(dir, fmt.Sprintf("w%d.%d", worker, round))
				if err := disk.Rename(home, next); err != nil {
					t.Error(err)
				}
				home = next
				if err := vfs.WriteAtomic(disk, filepath.Join(home, "b"), []byte(text)); err != nil {
					t.Error(err)
				}
			}
			readers.Wait()
			if got, want := file.Name(), filepath.Join(home, "a"); got != want {
				t.Errorf("name %q, want %q", got, want)
			}
		})
	}
	group.Wait()
}

// spend uses other files, so that a disk with few descriptors has closed those of the test.
func spend(t *testing.T, disk vfs.FS, dir string) {
	t.Helper()
	for i := range 4 {
		name := filepath.Join(dir, fmt.Sprintf("spent%d", i))
		file := open(t, disk, name, os.O_RDWR|os.O_CREATE)
		write(t, file, 0, "x")
		must(t, disk.Remove(name))
		must(t, file.Close())
	}
}

func open(t *testing.T, disk vfs.FS, name string, flag int) vfs.File {
	t.Helper()
	file, err := disk.Open(name, flag)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func write(t *testing.T, file vfs.File, off int64, text string) {
	t.Helper()
	if n, err := file.WriteAt([]byte(text), off); err != nil || n != len(text) {
		t.Fatalf("write %d bytes at %d: %d, %v", len(text), off, n, err)
	}
}

func expect(t *testing.T, file vfs.File, want string) {
	t.Helper()
	size, err := file.Size()
	if err != nil || size != int64(len(want)) {
		t.Errorf("size %d, %v; want %d", size, err, len(want))
	}
	got := make([]byte, len(want))
	if n, err := file.ReadAt(got, 0); err != nil || n != len(want) || string(got) != want {
		t.Errorf("read %q, %v; want %q", got[:n], err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
