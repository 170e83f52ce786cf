package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidemark-io/tidemark/internal/broker"
)

// processStart is as near to the exec of the program as Go code gets: the ready line counts from it.
var processStart = time.Now()

type startFlags struct {
	config    string
	set       []string
	cluster   string
	logLevel  string
	logFormat string
}

func newStart(io streams) *cobra.Command {
	var flags startFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a broker",
		Long: `Run a broker with an embedded registry until SIGINT or SIGTERM. When it serves clients it prints one line on stdout:

  ready tidemark=VERSION address=HOST:PORT data=DIRECTORY ms=MILLISECONDS

Settings are Kafka's keys, from a properties file (--config), the environment (TIDEMARK_LOG_RETENTION_MS is
log.retention.ms) and --set, in rising precedence. Without any, the broker listens on localhost:9092, serves health and
metrics on localhost:9644 and keeps its data in ./tidemark-data.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return start(cmd.Context(), io, &flags)
		},
	}
	cmd.Flags().StringVar(&flags.config, "config", "", "properties `file`; a Kafka server.properties works")
	cmd.Flags().StringVar(&flags.cluster, "cluster", "", "all brokers of the cluster, as `1@host:port,2@host:port,3@host:port`; the same as --set cluster.brokers=")
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "setting `key=value` (repeatable)")
	cmd.Flags().StringVar(&flags.logLevel, "log-level", "info", "least `level` to log: debug, info, warn or error")
	cmd.Flags().StringVar(&flags.logFormat, "log-format", formatText, "log `format` on stderr: text or json")
	completeWords(cmd, "log-level", "debug", "info", "warn", "error")
	completeWords(cmd, "log-format", formatText, formatJSON)
	completeKeys(cmd, "set", "=", brokerKeys)
	return cmd
}

func start(ctx context.Context, io streams, flags *startFlags) error {
	logger, err := flags.logger(io)
	if err != nil {
		return err
	}
	config, err := flags.resolve(logger)
	if err != nil {
		return err
	}
	config.Logger = logger
	config.Version = versionNumber()
	node, err := broker.New(config)
	if err != nil {
		return usageError{err}
	}

	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	select {
	case <-node.Ready():
		announce(io, node, config)
	case err := <-ended:
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // asked to stop before it was ready: a clean stop too
		}
		return err
	}
	select {
	case <-ctx.Done():
		if isTerminal(io.err) {
			fmt.Fprintln(io.err, "stopping; interrupt again to stop at once")
		}
	case err := <-ended:
		return err
	}
	began := time.Now()
	logger.Info("stopping")
	err = <-ended
	if err == nil {
		logger.Info("stopped", slog.Int64("stop_ms", time.Since(began).Milliseconds()))
	}
	return err
}

func (f *startFlags) logger(io streams) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: want debug, info, warn or error", f.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case formatText:
		return slog.New(slog.NewTextHandler(io.err, options)), nil
	case formatJSON:
		return slog.New(slog.NewJSONHandler(io.err, options)), nil
	default:
		return nil, usageError{fmt.Errorf("--log-format %q: want text or json", f.logFormat)}
	}
}

// resolve reads the settings and makes the broker's configuration of them.
func (f *startFlags) resolve(logger *slog.Logger) (broker.Config, error) {
	from := sources{fileName: f.config, env: os.Environ()}
	var err error
	if f.config != "" {
		if from.file, err = readProperties(f.config); err != nil {
			return broker.Config{}, err
		}
	}
	if from.flags, err = parseSettings(f.set); err != nil {
		return broker.Config{}, err
	}
	if f.cluster != "" {
		from.flags = append(from.flags, setting{broker.ClusterKey, f.cluster})
	}
	settings, err := resolve(from, broker.Keys().BrokerKeys())
	if err != nil {
		return broker.Config{}, err
	}
	if len(settings.noEffect) > 0 {
		logger.Warn("settings without effect on tidemark", slog.String("keys", strings.Join(settings.noEffect, ",")))
	}
	config, err := broker.ParseConfig(settings.values)
	if err != nil {
		return broker.Config{}, usageError{err}
	}
	config = config.WithDefaults()
	if absolute, err := filepath.Abs(config.DataDir); err == nil {
		config.DataDir = absolute
	}
	return config, nil
}

// announce prints the ready line on stdout, and on stderr how other machines get in.
func announce(io streams, node *broker.Broker, config broker.Config) {
	address := node.Addrs()[0]
	host, port, _ := net.SplitHostPort(address.String())
	loopback := net.ParseIP(host).IsLoopback()
	if host == "127.0.0.1" {
		host = "localhost"
	}
	fmt.Fprintf(io.out, "ready tidemark=%s address=%s data=%s ms=%d\n", versionNumber(), net.JoinHostPort(host, port), config.DataDir,
		time.Since(processStart).Milliseconds())
	listener := broker.DefaultListenerName
	if len(config.Listeners) > 0 {
		listener = config.Listeners[0].Name
	}
	if loopback && len(config.Cluster) > 1 {
		fmt.Fprintf(io.err, "Only this machine can connect. To serve others: --set listeners=%s://0.0.0.0:%s "+
			"(clients are told the host that --cluster has for this broker, unless advertised.listeners says another).\n", listener, port)
		return
	}
	if loopback {
		fmt.Fprintf(io.err, "Only this machine can connect. To serve others: --set listeners=%[1]s://0.0.0.0:%[2]s; "+
			"behind a proxy or NAT also --set advertised.listeners=%[1]s://NAME:%[2]s (default: clients are told the address they dialled).\n",
			listener, port)
	}
}

// startExitCode is the exit code of a start that failed (docs/operate/exit-codes.md).
func startExitCode(err error) int {
	var failed *broker.StartError
	if !errors.As(err, &failed) {
		return exitFailure
	}
	switch failed.Fault {
	case broker.PortTaken:
		return exitPortTaken
	case broker.DirectoryLocked:
		return exitLocked
	case broker.OtherCluster:
		return exitCluster
	case broker.NewerFormat:
		return exitFormat
	case broker.DirectoryUnusable:
		return exitDirectory
	case broker.AddressUnusable, broker.CertificateUnusable:
		return exitUsage
	default:
		return exitFailure
	}
}
