package broker

import (
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/console"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// live tells what only a new process can remedy.
func (b *Broker) live() error {
	if parts := b.running.Load(); parts != nil {
		return parts.registryFailed()
	}
	return nil
}

// registryFailed is registry.ErrFailed once the embedded member has met an error that it cannot survive.
func (p *parts) registryFailed() error {
	if p.embedded == nil {
		return nil
	}
	select {
	case <-p.embedded.Failed():
		return fmt.Errorf("restart this broker: %w", registry.ErrFailed)
	default:
		return nil
	}
}

// checks tells the state of what clients need.
func (b *Broker) checks() []console.Check {
	p := b.running.Load()
	if p == nil {
		return nil
	}
	controller := error(nil)
	if p.state.load().Controller() == meta.NoBroker {
		controller = errors.New("no statement of a controller was applied yet")
	}
	partitions := error(nil)
	if _, offline := p.table.Len(); offline > 0 {
		partitions = fmt.Errorf("%d partitions are offline: the log says why", offline)
	}
	return []console.Check{
		{Name: "registry", Err: p.registryFailed(), Degraded: b.door != nil}, // the other members serve
		{Name: "controller", Err: controller},
		{Name: "disk", Err: p.disk.err(), Degraded: true},
		{Name: "partitions", Err: partitions, Degraded: true},
	}
}
