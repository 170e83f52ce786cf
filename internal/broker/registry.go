package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/console"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// registryDir is the folder of the embedded registry in the data directory.
const registryDir = "registry"

// openRegistry starts the embedded registry, alone or as one member of several, or reaches the one that is configured,
// and finds out which cluster this is.
func (b *Broker) openRegistry(ctx context.Context) (err error) {
	phase := b.phases.Begin("registry", "the embedded member waits for its disk, or for a majority of the members; external endpoints may be unreachable")
	if b.store, err = b.openStore(ctx, phase); err != nil {
		return err
	}
	b.cluster = registry.NewCluster(b.store, b.config.Version, b.logger)
	fresh, err := b.foundingID()
	if err != nil {
		return err
	}
	id, err := b.cluster.Initialize(ctx, b.logs.ClusterID(), fresh)
	for errors.Is(err, registry.ErrUnavailable) && ctx.Err() == nil { // a member has lost its leader; the first id stays
		phase.Detail("waiting for a leader of the registry")
		sleep(ctx, takeoverPause)
		id, err = b.cluster.Initialize(ctx, b.logs.ClusterID(), fresh)
	}
	if err != nil {
		return err
	}
	if err := b.logs.SetCluster(id); err != nil {
		return err
	}
	if b.door != nil {
		b.door.SetCluster(id)
	}
	phase.End()
	return nil
}

// openStore returns when the registry answers.
func (b *Broker) openStore(ctx context.Context, phase console.Phase) (registry.Store, error) {
	if b.config.Registry != nil {
		return b.config.Registry, nil
	}
	if b.config.embedsRegistry() {
		return b.openQuorum(ctx, phase)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, registryStartPatience, errors.New("the registry did not answer within a minute"))
	defer cancel()
	if len(b.config.RegistryEndpoints) > 0 {
		return registry.Dial(ctx, registry.DialConfig{Endpoints: b.config.RegistryEndpoints, TLS: b.config.RegistryTLS, Logger: b.logger})
	}
	return b.embed(ctx, phase)
}

// openQuorum opens this broker's door to the other brokers, and starts the member behind it or becomes a client of the
// members. It takes as long as they take.
func (b *Broker) openQuorum(ctx context.Context, phase console.Phase) (_ registry.Store, err error) {
	var peers []registry.Peer
	for _, other := range b.config.Cluster {
		peers = append(peers, registry.Peer{Broker: other.ID, Address: other.Registry.String()})
	}
	b.door, err = registry.OpenDoor(registry.DoorConfig{
		Broker: b.config.BrokerID, Peers: peers, Members: RegistryMembers(len(peers), b.config.RegistryMembers), Cluster: b.logs.ClusterID(),
		Dir: filepath.Join(b.config.DataDir, registryDir), Listener: b.registryListener, TLS: b.config.RegistryTLS, Logger: b.logger,
	})
	if err != nil {
		return nil, err
	}
	if b.door.Member() {
		return b.embed(ctx, phase)
	}
	for said := false; ; said = true {
		store, err := registry.Dial(ctx, registry.DialConfig{Endpoints: b.door.Endpoints(), TLS: b.config.RegistryTLS, Logger: b.logger})
		if err == nil || ctx.Err() != nil {
			return store, err
		}
		if !said {
			b.logger.Info("waiting for the members of the registry", slog.Any("err", err))
			phase.Detail(fmt.Sprintf("waiting for %v", b.door.Endpoints()))
		}
	}
}

// embed starts the member of this process.
func (b *Broker) embed(ctx context.Context, phase console.Phase) (registry.Store, error) {
	member, err := registry.StartEmbedded(ctx, registry.EmbeddedConfig{
		Dir: filepath.Join(b.config.DataDir, registryDir), Logger: b.logger, Door: b.door, Waiting: phase.Detail,
		FreeBytes: func(dir string) (uint64, error) {
			free, _, err := b.config.FreeBytes(dir)
			return free, err
		},
	})
	if err != nil {
		return nil, err
	}
	b.embedded = member
	return member.Store(), nil
}

// RecoverRegistry makes the member of the registry in a data directory the only one (registry.Recover), while no broker
// uses the directory: a *StartError says what is in the way.
func RecoverRegistry(ctx context.Context, dir string, logger *slog.Logger) (index int64, err error) {
	lock, err := commitlog.LockDirectory(dir)
	if err != nil {
		return 0, explain(err, dir)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	index, err = registry.Recover(ctx, filepath.Join(dir, registryDir), logger)
	return index, explain(err, dir)
}

// followFeatures keeps up with the finalised feature levels, until ctx ends.
func (b *Broker) followFeatures(ctx context.Context) error {
	return b.cluster.FollowFeatures(ctx, &b.features)
}

// quorum tells of the registry's members; nil when they are no brokers.
func (b *Broker) quorum() func(context.Context) registry.Quorum {
	switch {
	case b.embedded != nil:
		return b.embedded.Quorum
	case b.door != nil:
		return b.door.Quorum
	default:
		return nil
	}
}

// embedsRegistry tells whether the registry is embedded in the brokers of a cluster.
func (c Config) embedsRegistry() bool {
	return len(c.Cluster) > 0 && c.Registry == nil && len(c.RegistryEndpoints) == 0
}

// RegistryMembers is how many of the brokers are members of the registry: an odd number, since an even one bears no more
// failures than the odd one below it.
func RegistryMembers(brokers, wanted int) int {
	n := min(brokers, wanted)
	return n - 1 + n%2
}

// foundingID is the id of a cluster that this start may found; empty if it may not. Partitions without their registry, or a
// directory that has been in use, are not the beginning of a cluster but the loss of one: its topics are unknown, and all
// partitions would be set aside.
func (b *Broker) foundingID() (string, error) {
	held, err := b.logs.HoldsPartitions()
	if err != nil || held || b.logs.Joined() {
		return "", err
	}
	fresh, err := meta.NewTopicID(rand.Reader) // cluster ids have the form of topic ids
	return fresh.String(), err
}
