package main

import (
	"math"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var thousand []time.Duration
	for i := range 1000 {
		thousand = append(thousand, time.Duration(i+1)*time.Millisecond)
	}
	for _, c := range []struct {
		of   []time.Duration
		q    float64
		want float64
	}{
		{nil, 0.5, 0}, {thousand, 0.5, 500}, {thousand, 0.99, 990}, {thousand, 0.999, 999}, {thousand, 1, 1000}, {thousand, 0, 1},
		{thousand[:1], 0.99, 1}, {thousand[:2], 0.5, 1}, {thousand[:10], 0.99, 10},
	} {
		if got := quantile(c.of, c.q); got != c.want {
			t.Errorf("quantile %v of %d values is %v, want %v", c.q, len(c.of), got, c.want)
		}
	}
}

func TestMoved(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{100}, 0}, {[]float64{100, 109}, 0.09}, {[]float64{100, 80}, 0.25}, {[]float64{100, 7, 100}, 0},
		{[]float64{90, 110, 99, 101}, 0}, {[]float64{0, 5}, 0},
	} {
		if got := moved(c.values); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v moved by %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatio(t *testing.T) {
	if got := ratio(3, 2); got != 1.5 {
		t.Errorf("3 of 2 is %v", got)
	}
	if got := ratio(3, 0); got != 0 {
		t.Errorf("3 of nothing is %v", got)
	}
}
