package main

import (
	"context"
	"time"
)

// pause waits, and ends early with an error when the context does.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// poll asks at once and then at this pace until the answer is yes or an error, or the context ends, whose cause it returns.
func poll(ctx context.Context, every time.Duration, ask func(context.Context) (bool, error)) error {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		done, err := ask(ctx)
		if err != nil || done {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
