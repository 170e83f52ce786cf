package broker

import (
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// The states of a broker, as Kafka numbers them.
const (
	brokerStarting = 1
	brokerRunning  = 3
)

// registerMetrics declares what is about the broker as a whole: its state, what it knows of the cluster, its build, and
// the process.
func (b *Broker) registerMetrics() error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidemark_build_info", Help: "1, with the version of this build.",
		ConstLabels: prometheus.Labels{"version": b.config.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	if b.embedded != nil {
		members := func(voters bool) func() float64 {
			return func() float64 {
				n := 0
				for _, m := range b.embedded.Members() {
					if m.Voter == voters {
						n++
					}
				}
				return float64(n)
			}
		}
		voters := gauge("tidemark_registry_voters", "Voting members of the registry: an even number is on its way to an odd one.", members(true))
		learners := gauge("tidemark_registry_learners", "Members of the registry that do not vote yet.", members(false))
		if err := errors.Join(b.gatherer.Register(voters), b.gatherer.Register(learners)); err != nil {
			return err
		}
	}
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
		gauge("kafka_server_kafkaserver_brokerstate", "State of the broker: 1 starting, 3 running.", func() float64 {
			if b.phases.Finished() {
				return brokerRunning
			}
			return brokerStarting
		}),
		gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the broker that is controller.", func() float64 {
			if b.state.load().Controller() == b.config.BrokerID {
				return 1
			}
			return 0
		}),
		gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", func() float64 {
			return float64(len(b.state.load().Topics()))
		}),
		gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", func() float64 {
			return float64(b.state.load().PartitionCount())
		}),
		gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers that are registered and live.", func() float64 {
			return float64(b.brokers(false))
		}),
		gauge("kafka_controller_kafkacontroller_fencedbrokercount", "Brokers that are registered and fenced.", func() float64 {
			return float64(b.brokers(true))
		}),
		gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", func() float64 {
			return float64(b.leaderless())
		}),
	} {
		if err := b.gatherer.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) brokers(fenced bool) int {
	n := 0
	for _, known := range b.state.load().Brokers() {
		if known.Fenced == fenced {
			n++
		}
	}
	return n
}

func (b *Broker) leaderless() int {
	n := 0
	image := b.state.load()
	for _, topic := range image.Topics() {
		for i := range topic.Partitions {
			p := &topic.Partitions[i]
			if leader, found := image.Broker(p.Leader); p.Known() && (!found || leader.Fenced) {
				n++
			}
		}
	}
	return n
}
