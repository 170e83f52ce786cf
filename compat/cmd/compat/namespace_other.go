//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

var errNoNamespaces = errors.New("suites run in network namespaces, which only Linux has")

func isolate(*exec.Cmd) error { return errNoNamespaces }

func loopbackUp() error { return errNoNamespaces }
