package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetKeepsTheSecondHalfForThoseHalfRead fills the first half with new requests: the next one waits, one that
// has begun does not, and the bytes go to who waited longest: senders wait, the broker does not buffer (U-75).
func TestBudgetKeepsTheSecondHalfForThoseHalfRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{bytesMax: 800, growWait: 10 * time.Second}
		for range 4 {
			if _, err := b.enter(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		var group sync.WaitGroup
		for i := range 2 {
			group.Go(func() {
				_, err := b.enter(t.Context(), 100)
				if err != nil {
					t.Error(err)
				}
				order = append(order, i)
			})
			synctest.Wait()
		}
		if err := b.grow(t.Context(), 400); err != nil {
			t.Fatalf("a request that has begun was not let in: %v", err)
		}
		begin := time.Now()
		if err := b.grow(t.Context(), 1); !errors.Is(err, errBudget) || time.Since(begin) != 10*time.Second {
			t.Errorf("with nothing free, grow gave %v after %v", err, time.Since(begin))
		}
		b.release(400)
		b.release(100)
		synctest.Wait()
		if len(order) != 1 || order[0] != 0 || b.inUse() != 400 {
			t.Errorf("after 100 bytes came free %v were let in and %d bytes are used", order, b.inUse())
		}
		b.release(100)
		group.Wait()
	})
}

// TestBudgetForgetsWhoGaveUp proves that a waiter whose connection ended takes nothing.
func TestBudgetForgetsWhoGaveUp(t *testing.T) {
	b := &budget{bytesMax: 8}
	if _, err := b.enter(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := b.enter(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.enter(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("enter gave %v", err)
	}
	b.release(4)
	if b.inUse() != 0 || b.waiting() != 0 {
		t.Errorf("%d bytes are used and %d wait", b.inUse(), b.waiting())
	}
}

// TestBudgetChargesAQuarterAtMost keeps one large request from never getting in.
func TestBudgetChargesAQuarterAtMost(t *testing.T) {
	b := &budget{bytesMax: 800}
	charged, err := b.enter(t.Context(), 1<<40)
	if err != nil || charged != 200 {
		t.Errorf("charged %d, %v", charged, err)
	}
}
