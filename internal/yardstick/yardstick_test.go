package yardstick

import (
	"testing"
	"time"
)

// TestRun checks that both sides do every operation and that each figure is reported; how large they are is not asserted.
func TestRun(t *testing.T) {
	rests, ours, raws := 0, 0, 0
	result := testing.Benchmark(func(b *testing.B) {
		rests, ours, raws = 0, 0, 0
		Run(b, Contest{
			Ours:  func(n int) error { ours += n; spin(4 * time.Duration(n) * time.Microsecond); return nil },
			Raw:   func(n int) error { raws += n; spin(time.Duration(n) * time.Microsecond); return nil },
			Turn:  100,
			Bytes: 1000,
			Rest:  func() error { rests++; return nil },
		})
	})
	if ours != result.N || raws != result.N || rests != (result.N+99)/100 {
		t.Errorf("%d operations: ours %d, raw %d, rests %d", result.N, ours, raws, rests)
	}
	for _, unit := range []string{"ns/op", "raw-ns/op", "x-raw", "MB/s"} {
		if result.Extra[unit] <= 0 {
			t.Errorf("%s is %v", unit, result.Extra[unit])
		}
	}
}

func spin(d time.Duration) {
	for started := time.Now(); time.Since(started) < d; {
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 3}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
