package controller

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Channel carries statements to brokers: in process to this one, by RPC to others. Send may be called for different
// brokers at once, and for one broker once at a time.
type Channel interface {
	// Send delivers a statement and returns when the broker has acted on it. After an error the controller states
	// everything again that the statement said. The statement is shared: it must not be changed, nor kept.
	Send(ctx context.Context, to meta.Broker, a *meta.Apply) (Answer, error)
}

// Answer is a broker's answer to a statement.
type Answer struct {
	// Holding lists topics that the statement says are deleted and of which the broker could not yet put everything
	// aside. The others are confirmed (D11).
	Holding []meta.TopicID
	// Ends are where the broker's copies end, of the stated partitions that wait for the longest of all copies (D9).
	Ends []meta.PartitionEnd
}

// ChannelFunc makes a function a Channel.
type ChannelFunc func(ctx context.Context, to meta.Broker, a *meta.Apply) (Answer, error)

// Send implements Channel.
func (f ChannelFunc) Send(ctx context.Context, to meta.Broker, a *meta.Apply) (Answer, error) {
	return f(ctx, to, a)
}
