package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestImagesWait proves that whoever waits for a revision hears of it, and that a wait ends with its context. D13
func TestImagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImages("c")
		done := make(chan error, 2)
		go func() { done <- s.wait(t.Context(), 5) }()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			done <- s.wait(ctx, 9)
		}()
		for _, revision := range []int64{3, 5} {
			synctest.Wait()
			if len(done) != 0 {
				t.Fatalf("a wait ended before revision %d", revision)
			}
			s.store(s.load().Apply(&meta.Apply{Revision: revision}))
		}
		if err := <-done; err != nil {
			t.Errorf("the wait for revision 5: %v", err)
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait for revision 9: %v", err)
		}
		if err := s.wait(t.Context(), 2); err != nil {
			t.Errorf("a wait for the past: %v", err)
		}
	})
}
