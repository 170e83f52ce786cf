package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/compat"
)

// tools are the load generators that are programs of their own.
type tools struct {
	kafka *compat.Kafka
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
		"acks=1", "enable.idempotence=false", "linger.ms=5", "batch.size=262144", "buffer.memory=67108864", "compression.type="+codecName(l.codec))
	return startTool(cmd, addr, l.topic.name)
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
