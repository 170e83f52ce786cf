package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// explain turns an error of the start into a *StartError, if there is something that its reader can do.
func explain(err error, dir string) error {
	var locked *commitlog.LockedError
	var mismatch *commitlog.MismatchError
	var newer *commitlog.NewerFormatError
	var foreign *commitlog.ForeignError
	var feature *registry.FeatureError
	var start *StartError
	fault, fix := StartFault(0), ""
	switch {
	case err == nil || errors.As(err, &start):
		return err
	case errors.As(err, &locked):
		fault, fix = DirectoryLocked, "stop that process, or choose another directory with --set log.dirs=PATH"
		if locked.PID != 0 {
			fix = fmt.Sprintf("stop process %d, or choose another directory with --set log.dirs=PATH", locked.PID)
		}
	case errors.As(err, &mismatch) && mismatch.Field == "node.id":
		fault, fix = OtherCluster, fmt.Sprintf("start with --set node.id=%s, or choose another directory with --set log.dirs=PATH", mismatch.Have)
	case errors.As(err, &mismatch), errors.Is(err, registry.ErrOtherCluster):
		fault, fix = OtherCluster, "choose the data directory of this cluster with --set log.dirs=PATH, or an empty one"
	case errors.As(err, &foreign):
		fault, fix = OtherCluster, "choose another directory with --set log.dirs=PATH, and copy the topics with clients while Kafka runs"
	case errors.Is(err, registry.ErrNotFounded):
		fault = OtherCluster
		err = fmt.Errorf("data directory %s belongs to a cluster, and no topic is known: %w", dir, err)
		fix = fmt.Sprintf("restore %s from a backup, or choose another directory with --set log.dirs=PATH", filepath.Join(dir, registryDir))
	case errors.Is(err, registry.ErrLost):
		fault = OtherCluster
		fix = "start the brokers that were members of the registry with their data directories, or restore one of those from a backup"
	case errors.Is(err, registry.ErrSplit):
		fault = OtherCluster
		fix = fmt.Sprintf("the brokers of the list were started apart before: keep the data of one cluster, and give the others empty directories in place of %s", dir)
	case errors.Is(err, registry.ErrRemoved):
		fault = OtherCluster
		fix = fmt.Sprintf("to let this broker in again as a new member, stop whoever took its place, remove %s and start it again", filepath.Join(dir, registryDir))
	case errors.Is(err, registry.ErrNeedsCluster):
		fault = OtherCluster
		fix = "start this broker with --cluster and the list that the others have"
	case errors.Is(err, registry.ErrFailed):
		fault = DirectoryUnusable
		fix = fmt.Sprintf("if the disk is full free some space, else restore %s from a backup; partitions are not touched", filepath.Join(dir, registryDir))
	case errors.As(err, &newer), errors.Is(err, registry.ErrNewerFormat), errors.As(err, &feature):
		fault, fix = NewerFormat, "run the version that wrote it, or a newer one"
	case errors.Is(err, commitlog.ErrUnwritable), errors.Is(err, fs.ErrPermission):
		fault, fix = DirectoryUnusable, fmt.Sprintf("make %s a directory that this user can write, or choose another with --set log.dirs=PATH", dir)
	case errors.Is(err, commitlog.ErrBadMeta):
		fault, fix = DirectoryUnusable, "repair the line, or choose another directory with --set log.dirs=PATH"
	default:
		return err
	}
	return &StartError{Fault: fault, Err: err, Fix: fix}
}
