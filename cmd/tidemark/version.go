package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build (-ldflags "-X main.version=…").
var version = ""

// versionNumber is the release's number, or what the Go toolchain knows of the build.
func versionNumber() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "0.1.0-dev"
}

func newVersion(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if shared.json() {
				return printJSON(io.out, struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{versionNumber(), runtime.Version(), platform})
			}
			_, err := fmt.Fprintf(io.out, "tidemark %s %s %s\n", versionNumber(), runtime.Version(), platform)
			return err
		},
	}
}

// noArguments, exactArguments and someArguments are cobra's checks with our exit code.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("`%s` takes no arguments, got %q", cmd.CommandPath(), args[0])}
}

func exactArguments(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usageError{fmt.Errorf("want `%s`, got %d arguments", cmd.UseLine(), len(args))}
	}
}

func someArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return usageError{fmt.Errorf("want `%s`", cmd.UseLine())}
}
