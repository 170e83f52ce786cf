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
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code (exit.go). The first SIGINT or SIGTERM cancels the command's
// context; a second one ends the process at once.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // the default action of the signals is back: a second Ctrl-C exits at once
	}()

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
		return usageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
	})

	var shared clientFlags
	root.PersistentFlags().StringVar(&shared.bootstrap, "bootstrap-server", defaultBootstrap,
		"`host:port` of a broker, or several separated by commas")
	root.PersistentFlags().StringVar(&shared.format, "format", formatText, "output `format`: text or json")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return shared.validate() }

	root.AddCommand(
		newStart(io),
		newTopic(io, &shared),
		newProduce(io, &shared),
		newConsume(io, &shared),
		newLog(io, &shared),
		newConfig(io, &shared),
		newVersion(io, &shared),
	)
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return usageError{fmt.Errorf("unknown command %q; see `%s --help`", args[0], cmd.CommandPath())}
	}
}
