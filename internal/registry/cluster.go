package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

var (
	// ErrNewerFormat is returned by Initialize when a newer build wrote the registry; its text names both.
	ErrNewerFormat = errors.New("registry has a newer format")

	// ErrOtherCluster is returned by Initialize when the registry belongs to another cluster.
	ErrOtherCluster = errors.New("registry belongs to another cluster")

	// ErrNotFounded is returned by Initialize when the registry is empty and the caller may not found a cluster.
	ErrNotFounded = errors.New("registry is empty")

	// ErrConflict is returned by conditional writes when what they were decided on has changed: read again and decide
	// again.
	ErrConflict = errors.New("registry value has changed")

	// ErrDeposed is returned by guarded writes when the caller is not the controller, or not the live broker, any more.
	ErrDeposed = errors.New("writer is deposed")

	// ErrTopicExists is returned by CreateTopics for a name that is taken.
	ErrTopicExists = errors.New("topic exists")

	// ErrUnknownBroker is returned by Forget for a broker that never was in the cluster, or is forgotten already.
	ErrUnknownBroker = errors.New("unknown broker")

	// ErrUnknownTopic is returned for a topic that does not exist, or not any more.
	ErrUnknownTopic = errors.New("unknown topic")
)

// conflictRetries bounds how often a read-decide-write is repeated when others keep changing the value.
const conflictRetries = 16

// Cluster is the typed face of a Store. It holds no state of the cluster; its methods may be called concurrently.
type Cluster struct {
	store    Store
	logger   *slog.Logger
	version  string
	features []Feature // Supported
}

// NewCluster wraps a store. The version is this build's, for messages; the logger may be nil.
func NewCluster(store Store, version string, logger *slog.Logger) *Cluster {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Cluster{store: store, logger: logger, version: version, features: Supported}
}

// Initialize checks the format, and founds the cluster with the given id if the registry is empty. It returns the
// cluster's id. A wanted id that the registry contradicts is ErrOtherCluster; wanted is empty when the caller knows
// none. A fresh id is used only for founding; an empty one means that the caller has data of a cluster, so that an empty
// registry is the loss of one: ErrNotFounded.
func (c *Cluster) Initialize(ctx context.Context, wanted, fresh string) (clusterID string, err error) {
	founding := cmp.Or(wanted, fresh)
	txn := Txn{Conds: []Cond{Absent(formatKey)}, Else: []Op{Get(formatKey), Get(clusterKey)}}
	if fresh != "" {
		txn.Then = []Op{
			Put(formatKey, encode(formatValue{Version: FormatVersion, WrittenBy: c.version})),
			Put(clusterKey, encode(clusterValue{ID: founding})),
			Put(featuresKey, encode(featuresValue{Finalized: c.newest()})),
		}
	}
	result, err := c.store.Txn(ctx, txn)
	if err != nil {
		return "", fmt.Errorf("open registry: %w", err)
	}
	if result.Succeeded {
		if fresh == "" {
			return "", ErrNotFounded
		}
		return founding, nil
	}
	format, err := decode[formatValue](*result.Results[0].Entry)
	if err != nil {
		return "", err
	}
	if format.Version > FormatVersion {
		return "", fmt.Errorf("%w: version %d, written by tidemark %s; this is tidemark %s, which reads up to version %d",
			ErrNewerFormat, format.Version, format.WrittenBy, c.version, FormatVersion)
	}
	if result.Results[1].Entry == nil {
		return "", fmt.Errorf("registry has a format but no cluster id: the key %s is missing", clusterKey)
	}
	cluster, err := decode[clusterValue](*result.Results[1].Entry)
	if err != nil {
		return "", err
	}
	if wanted != "" && wanted != cluster.ID {
		return "", fmt.Errorf("%w: it is %s, the data directory is of %s", ErrOtherCluster, cluster.ID, wanted)
	}
	return cluster.ID, nil
}

// NextProducerIDs takes a block of producer ids that nobody else gets. It returns the first one.
func (c *Cluster) NextProducerIDs(ctx context.Context, broker meta.BrokerID, count int64) (first int64, err error) {
	for range conflictRetries {
		entry, err := c.get(ctx, producerIDsKey)
		if err != nil {
			return 0, fmt.Errorf("take producer ids: %w", err)
		}
		current := producerIDsValue{}
		if entry.Version > 0 {
			if current, err = decode[producerIDsValue](entry); err != nil {
				return 0, err
			}
		}
		result, err := c.store.Txn(ctx, Txn{
			Conds: []Cond{ModifiedAt(producerIDsKey, entry.Mod)},
			Then:  []Op{Put(producerIDsKey, encode(producerIDsValue{Next: current.Next + count, Broker: broker}))},
		})
		if err != nil {
			return 0, fmt.Errorf("take producer ids: %w", err)
		}
		if result.Succeeded {
			return current.Next, nil
		}
	}
	return 0, fmt.Errorf("take producer ids: %w", ErrConflict)
}

// get reads one key; Version is 0 when there is none.
func (c *Cluster) get(ctx context.Context, key string) (Entry, error) {
	result, err := c.store.Txn(ctx, Txn{Then: []Op{Get(key)}})
	if err != nil || result.Results[0].Entry == nil {
		return Entry{}, err
	}
	return *result.Results[0].Entry, nil
}

// pages reads all keys with a prefix as of one revision.
func (c *Cluster) pages(ctx context.Context, prefix string, each func(Entry)) (revision int64, err error) {
	r := Range{Prefix: prefix, Limit: pageEntries}
	for {
		page, err := c.store.Range(ctx, r)
		if err != nil {
			return 0, err
		}
		for _, entry := range page.Entries {
			each(entry)
		}
		if !page.More {
			return page.Revision, nil
		}
		r.Revision, r.After = page.Revision, page.Entries[len(page.Entries)-1].Key
	}
}

// KeepAlive renews a lease of the given length until ctx ends (nil) or the lease is gone (ErrLeaseGone). A renewal that
// fails is repeated: the lease may outlive the fault.
func (c *Cluster) KeepAlive(ctx context.Context, lease Lease, ttl time.Duration) error {
	ticker := time.NewTicker(ttl / 3)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, ttl/3)
		err := c.store.KeepAlive(attempt, lease)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLeaseGone) || errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed):
			return err
		case err != nil:
			c.logger.Warn("registry lease was not renewed, trying again", slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
