package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNoDescriptor is returned by [File.Descriptor] when the file has no descriptor of the operating system, as those of
// [Memory]. The caller reads with [File.ReadAt] instead.
var ErrNoDescriptor = errors.New("file has no descriptor")

// ErrTooLarge is returned by [ReadFile] when the file is larger than the caller is prepared to read.
var ErrTooLarge = errors.New("file is larger than allowed")

// FS is a disk. Names are paths as package filepath writes them, absolute or relative to the working directory; one
// file must always be called by one form of its name. Errors are [*fs.PathError] or [*os.LinkError] and answer
// errors.Is with [fs.ErrNotExist], [fs.ErrExist] and the system's error numbers. All methods may be called concurrently.
type FS interface {
	// Open opens a regular file. flag is os.O_RDONLY, or os.O_RDWR with any of os.O_CREATE, os.O_EXCL and os.O_TRUNC.
	// A file that Open created is durable only after SyncDir of its directory.
	Open(name string, flag int) (File, error)

	// Rename moves a file or a directory with all that is in it, and replaces a file called newName. Open Files follow:
	// they go on working and learn their new names. It is durable only after SyncDir of the directory (of both
	// directories, where they differ).
	Rename(oldName, newName string) error

	// Remove removes one file or one empty directory. Open Files of it go on working until they are closed.
	Remove(name string) error

	// MkdirAll makes a directory and its missing parents; it is not an error that they exist.
	MkdirAll(dir string) error

	// List returns the entries of a directory, sorted by name.
	List(dir string) ([]Entry, error)

	// SyncDir makes the entries of one directory durable: creations, renames and removals, not the contents of files.
	SyncDir(dir string) error

	// SyncAll makes everything at and below dir durable, files and directories. On Linux it is one syncfs of the whole
	// file system, worth it above some 64 dirty files; elsewhere it syncs one file after the other.
	SyncAll(dir string) error
}

// Entry is one name in a directory.
type Entry struct {
	Name     string    // base name
	Size     int64     // bytes; 0 for a directory
	Modified time.Time // of the contents of a file; zero for a directory, and where the disk has no clock
	Dir      bool
}

// File is an open regular file. It holds no descriptor until it is used. All methods may be called concurrently; after
// Close they return [fs.ErrClosed]. No method keeps a slice that it was given.
type File interface {
	// ReadAt is as [io.ReaderAt]: fewer bytes than len(p) come with an error, [io.EOF] at the end of the file.
	ReadAt(p []byte, off int64) (int, error)

	// WriteAt writes all of p or returns an error and how many bytes it wrote before that. A write beyond the end
	// leaves a hole that reads as zeros.
	WriteAt(p []byte, off int64) (int, error)

	// WriteV writes bufs one after the other from off on, in one system call where there is one. Like WriteAt it writes
	// all or returns an error with the bytes written so far.
	WriteV(bufs [][]byte, off int64) (int64, error)

	// Truncate cuts or extends the file to size bytes.
	Truncate(size int64) error

	// Sync makes the contents and the size durable (fdatasync), not the name: see [FS.SyncDir]. After a failed Sync
	// every later one of this File fails too: the system has dropped the bytes that it could not write, and a second
	// try that succeeds would be a lie.
	Sync() error

	// Size returns the length in bytes.
	Size() (int64, error)

	// Descriptor returns the descriptor for calls such as sendfile and keeps it open until release is called, also
	// across Close. The caller calls release exactly once and changes nothing about the descriptor. The error is
	// [ErrNoDescriptor] where there is none.
	Descriptor() (fd int, release func(), err error)

	// Close ends the use of the file. It does not sync. Closing twice is no error.
	Close() error

	// Name returns the present name: that given to Open, or the last one given by a Rename.
	Name() string
}

// Exists reports whether there is a file or a directory called name.
func Exists(disk FS, name string) (bool, error) {
	file, err := disk.Open(name, os.O_RDONLY)
	switch {
	case err == nil:
		return true, file.Close()
	case errors.Is(err, syscall.EISDIR):
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	}
	return false, err
}

// ReadFile reads a whole file of at most sizeMax bytes; a larger one gives [ErrTooLarge] before anything is allocated.
func ReadFile(disk FS, name string, sizeMax int64) ([]byte, error) {
	file, err := disk.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > sizeMax {
		return nil, fmt.Errorf("read %s of %d bytes, at most %d expected: %w", name, size, sizeMax, ErrTooLarge)
	}
	data := make([]byte, size)
	n, err := file.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data[:n], nil
}

// WriteAtomic replaces the file called name by one that holds data, durably: after a crash at any moment it holds the old
// bytes or the new ones. It writes name+".tmp", syncs it, renames it and syncs the directory. Two calls for one name
// must not run at once.
func WriteAtomic(disk FS, name string, data []byte) error {
	temporary := name + ".tmp"
	if err := writeSynced(disk, temporary, data); err != nil {
		_ = disk.Remove(temporary) // the first error says more
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := disk.Rename(temporary, name); err != nil {
		_ = disk.Remove(temporary)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := disk.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func writeSynced(disk FS, name string, data []byte) error {
	file, err := disk.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(data, 0); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

// RemoveAll removes a file, or a directory and everything in it. A name that does not exist is no error. Nothing is
// synced: after a crash part of it may be back.
func RemoveAll(disk FS, name string) error {
	entries, err := disk.List(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, syscall.ENOTDIR):
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(name, entry.Name)
		if entry.Dir {
			err = RemoveAll(disk, path)
		} else {
			err = disk.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// flagsKnown are the flags that Open takes.
const flagsKnown = os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

// checkFlag refuses flags that not every disk understands, and changing a file that is opened for reading.
func checkFlag(name string, flag int) error {
	if flag&^flagsKnown != 0 || flag != os.O_RDONLY && flag&os.O_RDWR == 0 || flag&os.O_EXCL != 0 && flag&os.O_CREATE == 0 {
		return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w: flag %#x is not O_RDONLY, or O_RDWR with O_CREATE, O_EXCL or O_TRUNC", fs.ErrInvalid, flag)}
	}
	return nil
}
