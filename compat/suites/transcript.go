package suites

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// A transcript is what Apache Kafka's command-line tools print when they are run in this order on a new topic or group.
// Both brokers are held against it; it was recorded on Apache Kafka. Its lines:
//
//	# remark
//	= NAME                a file {dir}/NAME with the lines that follow, each after `| `
//	$ TOOL ARGUMENTS      runs a tool, with `--bootstrap-server {addr}` unless {addr} is among the arguments
//	& TOOL ARGUMENTS      starts a tool in a process of its own and waits until its output has all of the `~` lines
//	!                     ends what `&` started, with SIGTERM
//	< TEXT                a line of the tool's standard input
//	~ PATTERN             a line of the output matches
//	? CODE                the exit code, if it is not 0
//	TEXT                  a line of the output; a run with such lines prints these and no others
//
// What differs from run to run (addresses, ids, times) is replaced by its name before lines are compared.
type transcript struct {
	name  string
	steps []*step
}

// step is a command of a transcript and what it says.
type step struct {
	kind     byte // '$', '&', '!' or '='
	line     int
	words    []string
	input    []string
	patterns []string
	output   []string
	exit     int
}

// parseTranscript reads a transcript's text.
func parseTranscript(name, text string) (*transcript, error) {
	t := &transcript{name: name}
	var current *step
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		kind, rest, marked := byte(0), line, false
		if len(line) >= 1 && strings.IndexByte("#=$&!<|~?", line[0]) >= 0 && (len(line) == 1 || line[1] == ' ') {
			kind, rest, marked = line[0], strings.TrimPrefix(line[1:], " "), true
		}
		if current == nil && strings.IndexByte("#=$&!", kind) < 0 && line != "" {
			return nil, fmt.Errorf("%s:%d: %q belongs to no command", name, i+1, line)
		}
		switch {
		case !marked && line == "":
		case !marked:
			current.output = append(current.output, line)
		case kind == '#':
		case kind == '<' || kind == '|':
			current.input = append(current.input, rest)
		case kind == '~':
			current.patterns = append(current.patterns, rest)
		case kind == '?':
			if _, err := fmt.Sscanf(rest, "%d", &current.exit); err != nil {
				return nil, fmt.Errorf("%s:%d: exit code: %w", name, i+1, err)
			}
		default:
			current = &step{kind: kind, line: i + 1, words: strings.Fields(rest)}
			t.steps = append(t.steps, current)
		}
	}
	return t, nil
}

// player plays transcripts against one broker.
type player struct {
	kafka  *compat.Kafka
	tools  *compat.Tools
	addr   string
	dir    string                                // for files of the transcripts
	record func(s *step, got []string, exit int) // hears what each `$` said; nil: nobody listens
}

// play runs a transcript on a broker without topics and groups, and returns how what was printed differs from it.
func (p *player) play(ctx context.Context, t *transcript) error {
	if err := p.clear(ctx); err != nil {
		return err
	}
	var running []*exec.Cmd
	defer func() {
		for _, cmd := range running {
			_ = stop(cmd)
		}
	}()
	var faults []error
	for _, s := range t.steps {
		var err error
		switch s.kind {
		case '=':
			err = os.WriteFile(filepath.Join(p.dir, s.words[0]), []byte(p.fill(strings.Join(s.input, "\n"))+"\n"), 0o600)
		case '&':
			var cmd *exec.Cmd
			if cmd, err = p.startTool(ctx, s); cmd != nil {
				running = append(running, cmd)
			}
		case '!':
			if len(running) == 0 {
				return fmt.Errorf("%s:%d: nothing runs", t.name, s.line)
			}
			err = stop(running[len(running)-1])
			running = running[:len(running)-1]
		default:
			err = p.runTool(ctx, s)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %s: %w", t.name, s.line, strings.Join(s.words, " "), err))
		}
	}
	return errors.Join(faults...)
}

// clear deletes what other transcripts have left: groups when their static members' sessions are over, and topics, which
// Apache Kafka lists for a while after it has deleted them.
func (p *player) clear(ctx context.Context) error {
	server := []string{"--bootstrap-server", p.addr}
	deadline := time.Now().Add(toolPatience)
	for {
		groups, err := p.tools.Run(ctx, "", toolClasses["kafka-consumer-groups"], append(server, "--delete", "--all-groups")...)
		if err != nil {
			return err
		}
		if _, err := p.tools.Run(ctx, "", toolClasses["kafka-topics"], append(server, "--delete", "--if-exists", "--topic", "(?!__).*")...); err != nil {
			return err
		}
		topics, err := p.tools.Run(ctx, "", toolClasses["kafka-topics"], append(server, "--list", "--exclude-internal")...)
		if err != nil {
			return err
		}
		if !strings.Contains(groups.Stdout, "could not be deleted") && strings.TrimSpace(topics.Stdout) == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("what an earlier transcript left stays: %s%s%s", groups.Stdout, topics.Stdout, topics.Stderr)
		}
	}
}

func (p *player) fill(text string) string {
	return strings.NewReplacer("{addr}", p.addr, "{dir}", p.dir).Replace(text)
}

// command is a tool's class and arguments.
func (p *player) command(s *step) (string, []string, error) {
	class, known := toolClasses[s.words[0]]
	if !known {
		return "", nil, fmt.Errorf("no tool is called %s", s.words[0])
	}
	args := slices.Clone(s.words[1:])
	if !strings.Contains(strings.Join(args, " "), "{addr}") {
		args = append(args, "--bootstrap-server", "{addr}")
	}
	for i := range args {
		args[i] = p.fill(args[i])
	}
	return class, args, nil
}

func (p *player) runTool(ctx context.Context, s *step) error {
	class, args, err := p.command(s)
	if err != nil {
		return err
	}
	run, err := p.tool(ctx, s.words[0], p.fill(strings.Join(s.input, "\n"))+"\n", class, args)
	if err != nil {
		return err
	}
	got := normal(run.Stdout+run.Stderr, p.addr, p.dir)
	if p.record != nil {
		p.record(s, got, run.Exit)
	}
	return s.compare(got, run.Exit)
}

// tool runs a tool where it belongs: those that finish their work when their process ends need one of their own.
func (p *player) tool(ctx context.Context, name, input, class string, args []string) (compat.ToolRun, error) {
	if !strings.HasPrefix(name, "kafka-verifiable-") {
		return p.tools.Run(ctx, input, class, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, toolPatience)
	defer cancel()
	cmd := p.kafka.Command(ctx, class, args...)
	out, err := compat.Run(cmd, input)
	if cmd.ProcessState == nil {
		return compat.ToolRun{}, err
	}
	return compat.ToolRun{Stdout: out.Stdout, Stderr: out.Stderr, Exit: cmd.ProcessState.ExitCode()}, nil
}

// compare says where a run differs from the transcript.
func (s *step) compare(got []string, exit int) error {
	var faults []string
	if exit != s.exit {
		faults = append(faults, fmt.Sprintf("ended with %d, not %d", exit, s.exit))
	}
	for _, pattern := range s.patterns {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(got, re.MatchString) {
			faults = append(faults, fmt.Sprintf("no line matches %q", pattern))
		}
	}
	want := s.output
	if s.words[0] != "kafka-console-consumer" { // the others print their tables in the order of a hash
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	}
	if (len(want) > 0 || len(s.patterns) == 0) && !slices.Equal(got, want) {
		for _, line := range want {
			if !slices.Contains(got, line) {
				faults = append(faults, "missing: "+line)
			}
		}
		for _, line := range got {
			if !slices.Contains(want, line) {
				faults = append(faults, "unexpected: "+line)
			}
		}
		if len(faults) == 0 {
			faults = append(faults, "the order of the lines differs")
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s\nit printed:\n%s", strings.Join(faults, "\n"), strings.Join(got, "\n"))
}

// toolPatience bounds how long a background tool may take to say what it must.
const toolPatience = time.Minute

func (p *player) startTool(ctx context.Context, s *step) (*exec.Cmd, error) {
	class, args, err := p.command(s)
	if err != nil {
		return nil, err
	}
	cmd := p.kafka.Command(ctx, class, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	waiting := slices.Clone(s.patterns)
	patience, over := context.WithTimeout(ctx, toolPatience)
	defer over()
	for len(waiting) > 0 {
		select {
		case line, open := <-lines:
			if !open {
				return cmd, fmt.Errorf("ended before it said %q", waiting)
			}
			waiting = slices.DeleteFunc(waiting, func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(line) })
		case <-patience.Done():
			return cmd, fmt.Errorf("did not say %q within %s", waiting, toolPatience)
		}
	}
	go func() {
		for range lines {
		}
	}()
	return cmd, nil
}

// stop ends a background tool as a user's interrupt would.
func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // 143 after SIGTERM
	return nil
}

// variable is what differs from run to run.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "{uuid}"},
	{regexp.MustCompile(`(TopicId|Cluster ID): [A-Za-z0-9_-]{22}`), "$1: {id}"},
	{regexp.MustCompile(`/?127\.0\.0\.1:\d+`), "{addr}"},
	{regexp.MustCompile(`/127\.0\.0\.1\b`), "{host}"},
	{regexp.MustCompile(`localhost:\d+`), "{addr}"},
	{regexp.MustCompile(`"log_dirs":\["/[^"]*"\]`), `"log_dirs":["{path}"]`},
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "{time}"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[:.,]\d{3}Z?`), "{time}"},
}

// beside is what lies beside the matter: a stack trace says where in the tool something went wrong, not what, and some
// tools recommend the consumer protocol where it is served; log.flush.acks is a setting of our own.
var beside = regexp.MustCompile(`^log\.flush\.acks=|^The consumer rebalance protocol \(KIP-848\) is production-ready!|^at [\w.$<>]+\(|^at .*/[\w.$/]+\(|^\.\.\. \d+ more$`)

// normal is an output's lines without what differs from run to run; columns are one blank apart.
func normal(out, addr, dir string) []string {
	out = strings.NewReplacer(addr, "{addr}", dir, "{dir}").Replace(out)
	var lines []string
	for line := range strings.Lines(out) {
		for _, v := range variable {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		if line = strings.Join(strings.Fields(line), " "); line != "" && !beside.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}
