package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Tools runs Apache Kafka's command-line tools one after the other in one virtual machine: starting one for each would
// cost more than what the tool does. Nothing of a tool is changed; its exit ends the tool only.
type Tools struct {
	mu     sync.Mutex // one tool at a time
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// ToolRun is what one run of a tool said.
type ToolRun struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   int    `json:"exit"` // the exit code it would have ended its process with
}

// StartTools starts the virtual machine; it ends with ctx or Stop.
func (k *Kafka) StartTools(ctx context.Context) (*Tools, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	t := &Tools{cmd: k.Command(ctx, filepath.Join(root, "compat", "kafka", "Tools.java"))}
	t.cmd.Stderr = os.Stderr
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.stdout = bufio.NewReader(stdout)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Java: %w", err)
	}
	return t, nil
}

// Run runs the main method of a class with these arguments and this standard input. A tool that fails is no error: its
// exit code says so.
func (t *Tools) Run(input, class string, args ...string) (ToolRun, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	request, err := json.Marshal(map[string]any{"class": class, "args": append([]string{}, args...), "input": input})
	if err != nil {
		return ToolRun{}, err
	}
	if _, err := t.stdin.Write(append(request, '\n')); err != nil {
		return ToolRun{}, fmt.Errorf("ask for %s: %w", class, err)
	}
	line, err := t.stdout.ReadBytes('\n')
	if err != nil {
		return ToolRun{}, fmt.Errorf("%s does not answer: %w", class, err)
	}
	var run ToolRun
	if err := json.Unmarshal(line, &run); err != nil {
		return ToolRun{}, fmt.Errorf("answer of %s: %w", class, err)
	}
	return run, nil
}

// Stop ends the virtual machine.
func (t *Tools) Stop() error {
	_ = t.stdin.Close()
	return t.cmd.Wait()
}
