package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// images publishes the Image. Reading it costs one atomic load; whoever waits for a revision is told of every change.
type images struct {
	current atomic.Pointer[meta.Image]
	mu      struct {
		sync.Mutex
		changed chan struct{} // closed by the next change; nil while nobody waits
	}
}

func newImages(clusterID string) *images {
	s := &images{}
	s.current.Store(meta.NewImage(clusterID))
	return s
}

// load is the present Image.
func (s *images) load() *meta.Image { return s.current.Load() }

// store publishes the next Image. Calls are made by one goroutine at a time.
func (s *images) store(image *meta.Image) {
	s.mu.Lock()
	s.current.Store(image)
	changed := s.mu.changed
	s.mu.changed = nil
	s.mu.Unlock()
	if changed != nil {
		close(changed)
	}
}

// wait returns when the Image shows everything written up to the registry revision, or ctx ends.
func (s *images) wait(ctx context.Context, revision int64) error {
	return s.until(ctx, func(image *meta.Image) bool { return image.Reflects(revision) })
}

// until returns when the Image satisfies the condition, or ctx ends.
func (s *images) until(ctx context.Context, satisfied func(*meta.Image) bool) error {
	for {
		s.mu.Lock()
		if satisfied(s.current.Load()) {
			s.mu.Unlock()
			return nil
		}
		if s.mu.changed == nil {
			s.mu.changed = make(chan struct{})
		}
		changed := s.mu.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
