package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// ErrNoMember is returned by Recover for a directory that holds no member of a registry.
var ErrNoMember = errors.New("there is no member of a registry")

// Recover makes the member in a directory the only one of its registry, for a cluster whose other members are lost for
// ever, a majority of them: it has what it had heard of when they were lost. No broker may use the directory meanwhile, and
// the former members may never start again: together they would go on as the registry that they were. Recover returns the
// member's last index: of several members that are left, the highest one knows the most.
func Recover(ctx context.Context, dir string, logger *slog.Logger) (index int64, err error) {
	if !initialised(dir) {
		return 0, fmt.Errorf("recover the registry in %s: %w", dir, ErrNoMember)
	}
	member, err := StartEmbedded(ctx, EmbeddedConfig{Dir: dir, Logger: logger, BallastBytes: -1, forget: true})
	if err != nil {
		return 0, err
	}
	index = int64(member.etcd.Server.AppliedIndex())
	return index, member.Close()
}
