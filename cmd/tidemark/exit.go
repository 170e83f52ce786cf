package main

import "errors"

// The exit codes, documented in docs/operate/exit-codes.md. A script may rely on them.
const (
	exitOK          = 0
	exitFailure     = 1   // the work failed: the message says why
	exitUsage       = 2   // bad flag, argument, configuration file, key or value
	exitPortTaken   = 3   // an address to listen on is in use
	exitLocked      = 4   // another process holds the data directory
	exitCluster     = 5   // the data directory belongs to another cluster or broker
	exitFormat      = 6   // the data directory was written by a newer tidemark
	exitDirectory   = 7   // the data directory cannot be created, read or written
	exitNoBroker    = 8   // nobody answers at the bootstrap servers
	exitInterrupted = 130 // SIGINT or SIGTERM ended a client command
)

// usageError marks a fault of the command line or of the configuration: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// codedError carries its own exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func exitCodeOf(err error) int {
	var coded codedError
	var usage usageError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return exitUsage
	default:
		return startExitCode(err)
	}
}
