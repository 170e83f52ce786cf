package broker

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// snapshot copies the data directory of a running, idle broker: what a kill at this moment would leave. Sockets are left
// out.
func (r *running) snapshot() string {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), "data")
	err := filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(r.dir, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, rest)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// TestKilled proves that a killed process loses nothing and costs no membership while the kernel runs on: the logs are
// scanned, the epoch is resumed. D9
func TestKilled(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("kept", nil)
	for range 5 {
		b.produceOne("kept", "x")
	}
	epoch := b.leaderEpoch("kept")
	again := start(t, b.snapshot(), nil)
	if summary := again.logs.Summary(); summary.Scanned != 1 || summary.CutBytes != 0 {
		t.Errorf("recovery: %+v", summary)
	}
	if got := again.leaderEpoch("kept"); bootID() != "" && got != epoch {
		t.Errorf("the epoch is %d after a kill, was %d", got, epoch)
	}
	if values := again.read("kept", 0, 5); len(values) != 5 {
		t.Errorf("read %v", values)
	}
	if offset := again.produceOne("kept", "y"); offset != 5 {
		t.Errorf("the next record got offset %d", offset)
	}
}

// TestPowerCut proves that a start after another boot, without a mark, is unclean: the leader goes on in a new epoch
// (E-8), and a torn end is cut.
func TestPowerCut(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("torn", nil)
	for range 5 {
		b.produceOne("torn", "x")
	}
	epoch := b.leaderEpoch("torn")
	dir := b.snapshot()
	if err := os.WriteFile(filepath.Join(dir, ".tidemark-boot-id"), []byte("another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, "torn-0", "00000000000000000000.log")
	info, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(segment, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	again := start(t, dir, nil)
	if summary := again.logs.Summary(); summary.CutBytes == 0 || len(summary.Cut) != 1 {
		t.Errorf("recovery: %+v", summary)
	}
	if got := again.leaderEpoch("torn"); got <= epoch {
		t.Errorf("the epoch is %d after a power cut, was %d", got, epoch)
	}
	if values := again.read("torn", 0, 4); len(values) != 4 {
		t.Errorf("read %v", values)
	}
	if offset := again.produceOne("torn", "y"); offset != 4 {
		t.Errorf("the next record got offset %d", offset)
	}
}

// TestStrayIsKept proves that a partition directory which the registry does not know is set aside and kept. U-54 U-57
func TestStrayIsKept(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("known", nil)
	b.produceOne("known", "x")
	b.close()
	if err := os.Rename(filepath.Join(b.dir, "known-0"), filepath.Join(b.dir, "unknown-0")); err != nil {
		t.Fatal(err)
	}
	metadata := filepath.Join(b.dir, "unknown-0", "partition.metadata")
	if err := os.WriteFile(metadata, []byte("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, b.dir, nil)
	if kept := again.logs.Strays(); len(kept) != 1 {
		t.Errorf("strays: %v", kept)
	}
	if offset := again.produceOne("known", "y"); offset != 0 {
		t.Errorf("the known topic's new log starts at %d", offset)
	}
}

// TestTwoBrokersInOneProcess proves that nothing is global.
func TestTwoBrokersInOneProcess(t *testing.T) {
	a, b := start(t, filepath.Join(t.TempDir(), "a"), nil), start(t, filepath.Join(t.TempDir(), "b"), nil)
	a.create("same", nil)
	b.create("same", nil)
	a.produceOne("same", "in a")
	b.produceOne("same", "in b")
	if got := a.read("same", 0, 1)[0] + b.read("same", 0, 1)[0]; got != "in ain b" {
		t.Errorf("read %q", got)
	}
	if a.logs.ClusterID() == b.logs.ClusterID() {
		t.Error("both have one cluster id")
	}
}
