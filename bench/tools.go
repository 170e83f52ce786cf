package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/compat"
)

// tools are the load generators that are programs of their own.
type tools struct {
	kafka   *compat.Kafka
	rdkafka string // path of rdkafka_performance, empty where it could not be built
}

// javaClient is Apache Kafka's own ProducerPerformance.
type javaClient struct {
	franzClient // for what is not load
	kafka       *compat.Kafka
}

// manyRecords is more than a tool sends before it is stopped.
const manyRecords = "2000000000"

func (c javaClient) produce(ctx context.Context, addr string, l load) (*generator, error) {
	// The settings are those of the other producers; 64 KiB would be a batch of six 10 KiB records.
	cmd := c.kafka.LoadCommand(ctx, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", addr, "--topic", l.topic.name,
		"--num-records", manyRecords, "--throughput", "-1", "--record-size", strconv.Itoa(l.recordBytes), "--command-property",
		"acks="+acksNumber(l), "enable.idempotence=false", "linger.ms=5", "batch.size=262144", "buffer.memory=67108864", "compression.type="+codecName(l.codec))
	return startTool(cmd, addr, l.topic.name)
}

// acksNumber is what a producer waits for, as the tools take it: -1 is all.
func acksNumber(l load) string {
	if l.acksAll {
		return "-1"
	}
	return "1"
}

func codecName(c codec) string {
	if c == "" {
		return "none"
	}
	return string(c)
}

// startTool runs a program that produces until it is killed; the broker tells how many records have come.
func startTool(cmd *exec.Cmd, addr, topic string) (*generator, error) {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return &generator{
		count: func(ctx context.Context) (int64, error) { return endOffsets(ctx, addr, topic) },
		pids:  []int{cmd.Process.Pid},
		stop: func() error {
			select {
			case err := <-ended:
				return fmt.Errorf("%s ended by itself: %w\n%s", cmd.Path, err, said.Bytes())
			default:
			}
			err := cmd.Process.Kill()
			<-ended
			return err
		},
	}, nil
}

// rdkafkaClient is librdkafka's rdkafka_performance.
type rdkafkaClient struct {
	franzClient // for what is not load
	path        string
}

func (c rdkafkaClient) produce(ctx context.Context, addr string, l load) (*generator, error) {
	return startTool(exec.CommandContext(ctx, c.path, "-P", "-q", "-b", addr, "-t", l.topic.name, "-s", strconv.Itoa(l.recordBytes), "-a", acksNumber(l),
		"-X", "enable.idempotence=false", "-X", "linger.ms=5", "-X", "batch.size=1000000", "-X", "queue.buffering.max.kbytes=65536",
		"-X", "compression.codec="+codecName(l.codec)), addr, l.topic.name)
}

// consume reads a topic with this many records once and returns the MiB/s that the tool gives for the time in which it
// fetched.
func (t *tools) consume(ctx context.Context, client, addr string, of topic, records int64) (float64, error) {
	if client == javaName {
		return javaConsume(ctx, t.kafka, addr, of.name, records)
	}
	args := []string{"-C", "-q", "-b", addr, "-t", of.name, "-o", "beginning", "-c", strconv.FormatInt(records, 10)}
	for p := range of.partitions {
		args = append(args, "-p", strconv.Itoa(p))
	}
	out, err := compat.Run(exec.CommandContext(ctx, t.rdkafka, args...), "")
	if err != nil {
		return 0, err
	}
	return rdkafkaRate(out.Stdout)
}

var rdkafkaConsumed = regexp.MustCompile(`consumed in \d+ms: \d+ msgs/s \(([\d.]+) MB/s\)`)

// rdkafkaRate finds the rate in what rdkafka_performance prints, in MiB/s; its MB is 1,000,000 bytes.
func rdkafkaRate(out string) (float64, error) {
	match := rdkafkaConsumed.FindStringSubmatch(out)
	if match == nil {
		return 0, errors.New("rdkafka_performance printed no result:\n" + out)
	}
	rate, err := strconv.ParseFloat(match[1], 64)
	return rate * 1e6 / (1 << 20), err
}

// javaConsume runs Kafka's ConsumerPerformance over a topic with this many records, and returns the MiB/s that it gives
// for the time in which it fetched.
func javaConsume(ctx context.Context, kafka *compat.Kafka, addr, topic string, records int64) (float64, error) {
	out, err := compat.Run(kafka.LoadCommand(ctx, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", addr,
		"--topic", topic, "--num-records", strconv.FormatInt(records, 10), "--hide-header"), "")
	if err != nil {
		return 0, err
	}
	return javaFetchRate(out.Stdout)
}

// javaFetchRate finds fetch.MB.sec in what ConsumerPerformance prints; its MB is 1,048,576 bytes.
func javaFetchRate(out string) (float64, error) {
	for line := range strings.Lines(out) {
		// start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,
		// fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
		if fields := strings.Split(strings.TrimSpace(line), ", "); len(fields) == 10 {
			return strconv.ParseFloat(fields[8], 64)
		}
	}
	return 0, errors.New("ConsumerPerformance printed no result:\n" + out)
}
