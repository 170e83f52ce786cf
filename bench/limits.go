package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limits are what the machine gives without a broker, in the same run as the rows.
type limits struct {
	PageCacheWrite    float64 `json:"page_cache_write_mib_s"` // 1 MiB at a time into memory that has been touched before
	PageCacheWriteCPU float64 `json:"page_cache_write_cpu_s_per_gib"`
	DirectRead        float64 `json:"direct_read_mib_s"`   // O_DIRECT, 1 MiB, one at a time
	Loopback          float64 `json:"loopback_bulk_mib_s"` // 1 MiB writes to a process that throws them away
	LoopbackCPU       float64 `json:"loopback_sender_cpu_s_per_gib"`
	PingPongP50       float64 `json:"loopback_ping_pong_p50_us"` // 64 bytes to another process and back
	PingPongP99       float64 `json:"loopback_ping_pong_p99_us"`
	PingPongP999      float64 `json:"loopback_ping_pong_p999_us"`

	Sync []syncLimit `json:"append_fdatasync"`
}

// syncLimit is a loop of one append and one fdatasync.
type syncLimit struct {
	KiB  int     `json:"kib"`
	Rate float64 `json:"mib_s"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

const (
	limitFileBytes = 512 << 20
	limitChunk     = 1 << 20
)

// measureLimits takes a few seconds.
func measureLimits(ctx context.Context, dir string) (*limits, error) {
	l := &limits{}
	for _, step := range []func() error{
		func() error { return l.pageCache(dir) },
		func() error { return l.direct(dir) },
		func() error { return l.loopback(ctx) },
		func() error { return l.syncs(ctx, dir) },
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(); err != nil {
			return nil, fmt.Errorf("raw limits: %w", err)
		}
	}
	return l, nil
}

// pageCache writes a file twice and measures the second time, into the pages that the first one gave back.
func (l *limits) pageCache(dir string) error {
	for range 2 {
		cpu, began := ownCPU(), time.Now()
		path, err := writeFile(dir, limitFileBytes, false)
		if err != nil {
			return err
		}
		l.PageCacheWrite = limitFileBytes / (1 << 20) / time.Since(began).Seconds()
		l.PageCacheWriteCPU = (ownCPU() - cpu) / (float64(limitFileBytes) / (1 << 30))
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func ownCPU() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func writeFile(dir string, size int, synced bool) (string, error) {
	f, err := os.Create(filepath.Join(dir, "limit"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	chunk := make([]byte, limitChunk)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for written := 0; written < size; written += len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return "", err
		}
	}
	if synced {
		return f.Name(), f.Sync()
	}
	return f.Name(), nil
}

func (l *limits) direct(dir string) error {
	path, err := writeFile(dir, limitFileBytes, true)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	l.DirectRead, err = readDirect([]string{path}, time.Minute)
	return err
}

// readDirect reads files one after another past the page cache, for at most so long, and returns MiB/s.
func readDirect(paths []string, most time.Duration) (float64, error) {
	// O_DIRECT wants memory on a block's boundary.
	raw := make([]byte, limitChunk+4096)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & 4095
	buf := raw[skip : skip+limitChunk]
	total, began := 0, time.Now()
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
		if err != nil {
			return 0, err
		}
		for time.Since(began) < most {
			n, err := f.Read(buf)
			total += n
			if err == io.EOF || n < len(buf) && err == nil {
				break
			}
			if err != nil {
				f.Close()
				return 0, err
			}
		}
		f.Close()
	}
	return float64(total) / (1 << 20) / time.Since(began).Seconds(), nil
}

// drainCommand makes this program the other side of the loopback limits.
const drainCommand = "drain"

// serveDrain takes connections; the first byte of each says whether the rest is thrown away or sent back.
func serveDrain(ctx context.Context, w io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	fmt.Fprintf(w, "listening on %s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, limitChunk)
			if _, err := io.ReadFull(conn, buf[:1]); err != nil {
				return
			}
			echo := buf[0] == 'e'
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if echo {
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			}
		}()
	}
}

func (l *limits) loopback(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	other, err := startProcess(exec.CommandContext(ctx, self, drainCommand), childListens)
	if err != nil {
		return err
	}
	defer other.Kill()
	if err := withConn(ctx, other.address, 'd', func(conn net.Conn) error {
		chunk, sent := make([]byte, limitChunk), 0
		cpu, began := ownCPU(), time.Now()
		for time.Since(began) < time.Second {
			n, err := conn.Write(chunk)
			if sent += n; err != nil {
				return err
			}
		}
		l.Loopback = float64(sent) / (1 << 20) / time.Since(began).Seconds()
		l.LoopbackCPU = (ownCPU() - cpu) / (float64(sent) / (1 << 30))
		return nil
	}); err != nil {
		return err
	}
	return withConn(ctx, other.address, 'e', func(conn net.Conn) error {
		message, took := make([]byte, 64), []time.Duration(nil)
		for began := time.Now(); time.Since(began) < time.Second; {
			sent := time.Now()
			if _, err := conn.Write(message); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, message); err != nil {
				return err
			}
			took = append(took, time.Since(sent))
		}
		slices.Sort(took)
		l.PingPongP50, l.PingPongP99, l.PingPongP999 = quantile(took, 0.5)*1e3, quantile(took, 0.99)*1e3, quantile(took, 0.999)*1e3
		return nil
	})
}

func withConn(ctx context.Context, addr string, mode byte, do func(net.Conn) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{mode}); err != nil {
		return err
	}
	return do(conn)
}

func (l *limits) syncs(ctx context.Context, dir string) error {
	for _, kib := range []int{4, 64, 1024} {
		rate, took, err := groupCommit(ctx, dir, 1, 1, kib<<10, time.Second)
		if err != nil {
			return err
		}
		l.Sync = append(l.Sync, syncLimit{kib, rate, quantile(took, 0.5), quantile(took, 0.99)})
	}
	return nil
}

// groupCommit is the loop that no broker can beat which answers after fsync: in each round it appends what each of the
// writers has to say, batchBytes each, with one pwrite for each file that has any, and syncs those files side by side. It
// returns MiB/s and what the rounds took, sorted.
func groupCommit(ctx context.Context, dir string, writers, files, batchBytes int, during time.Duration) (float64, []time.Duration, error) {
	home, err := os.MkdirTemp(dir, "commit-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(home)
	open := make([]*os.File, files)
	for i := range open {
		if open[i], err = os.Create(filepath.Join(home, fmt.Sprint(i))); err != nil {
			return 0, nil, err
		}
		defer open[i].Close()
	}
	buf := make([]byte, batchBytes*writers)
	ends := make([]int64, files)
	errs := make([]error, files)
	var rounds []time.Duration
	began := time.Now()
	for round := 0; round == 0 || time.Since(began) < during && ctx.Err() == nil; round++ {
		started := time.Now()
		said := make([]int, files)
		for w := range writers {
			said[partitionOf(w, round, files)] += batchBytes
		}
		var syncing sync.WaitGroup
		for i, n := range said {
			if n == 0 {
				continue
			}
			write := func() {
				if _, errs[i] = open[i].WriteAt(buf[:n], ends[i]); errs[i] == nil {
					errs[i] = unix.Fdatasync(int(open[i].Fd()))
				}
				ends[i] += int64(n)
			}
			if files == 1 {
				write()
			} else {
				syncing.Go(write)
			}
		}
		syncing.Wait()
		for _, err := range errs {
			if err != nil {
				return 0, nil, err
			}
		}
		rounds = append(rounds, time.Since(started))
	}
	rate := float64(len(rounds)*len(buf)) / (1 << 20) / time.Since(began).Seconds()
	slices.Sort(rounds)
	return rate, rounds, ctx.Err()
}

// partitionOf is where a writer of B-P9 sends its batch in a round: all partitions take turns.
func partitionOf(writer, round, partitions int) int { return (writer + round) % partitions }

// touchMemory writes to this much memory once and gives it back: the first touch of a virtual machine's memory costs
// several times what writing to it costs, and whoever runs first would pay.
func touchMemory(bytes int64) error {
	const piece = 256 << 20
	var held [][]byte
	defer func() {
		for _, m := range held {
			_ = unix.Munmap(m)
		}
	}()
	for ; bytes > 0; bytes -= piece {
		m, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return fmt.Errorf("touch memory: %w", err)
		}
		held = append(held, m)
		for at := 0; at < len(m); at += 4096 {
			m[at] = 1
		}
	}
	return nil
}

// availableMemory is what the kernel says could be had without swapping, in bytes.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return parseAvailable(string(text))
}
