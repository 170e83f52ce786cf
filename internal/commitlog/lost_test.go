package commitlog

import (
	"path/filepath"
	"testing"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// TestManagerTellsWhatWasLost: after a power cut a start knows whether something is gone that had been synced (D9).
func TestManagerTellsWhatWasLost(t *testing.T) {
	for _, test := range []struct {
		name string
		harm func(t *testing.T, disk *vfs.Memory)
		lost bool
	}{
		{"nothing", func(*testing.T, *vfs.Memory) {}, false},
		{"a log that ends early", func(t *testing.T, disk *vfs.Memory) {
			truncate(t, disk, filepath.Join("data", "a-0", "00000000000000000000.log"))
		}, true},
		{"a directory", func(t *testing.T, disk *vfs.Memory) {
			if err := vfs.RemoveAll(disk, filepath.Join("data", "a-0")); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a partition's identity", func(t *testing.T, disk *vfs.Memory) {
			truncate(t, disk, filepath.Join("data", "a-0", "partition.metadata"))
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := vfs.NewMemory(1)
			d := openDirectory(t, disk, "data")
			d.log("a", topicID(1), 0).fill(3, 50)
			log := d.log("b", topicID(2), 0)
			log.fill(10, 100)
			for _, l := range d.Logs() {
				if _, err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			log.fill(5, 100) // never synced: to lose it is to lose nothing
			disk = disk.Crash(vfs.Prefix)
			test.harm(t, disk)
			d.options.FS, d.options.BootID = disk, "another boot"
			summary := d.start()
			if summary.Lost != test.lost {
				t.Errorf("lost %v, want %v: %+v", summary.Lost, test.lost, summary)
			}
			if state := d.StartState(); !state.OtherBoot || state.SameBoot {
				t.Errorf("start state %+v", state)
			}
		})
	}
}

func truncate(t *testing.T, disk vfs.FS, name string) {
	t.Helper()
	if err := vfs.WriteAtomic(disk, name, nil); err != nil {
		t.Fatal(err)
	}
}
