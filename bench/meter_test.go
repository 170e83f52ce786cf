package main

import (
	"os"
	"testing"
)

func TestProcessSeconds(t *testing.T) {
	// A name with a blank and parentheses is what a process may have.
	stat := "7 (a ) b) S 1 7 7 0 -1 4194304 1 0 0 0 1234 66 0 0 20 0 9 0 1 2 3"
	if got, err := processSeconds(stat); err != nil || got != 13 {
		t.Errorf("processor time is %v, %v, want 13 s", got, err)
	}
	if _, err := processSeconds("7 (a) S 1"); err == nil {
		t.Error("a line that is too short is taken")
	}
	if _, err := cpuSeconds([]int{os.Getpid()}); err != nil {
		t.Error(err)
	}
}

func TestBusySeconds(t *testing.T) {
	// user 100, nice 1, system 200, idle 9999, iowait 888, irq 2, softirq 3, steal 4
	if got, err := busySeconds("cpu  100 1 200 9999 888 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"); err != nil || got != 3.1 {
		t.Errorf("busy for %v, %v, want 3.1 s", got, err)
	}
	if _, err := busySeconds("intr 1 2 3"); err == nil {
		t.Error("another file's line is taken")
	}
}

func TestMemory(t *testing.T) {
	rss, err := memoryMiB([]int{os.Getpid()}, "VmRSS")
	if err != nil || rss <= 0 {
		t.Errorf("this process has %v MiB, %v", rss, err)
	}
	peak, err := memoryMiB([]int{os.Getpid()}, "VmHWM")
	if err != nil || peak <= 0 {
		t.Errorf("this process had %v MiB, %v", peak, err)
	}
	if got, err := parseAvailable("MemTotal: 9 kB\nMemAvailable:       4 kB\n"); err != nil || got != 4096 {
		t.Errorf("available are %v, %v, want 4096", got, err)
	}
	if _, err := parseAvailable("MemTotal: 9 kB\n"); err == nil {
		t.Error("memory is available where none is told")
	}
}
