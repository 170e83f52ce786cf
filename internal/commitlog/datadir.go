package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Files of a data directory; the checkpoints are in checkpoint.go.
const (
	lockFileName  = ".lock"
	metaFileName  = "meta.properties"
	cleanFileName = ".kafka_cleanshutdown"
	bootFileName  = ".tidemark-boot-id"
)

// FormatVersion is the version of what this build writes in a data directory, where that is not Kafka's. It rises when an
// older build could no longer read it.
const FormatVersion = 1

// smallFileBytesMax bounds what is read of the files above.
const smallFileBytesMax = 64 << 10

// Errors of OpenManager that are not types of their own.
var (
	// ErrUnwritable is returned by OpenManager when the data directory cannot be made or written to. It names the path.
	ErrUnwritable = errors.New("data directory is not writable")
	// ErrBadMeta is returned by OpenManager when meta.properties does not parse. It names the line.
	ErrBadMeta = errors.New("malformed meta.properties")
)

// LockedError is returned by OpenManager when another process uses the data directory.
type LockedError struct {
	Dir string
	PID int // of the other process; 0 if it has not said
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is locked by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is locked by process %d", e.Dir, e.PID)
}

// MismatchError is returned by OpenManager and SetCluster when the data directory belongs to another cluster or broker.
type MismatchError struct {
	Dir        string
	Field      string // cluster.id or node.id
	Have, Want string // in meta.properties, and asked for
}

// Error names the field and both values.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("data directory %s has %s=%s in %s, this broker has %s", e.Dir, e.Field, e.Have, metaFileName, e.Want)
}

// NewerFormatError is returned by OpenManager when a newer build wrote the data directory.
type NewerFormatError struct {
	Dir               string
	Have, Understands int
}

// Error names both versions.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("data directory %s has format version %d, this build understands up to %d", e.Dir, e.Have, e.Understands)
}

// ForeignError is returned by OpenManager when Apache Kafka wrote the partitions in the data directory. Their topics are in
// Kafka's metadata, not in a registry: opening the directory would take every one of them for a stray.
type ForeignError struct{ Dir string }

// Error names the directory.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("data directory %s holds partitions of Apache Kafka", e.Dir)
}

// LockDirectory takes the lock of a data directory, for a tool that changes what is in it while no broker runs; closing it
// gives it back. A *LockedError names the process that has it.
func LockDirectory(dir string) (io.Closer, error) { return lockDirectory(dir) }

// lockDirectory takes the lock of a data directory. The file stays open, and locked, until it is closed.
func lockDirectory(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFileName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		var text [32]byte
		n, _ := file.ReadAt(text[:], 0) // only for the message
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	// On a full disk the lock must still be had; the number only helps people.
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return file, nil
}

// identity is the content of meta.properties.
type identity struct {
	cluster   string // empty: not known yet
	node      meta.BrokerID
	directory meta.DirectoryID
	format    int // 0: written by Kafka
}

// encode is the text of meta.properties, a Java properties file as Kafka writes it.
func (i identity) encode(now time.Time) []byte {
	return fmt.Appendf(nil, "#\n#%s\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\ntidemark.format.version=%d\nversion=1\n",
		now.UTC().Format("Mon Jan 02 15:04:05 MST 2006"), i.cluster, i.directory, i.node, i.format)
}

// decodeIdentity reads meta.properties. It returns ErrBadMeta with the line that is wrong.
func decodeIdentity(text []byte) (identity, error) {
	id := identity{node: meta.NoBroker}
	version := ""
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		var err error
		switch {
		case !found:
			err = errors.New("want key=value")
		case key == "version":
			version = value
		case key == "cluster.id":
			id.cluster = value
		case key == "node.id":
			var node int64
			node, err = parseNumber([]byte(value), 32)
			id.node = meta.BrokerID(node)
		case key == "directory.id":
			id.directory, err = meta.ParseDirectoryID(value)
		case key == "tidemark.format.version":
			var format int64
			format, err = parseNumber([]byte(value), 31)
			id.format = int(format)
		}
		if err != nil {
			return id, fmt.Errorf("%w: line %d, %q: %w", ErrBadMeta, number+1, clip([]byte(line)), err)
		}
	}
	if version != "1" {
		return id, fmt.Errorf("%w: version is %q, want \"1\"", ErrBadMeta, clip([]byte(version)))
	}
	return id, nil
}

// loadIdentity reads meta.properties and holds it against what this broker is. Without the file the directory is new.
func loadIdentity(o *ManagerOptions) (id identity, known bool, err error) {
	text, err := vfs.ReadFile(o.FS, filepath.Join(o.Dir, metaFileName), smallFileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		directory, err := meta.NewDirectoryID(o.Random)
		return identity{o.ClusterID, o.NodeID, directory, FormatVersion}, false, err
	}
	if err != nil {
		return id, true, fmt.Errorf("read %s: %w", metaFileName, err)
	}
	if id, err = decodeIdentity(text); err != nil {
		return id, true, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	switch {
	case id.format > FormatVersion:
		return id, true, &NewerFormatError{o.Dir, id.format, FormatVersion}
	case id.node != meta.NoBroker && id.node != o.NodeID:
		return id, true, &MismatchError{o.Dir, "node.id", id.node.String(), o.NodeID.String()}
	case id.cluster != "" && o.ClusterID != "" && id.cluster != o.ClusterID:
		return id, true, &MismatchError{o.Dir, "cluster.id", id.cluster, o.ClusterID}
	}
	if id.directory.IsZero() {
		if id.directory, err = meta.NewDirectoryID(o.Random); err != nil {
			return id, true, err
		}
	}
	id.node = o.NodeID
	if id.cluster == "" {
		id.cluster = o.ClusterID
	}
	return id, true, nil
}

// StartState is what a start can tell of the last stop (D9).
type StartState struct {
	// New says that the data directory held nothing.
	New bool
	// Marked says that the mark of a clean shutdown was there, for this directory: all logs were closed and synced, and are
	// opened without a scan. BrokerEpoch is the one it names, −1 if none.
	Marked      bool
	BrokerEpoch int64
	// SameBoot says that the machine has not been started again since the directory was last used, and that no I/O error
	// was noted: whatever was written, by a process that was killed too, is still there.
	SameBoot bool
	// OtherBoot says that it was started again since, and that no I/O error was noted before: what was synced is still there.
	OtherBoot bool
}

// cleanMark is the content of the mark: Kafka's two fields and the directory it was written in.
type cleanMark struct {
	Version     int               `json:"version"`
	BrokerEpoch int64             `json:"brokerEpoch"`
	DirectoryID *meta.DirectoryID `json:"directoryId,omitempty"`
}

// readStartState judges what the last stop left behind. A mark that does not parse, or is from another directory, is none.
func readStartState(o *ManagerOptions, id identity) (StartState, error) {
	state := StartState{BrokerEpoch: -1}
	text, err := vfs.ReadFile(o.FS, filepath.Join(o.Dir, cleanFileName), smallFileBytesMax)
	if err == nil {
		var mark cleanMark
		if json.Unmarshal(text, &mark) == nil && mark.Version == 0 && mark.DirectoryID != nil && *mark.DirectoryID == id.directory {
			state.Marked, state.BrokerEpoch = true, mark.BrokerEpoch
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return state, fmt.Errorf("read %s: %w", cleanFileName, err)
	}
	text, err = vfs.ReadFile(o.FS, filepath.Join(o.Dir, bootFileName), smallFileBytesMax)
	switch {
	case err == nil:
		state.SameBoot = o.BootID != "" && string(bytes.TrimSpace(text)) == o.BootID
		state.OtherBoot = o.BootID != "" && !state.SameBoot
	case !errors.Is(err, fs.ErrNotExist):
		return state, fmt.Errorf("read %s: %w", bootFileName, err)
	}
	return state, nil
}
