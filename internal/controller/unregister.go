package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// UnregisterBroker takes a broker out of the cluster that does not come back: deletions wait for it no longer. Unlike
// Kafka it refuses one that runs, which would only register again.
func (a *Admin) UnregisterBroker(ctx context.Context, id meta.BrokerID) error {
	err := a.config.Cluster.Forget(ctx, id)
	switch {
	case errors.Is(err, registry.ErrUnknownBroker):
		return &Refusal{ErrUnknownBroker, fmt.Sprintf("Broker ID %d is not currently registered", id)}
	case errors.Is(err, registry.ErrConflict):
		return &Refusal{ErrInvalidRequest, fmt.Sprintf("Broker %d is running; stop it before it is unregistered", id)}
	}
	return err
}
