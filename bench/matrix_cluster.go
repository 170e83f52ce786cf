package main

import (
	"fmt"
	"time"
)

// The names of what rows on three brokers tell beside their own figure.
const (
	ofNotIdempotent = "of its own rate without idempotence"
	rateSent        = "records/s sent"
	untilServing    = "ms until the emptied broker served"
	untilInSync     = "ms until all replicas were made and in sync"
	partitionsHad   = "partitions"
	idleBeyondEmpty = "% of a core, beyond the same cluster without topics"
	kibPerReplica   = "KiB for each replica"
	untilElected    = "ms until the others knew of new leaders"
	medianGap       = "gap of the median partition, ms"
	gapBefore       = "longest gap before, ms"
	wasBoth         = "controller and leader of the registry at once"
	dataPathGap     = "gap of producers without a replica on it, ms"
	followedGap     = "gap of producers with a follower on it, ms"
)

// clusterMatrix are the rows of three brokers, in the order in which they run: those that take brokers away come last but
// for those of ten thousand partitions, which would weigh on them.
var clusterMatrix = append(throughputRows(),
	row{
		id: "B-P6", what: "B-P4 of 1 KiB, idempotent", unit: mibPerSecond, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, half: true, windows: 3, beside: time.Second, run: idempotenceRow,
		aims: []aim{extraAtLeast(ofNotIdempotent, 0.97), ofPeer(kafkaName, 1)},
	},
	row{
		id: "B-L2/1k", what: "end to end p99, RF 3, acks=all, 1,000/s", unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, rate: 1000, windows: 1, beside: 2 * time.Second, run: latencyRow,
		aims: []aim{p50AtMost(1), valueAtMost(5), p999AtMost(15), timeOfPeer(kafkaName, 0.5)},
	},
	row{
		id: "B-L2/10k", what: "the same, 10,000/s", unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, rate: 10000, windows: 1, beside: 2 * time.Second, run: latencyRow,
		aims: []aim{p50AtMost(1), valueAtMost(5), p999AtMost(15), timeOfPeer(kafkaName, 0.5)},
	},
	row{
		id: "B-L3", what: "the same, at half of its own B-P4 of 1 KiB", unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, windows: 1, beside: 2 * time.Second, run: halfRateRow, aims: []aim{valueAtMost(25)},
	},
	row{
		id: "B-S1/rf3", what: "50 MiB/s over 1,000 partitions, RF 3, acks=all", unit: recordsPerSecond, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, partitions: 1000, half: true, windows: 2, beside: 3 * time.Second, besideKafka: 3 * time.Second, run: spreadRow,
		aims: []aim{extraAtLeast(ofFewPartitions, 0.8)},
	},
	moveVariant("B-F2", "leader moved, 1 partition", 1, 10, valueAtMost(200)),
	onlyFull(moveVariant("B-F2/1000", "leaders moved, 1,000 partitions", 1000, 3, valueAtMost(700))), // of which 500 are between two records
	row{
		id: "B-R3", what: "rebuild of an emptied broker, 1 GiB, no tier", unit: mibPerSecond, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, beside: 14 * time.Second, besideKafka: 20 * time.Second, run: rebuildRow, aims: []aim{ofPeer(kafkaName, 1)},
	},
	failoverVariant("B-F1", "kill -9 of the leader of 1 partition", 1, plainBroker, valueAtMost(1000)),
	failoverVariant("B-F1/1000", "the same of 1,000 partitions", 1000, plainBroker, valueAtMost(1000)),
	failoverVariant("B-F1/1000/registry", "the same, it leads the registry", 1000, quorumLeader, valueAtMost(3000)),
	failoverVariant("B-F1/1000/controller", "the same, it is the controller", 1000, controllerBroker, valueAtMost(3000)),
	silentVariant(),
	row{
		id: "B-F3", what: "kill -9 of the controller: topics created", unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		victim: controllerBroker, beside: 7 * time.Second, besideKafka: 10 * time.Second, run: metadataRow,
		aims: []aim{valueAtMost(3000), extraAtMost(dataPathGap, 100)},
	},
	row{
		id: "B-F4", what: "kill -9 of the registry's leader: topics created", unit: milliseconds, less: true, replicas: 3, acksAll: true,
		victim: quorumLeader, beside: 7 * time.Second, run: metadataRow,
		aims: []aim{valueAtMost(2000), extraAtMost(dataPathGap, 100)},
	},
	row{
		id: "B-S2", what: "idle, 10,000 partitions, RF 3", unit: "% of a core", less: true, peers: beside, replicas: 3, acksAll: true,
		partitions: 10_000, fewer: map[string]int{kafkaName: 2000}, beside: 2*idleFor + settling + 10*time.Second, run: idleRow,
		aims: []aim{extraAtMost(idleBeyondEmpty, 10), extraAtMost(untilInSync, 10_000), extraAtMost(kibPerReplica, 20)},
	},
	row{
		id: "B-S1/rf3/10k", what: "50 MiB/s over 10,000 partitions, RF 3, acks=all", unit: recordsPerSecond, peers: beside, replicas: 3, acksAll: true,
		recordBytes: 1 << 10, partitions: 10_000, half: true, onlyFull: true, windows: 2, beside: 20 * time.Second, besideKafka: time.Minute, run: spreadRow,
		aims: []aim{extraAtLeast(ofFewPartitions, 0.5)},
	},
	onlyFull(failoverVariant("B-F1/10000", "kill -9 of the leader of 10,000 partitions", 10_000, plainBroker, valueAtMost(12_000))),
)

// throughputRows are B-P4 and B-P5, for each size.
func throughputRows() (rows []row) {
	sizes := []struct {
		name  string
		bytes int
		unit  string
		least float64
	}{{"100", 100, recordsPerSecond, 600_000}, {"1k", 1 << 10, mibPerSecond, 200}, {"10k", 10 << 10, mibPerSecond, 300}}
	for _, size := range sizes {
		rows = append(rows, row{
			id: "B-P4/" + size.name, what: fmt.Sprintf("produce %d B, RF 3, acks=all", size.bytes), unit: size.unit, peers: besideBoth, null: true,
			replicas: 3, acksAll: true, recordBytes: size.bytes, windows: 1, beside: time.Second, run: produceRow,
			aims: []aim{valueAtLeast(size.least), cpuAtMost(4), ofPeer(kafkaName, 1.5), ofPeer(natsName, 4)},
		})
	}
	for _, size := range sizes {
		r := rows[0]
		r.id, r.what, r.unit, r.recordBytes = "B-P4/"+size.name+"/rdkafka", "the same by "+programs[rdkafkaName], size.unit, size.bytes
		r.client, r.peers, r.half = rdkafkaName, beside, true
		r.aims = []aim{valueAtLeast(size.least), cpuAtMost(4), ofPeer(kafkaName, 1.5)}
		r.onlyFull = size.bytes == 100 // a short series has no time for every variant
		rows = append(rows, r)
	}
	for _, size := range sizes {
		rows = append(rows, row{
			id: "B-P5/" + size.name, what: fmt.Sprintf("produce %d B, RF 3, acks=1", size.bytes), unit: size.unit, peers: beside,
			replicas: 3, recordBytes: size.bytes, half: true, windows: 1, beside: time.Second, run: produceRow, onlyFull: size.bytes != 1<<10,
			aims: []aim{ofRow("B-P4/"+size.name, 1.1), ofPeer(kafkaName, 1)},
		})
	}
	return rows
}

// moveVariant is B-F2: so many planned moves one after the other.
func moveVariant(id, what string, partitions, times int, most aim) row {
	return row{
		id: id, what: what, unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		partitions: partitions, times: times, beside: 5 * time.Second, besideKafka: 3 * time.Second, run: moveRow, aims: []aim{most},
	}
}

// failoverVariant is B-F1: the broker that leads everything is killed.
func failoverVariant(id, what string, partitions int, of victim, most aim) row {
	r := row{
		id: id, what: what, unit: milliseconds, less: true, peers: beside, replicas: 3, acksAll: true,
		partitions: partitions, victim: of, beside: 6 * time.Second, besideKafka: 16 * time.Second, run: failoverRow, aims: []aim{most},
	}
	if of == quorumLeader { // Kafka's controllers are its registry
		r.peers = nil
	}
	return r
}

// silentVariant is B-F1 where the broker goes on to hold its connections and says nothing: only its lease tells.
func silentVariant() row {
	r := failoverVariant("B-F1/1000/silent", "the same, it is silent (SIGSTOP)", 1000, plainBroker, valueAtMost(10_000))
	r.silent = true
	r.beside += 8 * time.Second
	return r
}

// onlyFull leaves a row to the full protocol, and to those who name it.
func onlyFull(r row) row {
	r.onlyFull = true
	r.beside, r.besideKafka = r.beside+30*time.Second, r.besideKafka+2*time.Minute
	return r
}
