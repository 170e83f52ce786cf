package main

import (
	"context"
	"fmt"
	"time"
)

// row is one line of the matrix, or one variant of it.
type row struct {
	id, what, unit string
	less           bool     // less is better
	client         string   // what drives the Kafka protocol; franz-go if empty
	peers          []string // beside tidemark
	durable        bool     // an answer means that the records are on the disk
	null           bool     // it is run against the null broker too

	recordBytes int
	codec       codec
	partitions  int
	fewer       map[string]int // the partitions of peers that do not bear so many in the time of a short series
	producers   int
	rate        int // records a second

	replicas int    // of each partition, on a cluster of so many brokers; 0 for a lone one
	acksAll  bool   // acks=all
	victim   victim // who is taken away
	silent   bool   // it is not killed, but says nothing more
	times    int    // how often it is done

	half        bool          // half of the usual warm-up and measurement: a variant of a row
	windows     int           // how often a run warms up and measures
	beside      time.Duration // what a run takes beside, about
	besideKafka time.Duration // what Kafka takes longer
	onlyFull    bool          // it belongs to the full protocol only

	run   func(context.Context, *stage) (measurement, error)
	aims  []aim
	limit string // what is known to limit it, told when it falls short
}

const (
	mibPerSecond     = "MiB/s"
	recordsPerSecond = "records/s"
	milliseconds     = "ms"

	franzName   = "franz-go"
	javaName    = "java"
	rdkafkaName = "rdkafka"
)

// The names of what rows tell beside their own figure.
const (
	rawRoundP99         = "p99 of a raw round, ms"
	ofFewPartitions     = "of its own rate on 6 partitions"
	cpuOfFewPartitions  = "of its own CPU s/GiB on 6 partitions"
	scannedMiBPerSecond = "MiB/s recovered"
	readOfProduced      = "of what was produced, read by each group at the end"
	kibPerPartition     = "KiB for each partition"
	idleCorePercent     = "% of a core, idle"
)

var (
	beside     = []string{kafkaName}
	besideBoth = []string{kafkaName, natsName}
)

// matrix is what is measured, on one broker and then on three; the ids are those of docs/performance.md.
var matrix = append(loneMatrix, clusterMatrix...)

var loneMatrix = []row{
	{
		id: "B-P1", what: "produce 100 B, acks=1", unit: recordsPerSecond, peers: besideBoth, null: true,
		recordBytes: 100, windows: 1, run: produceRow,
		aims: []aim{ofNull(0.85), ofPeer(kafkaName, 1), ofPeer(natsName, 6)},
	},
	{
		id: "B-P2", what: "produce 1 KiB, acks=1", unit: mibPerSecond, peers: besideBoth, null: true,
		recordBytes: 1 << 10, windows: 1, run: produceRow,
		aims: []aim{valueOrNull(400, 0.95), ofNull(0.75), cpuAtMost(1.1), cpuOfPeer(kafkaName, 0.6), ofPeer(kafkaName, 1), ofPeer(natsName, 4)},
	},
	{
		id: "B-P3", what: "produce 10 KiB, acks=1", unit: mibPerSecond, peers: beside, null: true,
		recordBytes: 10 << 10, windows: 1, run: produceRow,
		aims: []aim{valueOrNull(700, 0.95), ofNullOrPageCache(0.7), ofPeer(kafkaName, 1)},
	},
	toolRow("B-P1/rdkafka", rdkafkaName, recordsPerSecond, 100), toolRow("B-P2/rdkafka", rdkafkaName, mibPerSecond, 1<<10),
	toolRow("B-P3/rdkafka", rdkafkaName, mibPerSecond, 10<<10),
	toolRow("B-P1/java", javaName, recordsPerSecond, 100), toolRow("B-P2/java", javaName, mibPerSecond, 1<<10),
	toolRow("B-P3/java", javaName, mibPerSecond, 10<<10),
	codecRow("none"), codecRow("lz4"), codecRow("zstd"), codecRow("snappy"), codecRow("gzip"),
	fsyncVariant("B-P9/1x1", "fsync, 1 producer, 1 partition", 1, 1),
	fsyncVariant("B-P9/16x1", "fsync, 16 producers, 1 partition", 16, 1),
	fsyncVariant("B-P9/1x16", "fsync, 1 producer, 16 partitions", 1, 16),
	fsyncVariant("B-P9/16x16", "fsync, 16 producers, 16 partitions", 16, 16),
	latencyVariant("B-L1/1k", "end to end p99, 1 KiB, 1,000/s", 1000),
	latencyVariant("B-L1/10k", "end to end p99, 1 KiB, 10,000/s", 10000),
	{
		id: "B-C1", what: "tail 1 KiB, 3 groups", unit: mibPerSecond, peers: beside, null: true,
		recordBytes: 1 << 10, windows: 1, beside: time.Second, run: tailRow,
		aims: []aim{ofNull(0.8), ofPeer(kafkaName, 1)},
	},
	{
		id: "B-C2", what: "catch up 1 KiB, page cache", unit: mibPerSecond, peers: beside, null: true,
		recordBytes: 1 << 10, windows: 1, beside: 3 * time.Second, run: catchUpRow,
		aims: []aim{ofNull(0.9), cpuAtMost(0.2), ofPeer(kafkaName, 1)},
	},
	toolReads("B-C2/rdkafka", rdkafkaName, 7*time.Second), toolReads("B-C2/java", javaName, 14*time.Second),
	{
		id: "B-C3", what: "catch up 1 KiB, cold", unit: mibPerSecond, peers: beside, null: true,
		recordBytes: 1 << 10, beside: 11 * time.Second, run: coldRow,
		aims: []aim{ofRawOrNull(0.7), ofPeer(kafkaName, 1)},
	},
	{
		id: "B-S1", what: "50 MiB/s over 1,000 partitions", unit: recordsPerSecond, peers: beside,
		recordBytes: 1 << 10, partitions: 1000, half: true, windows: 2, beside: 3 * time.Second, run: spreadRow,
		aims: []aim{extraAtLeast(ofFewPartitions, 0.8)},
	},
	{
		id: "B-S1/10k", what: "50 MiB/s over 10,000 partitions", unit: recordsPerSecond, peers: beside,
		recordBytes: 1 << 10, partitions: 10_000, half: true, onlyFull: true, windows: 2, beside: 10 * time.Second, besideKafka: time.Minute, run: spreadRow,
		aims: []aim{extraAtLeast(ofFewPartitions, 0.5)},
	},
	{
		id: "B-S3", what: "create 1 topic of 1,000 partitions", unit: "partitions/s", peers: beside,
		partitions: 1000, beside: 2 * time.Second, run: createRow, aims: []aim{valueAtLeast(2000), ofPeer(kafkaName, 3)},
	},
	{
		id: "B-S3/topics", what: "create 1,000 topics of 1 partition", unit: "topics/s", peers: beside,
		partitions: 1000, beside: 2 * time.Second, run: createTopicsRow, aims: []aim{valueAtLeast(200), ofPeer(kafkaName, 3)},
	},
	{
		id: "B-R1/empty", what: "start without topics", unit: milliseconds, less: true, peers: beside,
		beside: time.Second, run: restartRow, aims: []aim{valueAtMost(300)},
	},
	{
		id: "B-R1", what: "clean restart, 1,000 partitions", unit: milliseconds, less: true, peers: beside,
		recordBytes: 1 << 10, partitions: 1000, beside: 8 * time.Second, run: restartRow,
		aims: []aim{valueAtMost(3000), timeOfPeer(kafkaName, 0.2)},
	},
	{
		id: "B-R2", what: "restart after kill -9, 100 partitions", unit: milliseconds, less: true, peers: beside,
		recordBytes: 1 << 10, partitions: 100, beside: 10 * time.Second, run: killRow,
		aims: []aim{extraAtLeast(scannedMiBPerSecond, 1024)},
	},
	{
		id: "B-M1/idle", what: "memory, idle", unit: "MiB", less: true, peers: besideBoth,
		beside: 2 * settling, run: memoryRow, aims: []aim{valueAtMost(80), timeOfPeer(kafkaName, 0.3)},
	},
	{
		id: "B-M1/1000", what: "memory, idle, 1,000 partitions", unit: "MiB", less: true, peers: beside,
		recordBytes: 1 << 10, partitions: 1000, beside: 3*settling + 3*time.Second, run: memoryRow,
		aims: []aim{valueAtMost(150), timeOfPeer(kafkaName, 0.3), extraAtMost(kibPerPartition, 20)},
	},
}

// programs are the tools by their clients' names.
var programs = map[string]string{javaName: "ProducerPerformance", rdkafkaName: "rdkafka_performance"}

// toolRow is B-P1, B-P2 or B-P3 by another client than franz-go.
func toolRow(id, client, unit string, recordBytes int) row {
	r := row{
		id: id, what: fmt.Sprintf("the same by %s", programs[client]), unit: unit, client: client, peers: beside,
		recordBytes: recordBytes, half: true, windows: 1, beside: time.Second, run: produceRow, aims: []aim{ofPeer(kafkaName, 1)},
	}
	if recordBytes >= 1<<10 {
		r.aims = append(r.aims, cpuAtMost(1.1), cpuOfPeer(kafkaName, 0.6))
	}
	if client == rdkafkaName { // the lightest of the clients: it leaves most to the broker
		r.null = true
		r.aims = append(r.aims, ofNull(0.75))
	}
	return r
}

// toolReads is B-C2 by another client than franz-go.
func toolReads(id, client string, takes time.Duration) row {
	what := "the same by ConsumerPerformance"
	if client == rdkafkaName {
		what = "the same by rdkafka_performance"
	}
	return row{
		id: id, what: what, unit: mibPerSecond, client: client, peers: beside, null: client == rdkafkaName,
		recordBytes: 1 << 10, beside: takes, run: toolReadRow, aims: []aim{cpuAtMost(0.2), ofPeer(kafkaName, 1)},
	}
}

// codecRow is B-P8 with one codec: the broker looks into every batch and keeps the producer's bytes.
func codecRow(c codec) row {
	return row{
		id: "B-P8/" + string(c), what: "produce 1 KiB, " + string(c), unit: mibPerSecond, peers: beside, null: true,
		recordBytes: 1 << 10, codec: c, half: true, windows: 1, run: produceRow,
		aims: []aim{cpuOfPeer(kafkaName, 1), ofPeer(kafkaName, 1)},
	}
}

// fsyncVariant is B-P9: each producer has at most 128 records of 1 KiB unanswered.
func fsyncVariant(id, what string, producers, partitions int) row {
	r := row{
		id: id, what: what, unit: mibPerSecond, peers: besideBoth, durable: true,
		recordBytes: 1 << 10, producers: producers, partitions: partitions, windows: 1, beside: time.Second, run: fsyncRow,
		aims: []aim{p99OfRawRound(3), ofPeer(kafkaName, 1), ofPeer(natsName, 50)},
	}
	if producers == 1 {
		r.half = true
	} else {
		r.aims = append([]aim{ofRaw(0.8)}, r.aims...)
	}
	return r
}

// latencyVariant is B-L1: from the moment for which a record was intended until a consumer has it.
func latencyVariant(id, what string, rate int) row {
	return row{
		id: id, what: what, unit: milliseconds, less: true, peers: besideBoth, recordBytes: 1 << 10, rate: rate, windows: 1,
		beside: time.Second, run: latencyRow,
		aims: []aim{p50AtMost(0.4), valueAtMost(2), p999AtMost(6), timeOfPeer(kafkaName, 0.5)},
	}
}

// findRow is the row with an id, nil for none.
func findRow(id string) *row {
	for i := range matrix {
		if matrix[i].id == id {
			return &matrix[i]
		}
	}
	return nil
}
