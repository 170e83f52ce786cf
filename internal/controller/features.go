package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tidemark-io/tidemark/internal/registry"
)

// FeatureUpdate asks for another level of a feature.
type FeatureUpdate struct {
	Feature string
	Level   int16
	// Down allows a lower level, and only that.
	Down bool
}

// UpdateFeatures finalises levels (D16): all of them or, with a *Refusal, none. It returns the levels that count then.
func (a *Admin) UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) (registry.Levels, error) {
	before, err := a.config.Cluster.Features(ctx)
	if err != nil {
		return registry.Levels{}, err
	}
	next := maps.Clone(before.Finalized)
	for _, u := range updates {
		if refused := a.judge(u, before.Finalized[u.Feature]); refused != "" {
			return before, refuse(ErrInvalidUpdateVersion, "%s", allFail(refused))
		}
		next[u.Feature] = u.Level
	}
	if validateOnly || maps.Equal(next, before.Finalized) {
		return before, nil
	}
	after, err := a.config.Cluster.Finalize(ctx, before, next)
	switch lacking, ok := errors.AsType[*registry.FeatureError](err); {
	case ok:
		return before, refuse(ErrInvalidUpdateVersion, "%s", allFail(fmt.Sprintf("Invalid update version %d for feature %s. Broker %d only supports versions %d-%d",
			lacking.Level, lacking.Feature, lacking.Broker, lacking.Min, lacking.Max)))
	case errors.Is(err, registry.ErrConflict):
		return before, refuse(ErrConcurrent, "The feature levels were changed by another request.")
	}
	return after, err
}

func allFail(why string) string {
	return "The update failed for all features since the following feature had an error: " + why
}

// judge says in Kafka's words why an update is refused; nothing if it is not.
func (a *Admin) judge(u FeatureUpdate, now int16) string {
	invalid := fmt.Sprintf("Invalid update version %d for feature %s. ", u.Level, u.Feature)
	has, known := a.config.Cluster.Feature(u.Feature)
	switch {
	case u.Level < 0:
		return invalid + "A feature version cannot be less than 0."
	case !known:
		return invalid + fmt.Sprintf("Local controller %d does not support this feature.", a.config.Broker)
	case u.Level < has.Min || u.Level > has.Max:
		return invalid + fmt.Sprintf("Local controller %d only supports versions %d-%d", a.config.Broker, has.Min, has.Max)
	case u.Level < now && !u.Down:
		return invalid + "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
	case u.Level > now && u.Down:
		return invalid + "Can't downgrade to a newer version."
	}
	return ""
}
