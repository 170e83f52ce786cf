package replica

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// traffic counts what clients do with one topic on this broker.
type traffic struct {
	messagesIn, bytesIn, bytesOut, replicationIn, replicationOut, produces, fetches, producesFailed, fetchesFailed atomic.Int64
}

// produced counts one partition of a produce request. Refusals that are part of the protocol's normal life do not count
// as failed, as in Kafka.
func (t *traffic) produced(request AppendRequest, pending *Pending, err error) {
	t.produces.Add(1)
	switch {
	case err == nil && !pending.appended.Duplicate:
		t.messagesIn.Add(int64(pending.appended.Count))
		t.bytesIn.Add(int64(len(request.Batches)))
	case err != nil && !expected(err):
		t.producesFailed.Add(1)
	}
}

// fetched counts one read of a partition.
func (t *traffic) fetched(err error) {
	t.fetches.Add(1)
	if err != nil && !expected(err) {
		t.fetchesFailed.Add(1)
	}
}

// expected tells errors that say nothing about the health of the broker.
func expected(err error) bool {
	for _, e := range []error{
		ErrNotLeader, ErrGone, ErrFencedEpoch, ErrUnknownEpoch, ErrOffsetOutOfRange, ErrStorage, record.ErrTooLarge, record.ErrCorrupt,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// CountSent counts bytes of records that were sent to a client.
func (r *Replica) CountSent(bytes int64) { r.traffic.bytesOut.Add(bytes) }

// metrics walks the table at every scrape: partitions cost nothing in between. Names follow the rules for Kafka that
// the JMX exporter publishes, in lower case. Describe says nothing, because Kafka's counters come both with a topic
// label and, for all topics together, without one.
type metrics struct {
	table *Table

	shrinks, expands, changesFailed atomic.Int64 // of ISRs
	truncatedCommitted              atomic.Int64 // records below a high watermark that were cut off
	refused                         atomic.Int64 // replicas that would have had to cut off what was committed

	mu struct {
		sync.Mutex
		topics  map[string]*traffic
		retired traffic // of topics that are gone: totals never fall
	}
}

func newMetrics(table *Table) *metrics {
	m := &metrics{table: table}
	m.mu.topics = make(map[string]*traffic)
	return m
}

// traffic finds or makes the counters of a topic.
func (m *metrics) traffic(topic string) *traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.topics[topic]
	if t == nil {
		t = &traffic{}
		m.mu.topics[topic] = t
	}
	return t
}

// retire drops the counters of a topic that has no replica here any more.
func (m *metrics) retire(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.topics[topic]
	if t == nil {
		return
	}
	delete(m.mu.topics, topic)
	for i := range topicCounters {
		topicCounters[i].of(&m.mu.retired).Add(topicCounters[i].of(t).Load())
	}
}

// isrChanged counts a change that was written, if it is the one that the registry holds.
func (m *metrics) isrChanged(c *Change, current meta.Partition) {
	switch {
	case current.Version != c.Value.Version+1 || current.LeaderEpoch != c.Value.LeaderEpoch:
		m.changesFailed.Add(1)
	case len(c.Joining) > 0:
		m.expands.Add(1)
	case c.shrinks:
		m.shrinks.Add(1)
	}
}

type topicCounter struct {
	all, each *prometheus.Desc
	of        func(*traffic) *atomic.Int64
}

func newTopicCounter(name, help string, of func(*traffic) *atomic.Int64) topicCounter {
	name = "kafka_server_brokertopicmetrics_" + name + "_total"
	return topicCounter{
		prometheus.NewDesc(name, help, nil, nil), prometheus.NewDesc(name, help, []string{"topic"}, nil), of,
	}
}

var topicCounters = []topicCounter{
	newTopicCounter("messagesin", "Records appended for clients.", func(t *traffic) *atomic.Int64 { return &t.messagesIn }),
	newTopicCounter("bytesin", "Bytes of record batches appended for clients.", func(t *traffic) *atomic.Int64 { return &t.bytesIn }),
	newTopicCounter("bytesout", "Bytes of record batches sent to clients.", func(t *traffic) *atomic.Int64 { return &t.bytesOut }),
	newTopicCounter("replicationbytesin", "Bytes of record batches fetched from leaders.", func(t *traffic) *atomic.Int64 { return &t.replicationIn }),
	newTopicCounter("replicationbytesout", "Bytes of record batches sent to other replicas.", func(t *traffic) *atomic.Int64 { return &t.replicationOut }),
	newTopicCounter("totalproducerequests", "Produce requests, counted by partition.", func(t *traffic) *atomic.Int64 { return &t.produces }),
	newTopicCounter("totalfetchrequests", "Fetch requests, counted by partition and read.", func(t *traffic) *atomic.Int64 { return &t.fetches }),
	newTopicCounter("failedproducerequests", "Produce requests that failed unexpectedly.", func(t *traffic) *atomic.Int64 { return &t.producesFailed }),
	newTopicCounter("failedfetchrequests", "Fetch requests that failed unexpectedly.", func(t *traffic) *atomic.Int64 { return &t.fetchesFailed }),
}

type partitionGauge struct {
	desc *prometheus.Desc
	of   func(r *Replica, s *State) float64
}

func newPartitionGauge(name, help string, of func(*Replica, *State) float64) partitionGauge {
	return partitionGauge{prometheus.NewDesc("kafka_"+name, help, []string{"topic", "partition"}, nil), of}
}

// partitionGauges are of every replica; leaderGauges are zero for followers.
var partitionGauges = []partitionGauge{
	newPartitionGauge("log_log_size", "Bytes of the log's segments on this broker.", func(r *Replica, _ *State) float64 { return float64(r.Size()) }),
	newPartitionGauge("log_log_logstartoffset", "First offset of the log.", func(_ *Replica, s *State) float64 { return float64(s.Start) }),
	newPartitionGauge("log_log_logendoffset", "Offset of the next record.", func(_ *Replica, s *State) float64 { return float64(s.End) }),
	newPartitionGauge("log_log_numlogsegments", "Segments of the log on this broker.", func(r *Replica, _ *State) float64 { return float64(r.log.SegmentCount()) }),
	newPartitionGauge("cluster_partition_laststableoffsetlag", "High watermark minus last stable offset.", func(_ *Replica, s *State) float64 { return float64(s.HighWatermark - s.Stable) }),
	newPartitionGauge("cluster_partition_replicascount", "Replicas of the partition, on its leader.", func(_ *Replica, s *State) float64 { return leading(s, len(s.Value.Replicas)) }),
	newPartitionGauge("cluster_partition_insyncreplicascount", "In-sync replicas of the partition, on its leader.", func(_ *Replica, s *State) float64 { return leading(s, len(s.Value.ISR)) }),
	newPartitionGauge("cluster_partition_underreplicated", "1 on the leader of a partition with replicas out of sync.", func(_ *Replica, s *State) float64 { return flagged(underReplicated(s)) }),
	newPartitionGauge("cluster_partition_underminisr", "1 on the leader of a partition below min.insync.replicas.", func(_ *Replica, s *State) float64 { return flagged(underMinISR(s)) }),
	newPartitionGauge("cluster_partition_atminisr", "1 on the leader of a partition at min.insync.replicas.", func(_ *Replica, s *State) float64 { return flagged(atMinISR(s)) }),
}

func leading(s *State, n int) float64 {
	if s.Role != RoleLeader {
		return 0
	}
	return float64(n)
}

func flagged(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func underReplicated(s *State) bool {
	return s.Role == RoleLeader && len(s.Value.ISR) < len(s.Value.Replicas)-len(s.Value.Adding)
}

func underMinISR(s *State) bool {
	return s.Role == RoleLeader && len(s.Value.ISR) < s.Value.MinISRBound()
}

func atMinISR(s *State) bool {
	return s.Role == RoleLeader && len(s.Value.ISR) == s.Value.MinISRBound()
}

func newTableGauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kafka_server_replicamanager_"+name, help, nil, nil)
}

var (
	partitionCount       = newTableGauge("partitioncount", "Replicas on this broker.")
	leaderCount          = newTableGauge("leadercount", "Partitions that this broker leads.")
	offlineCount         = newTableGauge("offlinereplicacount", "Replicas on this broker whose log failed.")
	underReplicatedCount = newTableGauge("underreplicatedpartitions", "Partitions led here with replicas out of sync.")
	underMinISRCount     = newTableGauge("underminisrpartitioncount", "Partitions led here below min.insync.replicas.")
	atMinISRCount        = newTableGauge("atminisrpartitioncount", "Partitions led here at min.insync.replicas.")
)

var (
	sentRate     = prometheus.NewDesc("kafka_server_leaderreplication_byte_rate", "Bytes per second that throttled replicas get from leaders here.", nil, nil)
	receivedRate = prometheus.NewDesc("kafka_server_followerreplication_byte_rate", "Bytes per second that throttled followers here get.", nil, nil)
)

// tableCounters are of all partitions together.
var tableCounters = []struct {
	desc *prometheus.Desc
	of   func(*metrics) *atomic.Int64
}{
	{newTableGauge("isrshrinks_total", "Changes that removed replicas from an ISR."), func(m *metrics) *atomic.Int64 { return &m.shrinks }},
	{newTableGauge("isrexpands_total", "Changes that added replicas to an ISR."), func(m *metrics) *atomic.Int64 { return &m.expands }},
	{newTableGauge("failedisrupdates_total", "Changes of an ISR that met a newer value."), func(m *metrics) *atomic.Int64 { return &m.changesFailed }},
	{
		prometheus.NewDesc("tidemark_committed_records_truncated_total", "Records below a high watermark that replicas cut off after an unclean election.", nil, nil),
		func(m *metrics) *atomic.Int64 { return &m.truncatedCommitted },
	},
	{
		prometheus.NewDesc("tidemark_replicas_refused_total", "Replicas kept out of sync because following would cut off committed records.", nil, nil),
		func(m *metrics) *atomic.Int64 { return &m.refused },
	},
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	var leaders, under, underMin, atMin int
	for r := range m.table.All() {
		state := r.State()
		partition := strconv.Itoa(int(r.partition))
		for i := range partitionGauges {
			gauge(partitionGauges[i].desc, partitionGauges[i].of(r, &state), r.topic, partition)
		}
		leaders += int(flagged(state.Role == RoleLeader))
		under += int(flagged(underReplicated(&state)))
		underMin += int(flagged(underMinISR(&state)))
		atMin += int(flagged(atMinISR(&state)))
	}
	served, offline := m.table.Len()
	gauge(partitionCount, float64(served+offline))
	gauge(leaderCount, float64(leaders))
	gauge(offlineCount, float64(offline))
	gauge(underReplicatedCount, float64(under))
	gauge(underMinISRCount, float64(underMin))
	gauge(atMinISRCount, float64(atMin))
	now := time.Now()
	gauge(sentRate, m.table.sent.rate(now))
	gauge(receivedRate, m.table.received.rate(now))
	for _, c := range tableCounters {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.of(m).Load()))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range topicCounters {
		c := &topicCounters[i]
		total := c.of(&m.mu.retired).Load()
		for topic, t := range m.mu.topics {
			n := c.of(t).Load()
			total += n
			out <- prometheus.MustNewConstMetric(c.each, prometheus.CounterValue, float64(n), topic)
		}
		out <- prometheus.MustNewConstMetric(c.all, prometheus.CounterValue, float64(total))
	}
}
