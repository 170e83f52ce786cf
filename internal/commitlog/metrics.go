package commitlog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the figures that all logs of a data directory share. A nil *Metrics counts nothing.
type Metrics struct {
	appends    prometheus.Counter
	rounds     prometheus.Counter
	bytes      prometheus.Counter
	flush      prometheus.Histogram
	errors     prometheus.Counter
	quarantine prometheus.Gauge
}

// NewMetrics declares the figures, under Kafka's names where Kafka has them, with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		appends: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_appends_total", Help: "Appends written to logs.",
		}),
		rounds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_append_rounds_total", Help: "Rounds of appends, each one system call: appends per round show how much is grouped.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_append_bytes_total", Help: "Bytes appended to logs.",
		}),
		flush: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kafka_log_logflushstats_logflushrateandtimems", Help: "Time of a log's sync, in milliseconds.",
			Buckets: prometheus.ExponentialBuckets(0.0625, 2, 18),
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_maintenance_errors_total", Help: "Failed rounds of background work on logs; it is tried again.",
		}),
		quarantine: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_log_quarantined", Help: "Partition directories that could not be opened and were set aside.",
		}),
	}
	r.MustRegister(m.appends, m.rounds, m.bytes, m.flush, m.errors, m.quarantine)
	return m
}

func (m *Metrics) appended(appends int, bytes int64) {
	if m != nil {
		m.appends.Add(float64(appends))
		m.rounds.Inc()
		m.bytes.Add(float64(bytes))
	}
}

func (m *Metrics) synced(took time.Duration) {
	if m != nil {
		m.flush.Observe(float64(took) / float64(time.Millisecond))
	}
}

func (m *Metrics) maintenanceFailed() {
	if m != nil {
		m.errors.Inc()
	}
}

func (m *Metrics) quarantined(count int) {
	if m != nil {
		m.quarantine.Set(float64(count))
	}
}
