package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultBootstrap = "localhost:9092"
	defaultPort      = "9092"
	dialTimeout      = 3 * time.Second
	clientID         = "tidemark-cli"
)

// clientFlags are the flags that every client command shares.
type clientFlags struct {
	bootstrap     string
	format        string
	commandConfig string // a properties file that says how to connect; empty for plain text
}

func (f *clientFlags) validate() error {
	if f.format != formatText && f.format != formatJSON {
		return usageError{fmt.Errorf("--format %q: want text or json", f.format)}
	}
	if len(f.seeds()) == 0 {
		return usageError{fmt.Errorf("--bootstrap-server %q: want host:port", f.bootstrap)}
	}
	_, err := f.dialer()
	return err
}

func (f *clientFlags) json() bool { return f.format == formatJSON }

// seeds are the bootstrap servers, each with a port.
func (f *clientFlags) seeds() []string {
	var seeds []string
	for part := range strings.SplitSeq(f.bootstrap, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(part); err != nil {
			part = net.JoinHostPort(strings.Trim(part, "[]"), defaultPort)
		}
		seeds = append(seeds, part)
	}
	return seeds
}

// client connects to the first bootstrap server that answers. The plain dial before it makes "nobody is there" an answer
// of milliseconds; the client alone would go on trying for a long time.
func (f *clientFlags) client(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	if err := f.probe(ctx); err != nil {
		return nil, err
	}
	dial, err := f.dialer()
	if err != nil {
		return nil, err
	}
	base := []kgo.Opt{
		kgo.SeedBrokers(f.seeds()...),
		kgo.ClientID(clientID),
		kgo.SoftwareNameAndVersion("tidemark", versionNumber()),
		kgo.Dialer(dial),
		kgo.RetryTimeout(20 * time.Second),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, usageError{err}
	}
	return cl, nil
}

func (f *clientFlags) admin(ctx context.Context, opts ...kgo.Opt) (*kadm.Client, error) {
	cl, err := f.client(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// probe answers nil if any bootstrap server accepts a connection.
func (f *clientFlags) probe(ctx context.Context) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	var first error
	for _, seed := range f.seeds() {
		conn, err := dialer.DialContext(ctx, "tcp", seed)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if first == nil {
			first = err
		}
	}
	return noBrokerError(strings.Join(f.seeds(), ", "), first)
}

func noBrokerError(seeds string, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return codedError{fmt.Errorf("no broker at %s: the name %q cannot be resolved", seeds, dns.Name), exitNoBroker}
	}
	hint := "run `tidemark start`"
	if seeds != defaultBootstrap {
		hint = "check --bootstrap-server, or run `tidemark start`"
	}
	return codedError{fmt.Errorf("no broker at %s: %s", seeds, hint), exitNoBroker}
}
