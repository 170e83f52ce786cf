package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/compat"
)

// peer is a broker that can be started over a directory.
type peer interface {
	name() string
	start(home string) (broker, error)
}

// broker is one that runs.
type broker interface {
	addr() string
	PID() int
	Stop() error
}

type tidemark struct{}

func (tidemark) name() string { return "tidemark" }

func (tidemark) start(home string) (broker, error) {
	b, err := compat.StartBroker(filepath.Join(home, "data"))
	if err != nil {
		return nil, err
	}
	return ourBroker{b}, nil
}

type ourBroker struct{ *compat.Broker }

func (b ourBroker) addr() string { return b.Addr }

type apacheKafka struct{ kafka *compat.Kafka }

func (apacheKafka) name() string { return "kafka" }

func (k apacheKafka) start(home string) (broker, error) {
	b, err := k.kafka.StartBroker(home)
	if err != nil {
		return nil, err
	}
	return kafkaBroker{b}, nil
}

type kafkaBroker struct{ *compat.KafkaBroker }

func (b kafkaBroker) addr() string { return b.Addr }

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for what /proc shows.
const ticksPerSecond = 100

// cpuSeconds is the processor time that a process has used, user and system.
func cpuSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold blanks; utime and stime are the 12th and 13th fields after it.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return float64(user+system) / ticksPerSecond, err
}

// peakMiB is the most memory that a process has had in RAM.
func peakMiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
