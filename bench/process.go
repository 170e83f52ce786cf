package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// process is a server of which no more is known than where it listens.
type process struct {
	cmd     *exec.Cmd
	address string
}

// startProcess starts a server and waits until a line of its output says where it listens; one that is late is killed.
func startProcess(cmd *exec.Cmd, listens *regexp.Regexp) (*process, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	late := time.AfterFunc(listenPatience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if match := listens.FindStringSubmatch(lines.Text()); match != nil {
			go func() { // what else it prints must not block it
				for lines.Scan() {
				}
				out.Close()
			}()
			return &process{cmd, match[1]}, nil
		}
		said = append(said, lines.Text())
	}
	return nil, fmt.Errorf("%s ended before it listened: %w\n%s", cmd.Path, errors.Join(cmd.Wait(), out.Close()), strings.Join(said, "\n"))
}

func (p *process) addr() string { return p.address }
func (p *process) pids() []int  { return []int{p.cmd.Process.Pid} }

// Stop asks the server to end, and kills it when it has not after ten seconds.
func (p *process) Stop() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // a signal is how it is meant to end
	if !kill.Stop() {
		return fmt.Errorf("%s did not end within 10 s of SIGTERM", p.cmd.Path)
	}
	return nil
}

func (p *process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// listenPatience is how long a server may take until it accepts connections where it has said that it will.
const listenPatience = 10 * time.Second

// awaitListening returns when a server accepts connections.
func awaitListening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listenPatience, fmt.Errorf("nobody answers at %s within %s", addr, listenPatience))
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
}
