package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// creations makes a topic at an even pace, one after the other, and keeps the longest time between two that were made.
type creations struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	made    chan struct{}

	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	failed  error // the last failure, for who waits in vain
}

// startCreations begins. One that fails is tried again under another name: the outcome of a call that was cut off is not
// known.
func startCreations(ctx context.Context, cl *kgo.Client, name string) *creations {
	ctx, cancel := context.WithCancel(ctx)
	c := &creations{cancel: cancel, made: make(chan struct{}, 1024), last: time.Now()}
	c.running.Go(func() {
		n := 0
		_ = poll(ctx, createEvery, func(ctx context.Context) (bool, error) {
			n++
			one, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			c.take(createTopic(one, cl, topic{name: fmt.Sprintf("%s-%d", name, n), partitions: 1, replicas: 2}))
			return false, nil // until the context ends
		})
	})
	return c
}

func (c *creations) take(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = err
		return
	}
	now := time.Now()
	c.longest = max(c.longest, now.Sub(c.last))
	c.last = now
	select {
	case c.made <- struct{}{}:
	default: // nobody has waited for long
	}
}

// mark returns the longest gap since the last mark.
func (c *creations) mark() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.longest
	c.longest = 0
	for len(c.made) > 0 {
		<-c.made
	}
	return longest
}

// await returns when so many more were made.
func (c *creations) await(ctx context.Context, n int) error {
	for range n {
		select {
		case <-c.made:
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Errorf("no topic is created: %w", errors.Join(context.Cause(ctx), c.failed))
		}
	}
	return nil
}

func (c *creations) stop() {
	c.cancel()
	c.running.Wait()
}
