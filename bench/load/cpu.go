package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// begin starts the clocks of a measurement; the function it returns stops them.
func begin(p peer, m *measured) (stop func()) {
	started, broker, own := time.Now(), processCPU(p.pid), ownCPU()
	return func() {
		m.took = time.Since(started)
		m.brokerCPU, m.clientCPU = processCPU(p.pid)-broker, ownCPU()-own
	}
}

// processCPU is the user and system time of a process, from /proc; 0 where it cannot be told.
func processCPU(pid int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux port
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name before may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

func ownCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cubic sets the congestion control of a socket; a system without it keeps its default.
func cubic(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = setCongestionControl(int(fd))
	})
}
