// Command tidemark is the broker and the tool of everybody who uses it: `start` runs a broker, every other subcommand is
// a client of one, or reads its files. Data goes to stdout, everything else to stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code (exit.go). The first SIGINT or SIGTERM cancels the command's
// context; a second Ctrl-C ends the process at once.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go obey(ctx, signals, cancel, func() { os.Exit(exitInterrupted) })

	root := newRoot(streams{in: stdin, out: stdout, err: stderr})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "tidemark: %v\n", err)
	return exitCodeOf(err)
}

// echo is how long after the first signal others are the same one, come twice: timeout(1), process groups and wrappers
// signal a process and then everybody, and a person is not that fast.
const echo = 300 * time.Millisecond

// obey calls stop at the first signal, and exit at a second Ctrl-C. A second SIGTERM does not hurry a stop: whoever cannot
// wait has SIGKILL. It returns when ctx ends before any signal came; the process ends it otherwise.
func obey(ctx context.Context, signals <-chan os.Signal, stop, exit func()) {
	select {
	case <-ctx.Done():
		return
	case <-signals:
	}
	stop()
	first := time.Now()
	for s := range signals {
		if s == os.Interrupt && time.Since(first) > echo {
			exit()
			return
		}
	}
}

// streams are the three files of the command, so that tests can hold them.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

func newRoot(io streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidemark",
		Short: "A Kafka-compatible streaming broker in one binary",
		Long: `Tidemark is a streaming broker that unmodified Kafka clients use.

  tidemark start                       run a broker on localhost:9092
  tidemark topic create lines          create a topic
  tidemark produce lines < file        produce each line of stdin
  tidemark consume lines --from-beginning --exit-at-end`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", flagError(err), cmd.CommandPath())}
	})

	var shared clientFlags
	root.PersistentFlags().StringVar(&shared.bootstrap, "bootstrap-server", defaultBootstrap,
		"`host:port` of a broker, or several separated by commas")
	root.PersistentFlags().StringVar(&shared.commandConfig, "command-config", "",
		"properties `file` with security.protocol and ssl.* of Kafka's clients, for brokers that want TLS")
	root.PersistentFlags().StringVar(&shared.format, "format", formatText, "output `format`: text or json")
	completeWords(root, "format", formatText, formatJSON)
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return shared.validate() }

	root.AddCommand(
		newStart(io),
		newTopic(io, &shared),
		newGroup(io, &shared),
		newPartition(io, &shared),
		newExplain(io, &shared),
		newCluster(io, &shared),
		newRegistry(io, &shared),
		newProduce(io, &shared),
		newConsume(io, &shared),
		newLog(io, &shared),
		newConfig(io, &shared),
		newVersion(io, &shared),
	)
	refuseUnknown(root)
	for _, group := range root.Commands() {
		refuseUnknown(group)
	}
	return root
}

// refuseUnknown makes a command that only groups others say so when it is called with a word it does not know.
func refuseUnknown(cmd *cobra.Command) {
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		names := func(yield func(string) bool) {
			for _, sub := range cmd.Commands() {
				if !yield(sub.Name()) {
					return
				}
			}
		}
		return usageError{fmt.Errorf("unknown command %q%s; see `%s --help`", args[0], didYouMean(args[0], names), cmd.CommandPath())}
	}
}

// flagError says what would be right instead of what a function of Go's library thinks of the value.
func flagError(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	want := "a number"
	switch {
	case number.Func == "ParseBool":
		want = "true or false"
	case errors.Is(number.Err, strconv.ErrRange):
		want = "a number nearer to 0"
	}
	text, _, _ := strings.Cut(err.Error(), ": strconv.")
	return fmt.Errorf("%s: want %s", text, want)
}
