package registry

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// checkLog finds out whether the log of a lone member has lost its beginning: etcd would wait for ever for members that a log
// without entries does not name. A member that has not decided anything yet, because its first start was cut off, is
// removed: it is founded again.
func checkLog(dir string) error {
	if !initialised(dir) {
		return nil
	}
	member := filepath.Join(dir, "member")
	logs := filepath.Join(member, "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), logs)
	if err != nil || len(snapshots) == 0 || snapshots[len(snapshots)-1].GetIndex() > 0 {
		return nil //nolint:nilerr // etcd itself says what it cannot read
	}
	state, err := wal.Verify(zap.NewNop(), logs, snapshots[len(snapshots)-1])
	if err != nil || state.GetCommit() > 0 {
		return nil //nolint:nilerr // as above
	}
	database := filepath.Join(member, "snap", "db")
	if _, err := os.Stat(database); err == nil {
		b := backend.NewDefaultBackend(zap.NewNop(), database)
		tx := b.ReadTx()
		applied, _ := schema.ReadConsistentIndex(tx)
		if err := b.Close(); err != nil {
			return err
		}
		if applied > 0 {
			return fmt.Errorf("%w: its files are damaged: the log in %s is empty, and the database has %d changes", ErrFailed, logs, applied)
		}
	}
	return os.RemoveAll(member)
}
