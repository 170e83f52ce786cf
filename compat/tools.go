package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Tools runs Apache Kafka's command-line tools one after the other in one virtual machine: starting one for each would
// cost more than what the tool does. Nothing of a tool is changed; its exit ends the tool only.
type Tools struct {
	kafka *Kafka
	mu    sync.Mutex // one tool at a time
	vm    *toolVM    // nil: the next tool starts one
}

// toolVM is a virtual machine that takes tools.
type toolVM struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// toolPatience bounds one tool. They give up by themselves after a minute.
const toolPatience = 3 * time.Minute

// ToolRun is what one run of a tool said.
type ToolRun struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   int    `json:"exit"` // the exit code it would have ended its process with
}

// Tools prepares to run tools; Stop ends what runs then.
func (k *Kafka) Tools() *Tools { return &Tools{kafka: k} }

// Run runs the main method of a class with these arguments and this standard input. A tool that fails is no error: its
// exit code says so. One that does not end is, and is killed.
func (t *Tools) Run(ctx context.Context, input, class string, args ...string) (ToolRun, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vm == nil {
		vm, err := t.kafka.startToolVM()
		if err != nil {
			return ToolRun{}, err
		}
		t.vm = vm
	}
	ctx, cancel := context.WithTimeout(ctx, toolPatience)
	defer cancel()
	vm := t.vm
	kill := context.AfterFunc(ctx, func() { _ = vm.cmd.Process.Kill() })
	run, err := vm.run(input, class, args)
	if !kill() || err != nil {
		t.vm = nil
		return ToolRun{}, fmt.Errorf("%s: %w", class, errors.Join(err, ctx.Err(), vm.stop()))
	}
	return run, nil
}

// Stop ends the virtual machine.
func (t *Tools) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vm == nil {
		return nil
	}
	vm := t.vm
	t.vm = nil
	return vm.stop()
}

func (k *Kafka) startToolVM() (*toolVM, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	vm := &toolVM{cmd: k.Command(context.Background(), filepath.Join(root, "compat", "kafka", "Tools.java"))}
	vm.cmd.Stderr = os.Stderr
	if vm.stdin, err = vm.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := vm.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	vm.stdout = bufio.NewReader(stdout)
	if err := vm.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Java: %w", err)
	}
	return vm, nil
}

func (vm *toolVM) run(input, class string, args []string) (run ToolRun, err error) {
	request, err := json.Marshal(map[string]any{"class": class, "args": append([]string{}, args...), "input": input})
	if err != nil {
		return run, err
	}
	if _, err := vm.stdin.Write(append(request, '\n')); err != nil {
		return run, fmt.Errorf("ask for it: %w", err)
	}
	line, err := vm.stdout.ReadBytes('\n')
	if err != nil {
		return run, fmt.Errorf("it does not answer: %w", err)
	}
	return run, json.Unmarshal(line, &run)
}

func (vm *toolVM) stop() error {
	_ = vm.stdin.Close()
	return vm.cmd.Wait()
}
