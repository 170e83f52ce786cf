package commitlog

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// memoryDir is a disk with a durable, empty directory "p-0".
func memoryDir(t *testing.T) *vfs.Memory {
	t.Helper()
	disk := vfs.NewMemory(1)
	if err := disk.MkdirAll("p-0"); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncAll("."); err != nil {
		t.Fatal(err)
	}
	return disk
}

func overwrite(t *testing.T, disk vfs.FS, name, content string) {
	t.Helper()
	file, err := disk.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
}

func TestEpochFile(t *testing.T) {
	disk := memoryDir(t)
	if e, err := readEpochs(disk, "p-0"); e != nil || err != nil {
		t.Errorf("no file: %v, %v", e, err)
	}
	want := lineage(0, 0, 5, 12)
	if err := writeEpochs(disk, "p-0", want); err != nil {
		t.Fatal(err)
	}
	if e, err := readEpochs(disk, "p-0"); !slices.Equal(e, want) || err != nil {
		t.Errorf("read %v, %v", e, err)
	}
	overwrite(t, disk, "p-0/leader-epoch-checkpoint", "0\n2\n1 2\n")
	if e, err := readEpochs(disk, "p-0"); !errors.Is(err, ErrBadCheckpoint) {
		t.Errorf("malformed file: %v, %v", e, err)
	}
}

func TestOffsetFile(t *testing.T) {
	disk := memoryDir(t)
	name := recoveryPointFileName
	if offsets, err := readOffsets(disk, name); len(offsets) != 0 || err != nil {
		t.Errorf("no file: %v, %v", offsets, err)
	}
	want := map[PartitionName]int64{{"a", 1}: 5}
	if err := writeOffsets(disk, name, want); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []PartitionName{{"", 0}, {"a b", 0}, {"a\nb", 0}, {"a", -1}} {
		if err := writeOffsets(disk, name, map[PartitionName]int64{bad: 1}); !errors.Is(err, ErrBadPartitionName) {
			t.Errorf("%q: %v", bad.String(), err)
		}
	}
	if offsets, err := readOffsets(disk, name); !maps.Equal(offsets, want) || err != nil {
		t.Errorf("read %v, %v", offsets, err)
	}
	overwrite(t, disk, name, "0\n1\na 1\n")
	if offsets, err := readOffsets(disk, name); !errors.Is(err, ErrBadCheckpoint) {
		t.Errorf("malformed file: %v, %v", offsets, err)
	}
}

// U-56
func TestPartitionMetadataFile(t *testing.T) {
	disk := memoryDir(t)
	if id, err := readPartitionMetadata(disk, "p-0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v, %v", id, err)
	}
	want := meta.TopicID{9, 8, 7}
	if err := writePartitionMetadata(disk, "p-0", want); err != nil {
		t.Fatal(err)
	}
	if id, err := readPartitionMetadata(disk, "p-0"); id != want || err != nil {
		t.Errorf("read %v, %v", id, err)
	}
	overwrite(t, disk, "p-0/partition.metadata", "")
	if id, err := readPartitionMetadata(disk, "p-0"); !errors.Is(err, ErrBadPartitionMetadata) {
		t.Errorf("empty file: %v, %v", id, err)
	}
}

// U-53: whenever the power goes while a checkpoint is replaced, the old or the new one is there.
func TestCheckpointSurvivesPowerCut(t *testing.T) {
	before, after := lineage(0, 0), lineage(0, 0, 1, 7)
	for _, mode := range vfs.CrashModes {
		for point := range 100 {
			disk := memoryDir(t)
			if err := writeEpochs(disk, "p-0", before); err != nil {
				t.Fatal(err)
			}
			disk.CrashAtSync(disk.SyncPoints() + point + 1)
			done := writeEpochs(disk, "p-0", after) == nil
			crashed := disk.Crash(mode)
			got, err := readEpochs(crashed, "p-0")
			if err != nil || !slices.Equal(got, after) && (done || !slices.Equal(got, before)) {
				t.Fatalf("mode %v, sync point %d: read %v, %v", mode, point, got, err)
			}
			if done {
				break
			}
		}
	}
}
