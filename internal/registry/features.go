package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TidemarkLevel is the feature whose level says which values of the registry, which commands of the controller and which
// formats of records the brokers of a cluster may use with each other (D16). What a newer build could write that an older
// one cannot read raises it, and waits until the level is finalised.
const TidemarkLevel = "tidemark.version"

// Feature is something that brokers agree on by a level: those that this build can have, both ends included.
type Feature struct {
	Name     string
	Min, Max int16
}

// Supported lists the features of this build. The levels of metadata.version are Kafka's: 3.3-IV3 is the lowest that
// Apache Kafka 4.x knows, and 4.4-IV2 what the settings say; clients and consoles learn from it what release they have
// before them. Eligible leader replicas (KIP-966) are always kept.
var Supported = []Feature{
	{"eligible.leader.replicas.version", 1, 1},
	{"metadata.version", 7, 33},
	{TidemarkLevel, 1, 1},
}

// firstLevels are those of a registry in which nothing was ever finalised, and of brokers that say nothing of features.
var firstLevels = map[string]int16{"eligible.leader.replicas.version": 1, "metadata.version": 33, TidemarkLevel: 1}

// Levels are the finalised levels of features, as of the revision that set them; 0 when nothing was ever finalised.
type Levels struct {
	Finalized map[string]int16
	Revision  int64
}

// FeatureError is returned by Register when the cluster has a level that this build does not have, and by Finalize when
// a broker does not have the level that is asked for.
type FeatureError struct {
	Feature  string
	Level    int16
	Broker   meta.BrokerID // that does not have it
	Build    string        // that it runs
	Min, Max int16         // what it has; both 0 if it does not know the feature
}

// Error names both sides.
func (e *FeatureError) Error() string {
	has := fmt.Sprintf("has the levels %d to %d", e.Min, e.Max)
	if e.Max == 0 {
		has = "does not know it"
	}
	return fmt.Sprintf("feature %s is at level %d in this cluster, and broker %d with tidemark %s %s", e.Feature, e.Level, e.Broker, e.Build, has)
}

// Feature finds what this build has of a feature.
func (c *Cluster) Feature(name string) (Feature, bool) {
	i := slices.IndexFunc(c.features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{}, false
	}
	return c.features[i], true
}

// newest are the highest levels of this build.
func (c *Cluster) newest() map[string]int16 {
	levels := make(map[string]int16, len(c.features))
	for _, f := range c.features {
		levels[f.Name] = f.Max
	}
	return levels
}

// check tells whether this build has what the cluster has finalised; the error is a *FeatureError.
func (c *Cluster) check(id meta.BrokerID, levels Levels) error {
	for _, name := range slices.Sorted(maps.Keys(levels.Finalized)) {
		level := levels.Finalized[name]
		f, _ := c.Feature(name)
		if level < f.Min || level > f.Max {
			return &FeatureError{Feature: name, Level: level, Broker: id, Build: c.version, Min: f.Min, Max: f.Max}
		}
	}
	return nil
}

// Features are the finalised levels now.
func (c *Cluster) Features(ctx context.Context) (Levels, error) {
	entry, err := c.get(ctx, featuresKey)
	if err != nil {
		return Levels{}, fmt.Errorf("read feature levels: %w", err)
	}
	return levelsOf(entry)
}

func levelsOf(entry Entry) (Levels, error) {
	if entry.Version == 0 {
		return Levels{Finalized: firstLevels}, nil
	}
	value, err := decode[featuresValue](entry)
	return Levels{Finalized: value.Finalized, Revision: entry.Mod}, err
}

// Finalize sets levels, given what was finalised before: ErrConflict if that has changed. A registered broker without one
// of them is a *FeatureError, and nothing is set. Brokers that register while it happens find either the former levels or
// the new ones; one that slipped in with the former and lacks the new ones takes them back.
func (c *Cluster) Finalize(ctx context.Context, before Levels, finalized map[string]int16) (Levels, error) {
	if err := c.everybodyHas(ctx, finalized); err != nil {
		return Levels{}, err
	}
	after, err := c.setLevels(ctx, before.Revision, finalized)
	if err != nil {
		return Levels{}, err
	}
	if lacking := c.everybodyHas(ctx, finalized); lacking != nil {
		if _, ok := errors.AsType[*FeatureError](lacking); ok {
			_, err = c.setLevels(ctx, after.Revision, before.Finalized)
		}
		return Levels{}, errors.Join(lacking, err)
	}
	return after, nil
}

func (c *Cluster) setLevels(ctx context.Context, revision int64, finalized map[string]int16) (Levels, error) {
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{ModifiedAt(featuresKey, revision)}, Then: []Op{Put(featuresKey, encode(featuresValue{Finalized: finalized}))},
	})
	if err == nil && !result.Succeeded {
		err = ErrConflict
	}
	if err != nil {
		return Levels{}, fmt.Errorf("finalise feature levels: %w", err)
	}
	return Levels{Finalized: finalized, Revision: result.Revision}, nil
}

// everybodyHas tells whether each registered broker has the levels.
func (c *Cluster) everybodyHas(ctx context.Context, levels map[string]int16) error {
	var lacking error
	_, err := c.pages(ctx, registrationPrefix, func(entry Entry) {
		r, err := decode[Registration](entry)
		if err != nil {
			lacking = err
			return
		}
		id, err := parseBroker(entry.Key[len(registrationPrefix):])
		if err != nil {
			lacking = err
			return
		}
		has := r.Features
		if has == nil {
			has = firstLevels
		}
		for _, name := range slices.Sorted(maps.Keys(levels)) {
			if levels[name] > has[name] && lacking == nil {
				f, _ := c.Feature(name)
				lacking = &FeatureError{Feature: name, Level: levels[name], Broker: id, Build: r.Version, Min: min(f.Min, has[name]), Max: has[name]}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read registrations: %w", err)
	}
	return lacking
}

// FeatureView is what one broker knows of the finalised levels; it only moves forward. The zero value knows the first
// levels.
type FeatureView struct{ levels atomic.Pointer[Levels] }

// Load returns the levels, which must not be changed.
func (v *FeatureView) Load() Levels {
	if l := v.levels.Load(); l != nil {
		return *l
	}
	return Levels{Finalized: firstLevels}
}

// Advance takes over levels unless newer ones are known.
func (v *FeatureView) Advance(levels Levels) {
	for {
		known := v.levels.Load()
		if known != nil && known.Revision >= levels.Revision || v.levels.CompareAndSwap(known, &levels) {
			return
		}
	}
}

// followPause is the time before a broken watch of the levels is begun again.
const followPause = time.Second

// FollowFeatures keeps a view up to date until ctx ends. A watch that breaks is begun again.
func (c *Cluster) FollowFeatures(ctx context.Context, view *FeatureView) error {
	for {
		err := c.followFeatures(ctx, view)
		if ctx.Err() != nil || errors.Is(err, ErrFailed) {
			return err
		}
		c.logger.Warn("watch of feature levels broke and is begun again", slog.Any("err", err))
		timer := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (c *Cluster) followFeatures(ctx context.Context, view *FeatureView) error {
	page, err := c.store.Range(ctx, Range{Prefix: featuresKey, Limit: 1})
	if err != nil {
		return err
	}
	take := func(entry Entry) error {
		if entry.Key != featuresKey {
			return nil
		}
		levels, err := levelsOf(entry)
		if err == nil {
			view.Advance(levels)
		}
		return err
	}
	for _, entry := range page.Entries {
		if err := take(entry); err != nil {
			return err
		}
	}
	return c.store.Watch(ctx, featuresKey, page.Revision+1, func(changes Changes) error {
		for _, event := range changes.Events {
			if event.Deleted {
				continue // nobody but a person does that; what was finalised stays
			}
			if err := take(event.Entry); err != nil {
				return err
			}
		}
		return nil
	})
}
