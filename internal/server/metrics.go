package server

import (
	"math"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// metrics counts what the server does. Everything is kept in atomics and turned into metrics at a scrape; names are
// those that the JMX exporter's published rules give Kafka's, in lower case.
type metrics struct {
	panics      atomic.Int64
	connections atomic.Int64
	accepted    atomic.Int64

	requests [len(handlerTable{})]requestMetrics // by slotOf key
}

// versionsMax is more than any request has.
const versionsMax = 32

// requestMetrics is what is counted of one kind of request.
type requestMetrics struct {
	byVersion [versionsMax]atomic.Int64
	times     histogram
}

// answered counts one request whose answer was sent or dropped.
func (m *metrics) answered(a *await) {
	r := &m.requests[slotOf(a.api.Key)]
	r.byVersion[min(max(a.version, 0), versionsMax-1)].Add(1)
	r.times.add(time.Since(a.started))
}

// histogram counts durations in buckets that grow by a quarter of a power of two, from a microsecond to over an hour.
type histogram struct {
	buckets [octaves * perOctave]atomic.Int64
	nanos   atomic.Int64
}

const (
	octaves   = 32
	perOctave = 4
)

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)].Add(1)
	h.nanos.Add(int64(d))
}

// bucketOf is the bucket of a duration: its position among the powers of two of microseconds, and the next two bits.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < perOctave {
		return int(us)
	}
	octave := bits.Len64(us) - 1 // at least 2
	quarter := us >> (octave - 2) & 3
	return min((octave-1)*perOctave+int(quarter), octaves*perOctave-1)
}

// bucketMillis is the upper bound of a bucket in milliseconds.
func bucketMillis(bucket int) float64 {
	if bucket < perOctave {
		return float64(bucket+1) / 1000
	}
	octave, quarter := bucket/perOctave+1, bucket%perOctave
	return math.Ldexp(float64(perOctave+quarter+1), octave-2) / 1000
}

// counts is a copy of a histogram's buckets.
type counts [octaves * perOctave]int64

func (h *histogram) snapshot() (c counts, total int64) {
	for i := range h.buckets {
		c[i] = h.buckets[i].Load()
		total += c[i]
	}
	return c, total
}

// quantiles are those that the exporter shows of Kafka's histograms.
var quantiles = []float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// quantileWindow is the age at which measurements leave the quantiles: between one and two of it.
const quantileWindow = time.Minute

// collector shows a server's metrics.
type collector struct {
	server *Server

	mu struct {
		sync.Mutex
		rotated      time.Time
		older, newer [len(handlerTable{})]*counts // what the histograms had at the last two rotations
	}
}

var (
	requestsDesc = prometheus.NewDesc("kafka_network_requestmetrics_requests_total",
		"Requests answered.", []string{"request", "version"}, nil)
	totalTimeDesc = prometheus.NewDesc("kafka_network_requestmetrics_totaltimems",
		"Milliseconds from a request's arrival to its answer; quantiles over the last one to two minutes.", []string{"request"}, nil)
	connectionsDesc = prometheus.NewDesc("kafka_server_socket_server_metrics_connection_count",
		"Open connections of clients.", nil, nil)
	acceptedDesc = prometheus.NewDesc("kafka_server_socket_server_metrics_connection_creation_total",
		"Connections of clients that were accepted.", nil, nil)
	memoryUsedDesc = prometheus.NewDesc("kafka_network_socketserver_memorypoolused",
		"Bytes charged to requests in flight.", nil, nil)
	memoryFreeDesc = prometheus.NewDesc("kafka_network_socketserver_memorypoolavailable",
		"Bytes that requests in flight may still take.", nil, nil)
	memoryWaitingDesc = prometheus.NewDesc("tidemark_server_requests_waiting_for_memory",
		"Requests that are not read on because the memory for requests in flight is spent.", nil, nil)
	sessionsDesc = prometheus.NewDesc("kafka_server_fetchsessioncache_numincrementalfetchsessions",
		"Fetch sessions.", nil, nil)
	sessionPartitionsDesc = prometheus.NewDesc("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
		"Partitions in fetch sessions.", nil, nil)
	sessionEvictionsDesc = prometheus.NewDesc("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
		"Fetch sessions that were evicted for others.", nil, nil)
	refusedDesc = prometheus.NewDesc("tidemark_server_refused_connections_total",
		"Connections closed for what their peer sent, by reason.", []string{"reason"}, nil)
	panicsDesc = prometheus.NewDesc("tidemark_server_panics_total",
		"Connections closed because a request handler panicked: each is a bug.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requestsDesc, totalTimeDesc, connectionsDesc, acceptedDesc, memoryUsedDesc, memoryFreeDesc, memoryWaitingDesc,
		sessionsDesc, sessionPartitionsDesc, sessionEvictionsDesc, refusedDesc, panicsDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.server
	gauge := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	used := s.budget.inUse()
	sessions, partitions, evicted := s.sessions.count()
	gauge(connectionsDesc, s.metrics.connections.Load())
	counter(acceptedDesc, s.metrics.accepted.Load())
	gauge(memoryUsedDesc, used)
	gauge(memoryFreeDesc, s.budget.bytesMax-used)
	gauge(memoryWaitingDesc, int64(s.budget.waiting()))
	gauge(sessionsDesc, int64(sessions))
	gauge(sessionPartitionsDesc, int64(partitions))
	counter(sessionEvictionsDesc, evicted)
	counter(panicsDesc, s.metrics.panics.Load())
	for reason, n := range s.refusals.counts() {
		counter(refusedDesc, int64(n), reason)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.config.Now()
	rotate := now.Sub(c.mu.rotated) >= quantileWindow
	if rotate {
		c.mu.rotated = now
	}
	for _, api := range s.versions() {
		r := &s.metrics.requests[slotOf(api.Key)]
		for version := api.AdvertisedMin; version <= api.Max; version++ {
			if n := r.byVersion[version].Load(); n > 0 {
				counter(requestsDesc, n, api.Name, strconv.Itoa(int(version)))
			}
		}
		c.times(out, api, r, rotate)
	}
}

// times shows a request's durations as a summary.
func (c *collector) times(out chan<- prometheus.Metric, api *wire.API, r *requestMetrics, rotate bool) {
	all, total := r.times.snapshot()
	if total == 0 {
		return
	}
	recent := all
	slot := slotOf(api.Key)
	if older := c.mu.older[slot]; older != nil {
		for i := range recent {
			recent[i] -= older[i]
		}
	}
	if rotate {
		c.mu.older[slot], c.mu.newer[slot] = c.mu.newer[slot], &all
	}
	out <- prometheus.MustNewConstSummary(totalTimeDesc, uint64(total), float64(r.times.nanos.Load())/1e6,
		recent.quantiles(), api.Name)
}

// quantiles finds the upper bounds, in milliseconds, below which the given parts of the measurements lie.
func (c *counts) quantiles() map[float64]float64 {
	var total int64
	for _, n := range c {
		total += n
	}
	found := make(map[float64]float64, len(quantiles))
	for _, q := range quantiles {
		found[q] = math.NaN()
		rank, seen := int64(math.Ceil(q*float64(total))), int64(0)
		for i, n := range c {
			if seen += n; n > 0 && seen >= rank {
				found[q] = bucketMillis(i)
				break
			}
		}
	}
	return found
}
