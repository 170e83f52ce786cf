package server

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestHistogramBuckets proves that every duration lies within its bucket's bounds, and that the bounds rise.
func TestHistogramBuckets(t *testing.T) {
	for d := time.Duration(0); d < 2*time.Hour; d = d*17/16 + 300 {
		b := bucketOf(d)
		ms := float64(d) / 1e6
		if ms > bucketMillis(b) || (b > 0 && ms < bucketMillis(b-1)-0.001) {
			t.Fatalf("%v is in bucket %d: (%v, %v] ms", d, b, bucketMillis(b-1), bucketMillis(b))
		}
	}
}

// TestMetricsOfARequest scrapes after one request: Kafka's names, and valid for a strict registry.
func TestMetricsOfARequest(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := start(t, Config{Registerer: registry})
	socket := s.dial()
	ping(t, socket)
	ping(t, socket) // the answer before is counted then
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		switch {
		case m.Counter != nil:
			found[f.GetName()] = m.Counter.GetValue()
		case m.Summary != nil:
			found[f.GetName()] = float64(m.Summary.GetSampleCount())
		}
	}
	for _, name := range []string{"kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_totaltimems"} {
		// The second answer may be counted after its client has it.
		if found[name] < 1 {
			t.Errorf("%s is %v, want 1 or 2", name, found[name])
		}
	}
}
