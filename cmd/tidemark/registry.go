package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/internal/broker"
)

func newRegistry(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "registry", Short: "Repair the registry of a cluster, without a broker"}
	cmd.AddCommand(newRegistryRecover(io, shared))
	return cmd
}

func newRegistryRecover(io streams, shared *clientFlags) *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:   "recover DIRECTORY",
		Short: "Make the member in a data directory the only one of the registry",
		Long: `Make the member of the registry in a data directory the only one, when a majority of the members is lost for ever. What was
decided and had not reached this member is gone: of several members that are left, take the one with the highest index, which
this command prints. The broker must be stopped. The other members must never start again with their directories: remove
registry/ in each, and they join as new members when their brokers start with --cluster.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("want one data directory; see `%s --help`", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !sure {
				return usageError{errors.New("this cannot be undone: read `tidemark registry recover --help`, then say --yes")}
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return usageError{fmt.Errorf("data directory: %w", err)}
			}
			index, err := broker.RecoverRegistry(cmd.Context(), dir, slog.New(slog.NewTextHandler(io.err, &slog.HandlerOptions{Level: slog.LevelError})))
			if err != nil {
				return err
			}
			if shared.json() {
				return printJSON(io.out, map[string]any{"directory": dir, "index": index})
			}
			fmt.Fprintf(io.out, "%s: the registry has one member, at index %d\n", dir, index)
			return nil
		},
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "the other members are lost for ever")
	return cmd
}
