package groups

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// Counts are what a machine holds.
type Counts struct {
	// Groups is the number of groups by state.
	Groups [dead + 1]int
	// Members and Offsets are those of all groups together.
	Members, Offsets int
}

// Count is a question for what the machine holds.
func (m *Machine) Count(call coordinator.Call, now time.Time) coordinator.Effects {
	m.begin(now)
	var c Counts
	for _, g := range m.groups {
		c.Groups[g.state]++
		c.Members += len(g.members)
		c.Offsets += len(g.offsets)
	}
	m.reply(call, c)
	return m.end()
}

const managerMetric = "kafka_coordinator_group_groupmetadatamanager_"

var (
	groupsDesc  = prometheus.NewDesc(managerMetric+"numgroups", "Groups coordinated here.", nil, nil)
	offsetsDesc = prometheus.NewDesc(managerMetric+"numoffsets", "Committed offsets of the groups coordinated here.", nil, nil)
	stateDescs  = func() (descs [dead + 1]*prometheus.Desc) {
		for s := range descs {
			descs[s] = prometheus.NewDesc(managerMetric+"numgroups"+strings.ToLower(state(s).String()), "Of them, those in this state.", nil, nil)
		}
		return descs
	}()
	membersDesc = prometheus.NewDesc("tidemark_group_members", "Members of the groups coordinated here.", nil, nil)
	shardsDesc  = prometheus.NewDesc("tidemark_group_partitions",
		"Partitions of __consumer_offsets led here; those that are not loaded serve nobody.", []string{"loaded"}, nil)
)

// collectPatience bounds how long a scrape waits for all partitions: one whose disk hangs is missing then.
const collectPatience = time.Second

// collector asks the machines at scrape time.
type collector struct{ coordinator *Coordinator }

// Describe implements prometheus.Collector.
func (collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- groupsDesc
	for _, desc := range stateDescs {
		descs <- desc
	}
	descs <- offsetsDesc
	descs <- membersDesc
	descs <- shardsDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	//nolint:contextcheck // a scrape brings no context
	ctx, cancel := context.WithTimeout(context.Background(), collectPatience)
	defer cancel()
	c.coordinator.mu.RLock()
	shards := make([]*shard, 0, len(c.coordinator.mu.shards))
	for _, s := range c.coordinator.mu.shards {
		shards = append(shards, s)
	}
	c.coordinator.mu.RUnlock()
	var total Counts
	groups, loaded := 0, 0
	for _, s := range shards {
		value, err := s.runner().Do(ctx, (*Machine).Count)
		if err != nil {
			continue
		}
		loaded++
		counts := value.(Counts)
		total.Members += counts.Members
		total.Offsets += counts.Offsets
		for state, n := range counts.Groups {
			total.Groups[state] += n
			groups += n
		}
	}
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(groupsDesc, groups)
	for state, n := range total.Groups {
		gauge(stateDescs[state], n)
	}
	gauge(membersDesc, total.Members)
	gauge(offsetsDesc, total.Offsets)
	gauge(shardsDesc, loaded, "true")
	gauge(shardsDesc, len(shards)-loaded, "false")
}
