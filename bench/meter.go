package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for what /proc shows.
const ticksPerSecond = 100

// meter takes stock of processor time: the broker's, the clients', and all that the machine has spent.
type meter struct {
	servers []int // process ids
	clients []int // processes that are clients, beside this one

	began                     time.Time
	serverAt, clientAt, allAt float64 // seconds
}

func startMeter(servers, clients []int) (*meter, error) {
	m := &meter{servers: servers, clients: clients}
	var err error
	m.serverAt, m.clientAt, m.allAt, err = m.read()
	m.began = time.Now()
	return m, err
}

// stop fills in what has passed since the start.
func (m *meter) stop(into *measurement) error {
	into.Seconds = time.Since(m.began).Seconds()
	server, client, all, err := m.read()
	if err != nil {
		return err
	}
	into.ServerCPU, into.ClientCPU = server-m.serverAt, client-m.clientAt
	into.OthersCPU = max(all-m.allAt-into.ServerCPU-into.ClientCPU, 0)
	into.PeakMiB, err = memoryMiB(m.servers, "VmHWM")
	return err
}

func (m *meter) read() (server, client, all float64, err error) {
	if server, err = cpuSeconds(m.servers); err != nil {
		return
	}
	if client, err = cpuSeconds(m.clients); err != nil {
		return
	}
	var usage syscall.Rusage
	if err = syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return
	}
	client += float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return
	}
	all, err = busySeconds(string(stat))
	return
}

// cpuSeconds is the processor time that processes have used together, user and system.
func cpuSeconds(pids []int) (sum float64, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		seconds, err := processSeconds(string(stat))
		if err != nil {
			return 0, err
		}
		sum += seconds
	}
	return sum, nil
}

// processSeconds reads user and system time out of the text of /proc/PID/stat.
func processSeconds(stat string) (float64, error) {
	// The name in parentheses may hold blanks and parentheses; utime and stime are the 12th and 13th fields after it.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("a process's stat has %d fields after its name, want 13", len(fields))
	}
	return sumTicks(fields[11:13])
}

// busySeconds reads out of the text of /proc/stat what all processors have spent on anything but idling.
func busySeconds(stat string) (float64, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("the first line of the machine's stat is %q", line)
	}
	// user nice system idle iowait irq softirq steal
	return sumTicks([]string{fields[1], fields[2], fields[3], fields[6], fields[7], fields[8]})
}

func sumTicks(fields []string) (float64, error) {
	var sum int64
	for _, f := range fields {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks
	}
	return float64(sum) / ticksPerSecond, nil
}

// memoryMiB is the sum over processes of a figure of /proc/PID/status: VmRSS is what a process has in memory, VmHWM the
// most it ever had.
func memoryMiB(pids []int, figure string) (sum float64, err error) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		kib, found := kibOf(string(status), figure)
		if !found {
			return 0, fmt.Errorf("/proc/%d/status has no %s", pid, figure)
		}
		sum += kib / 1024
	}
	return sum, nil
}

// kibOf finds a line like "VmRSS:  1234 kB".
func kibOf(text, figure string) (kib float64, found bool) {
	for line := range strings.Lines(text) {
		if n, _ := fmt.Sscanf(line, figure+": %f kB", &kib); n == 1 {
			return kib, true
		}
	}
	return 0, false
}

// parseAvailable finds MemAvailable in the text of /proc/meminfo, in bytes.
func parseAvailable(meminfo string) (int64, error) {
	kib, found := kibOf(meminfo, "MemAvailable")
	if !found {
		return 0, errors.New("/proc/meminfo has no MemAvailable")
	}
	return int64(kib) << 10, nil
}
