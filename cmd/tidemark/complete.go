package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidemark-io/tidemark/internal/broker"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionPatience bounds how long the shell waits for a broker's topics.
const completionPatience = time.Second

// completeWords completes a flag with fixed values.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	// The only error is a flag that does not exist, and every test that builds the commands would meet it.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// completeKeys completes a flag that takes keys, with suffix behind each.
func completeKeys(cmd *cobra.Command, flag, suffix string, keys func() []*meta.ConfigKey) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, key := range keys() {
			words = append(words, key.Name+suffix+"\t"+key.Doc)
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return words, directive
	})
	if err != nil {
		panic(err) // see completeWords
	}
}

func brokerKeys() []*meta.ConfigKey { return broker.Keys().BrokerKeys() }
func topicKeys() []*meta.ConfigKey  { return broker.Keys().TopicKeys() }

// completeTopics completes the arguments of a command with the topics of the broker, if one answers; at most limit of
// them, 0 for any number. What follows are files if files is set.
func completeTopics(shared *clientFlags, limit int, files bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			if files {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := namesToComplete(cmd, shared, func(ctx context.Context, admin *kadm.Client) ([]string, error) {
			topics, err := admin.ListTopics(ctx)
			return slices.Sorted(maps.Keys(topics)), err
		})
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGroups completes arguments with the groups of the broker, if one answers.
func completeGroups(shared *clientFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return namesToComplete(cmd, shared, func(ctx context.Context, admin *kadm.Client) ([]string, error) {
			groups, err := admin.ListGroups(ctx)
			return groups.Groups(), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// namesToComplete asks the broker for names; there are none where it does not answer soon.
func namesToComplete(cmd *cobra.Command, shared *clientFlags, list func(context.Context, *kadm.Client) ([]string, error)) []string {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // the shell asks before the command runs
	}
	ctx, cancel := context.WithTimeout(parent, completionPatience)
	defer cancel()
	admin, err := shared.admin(ctx)
	if err != nil {
		return nil
	}
	defer admin.Close()
	names, err := list(ctx, admin)
	if err != nil {
		return nil
	}
	return names
}

// completeResource completes the two words that name a resource of `config`.
func completeResource(shared *clientFlags) cobra.CompletionFunc {
	topics := completeTopics(shared, 1, false)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return []string{"topic", "broker"}, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && args[0] == "topic":
			return topics(cmd, nil, prefix)
		case len(args) == 1 && args[0] == "broker":
			return []string{"default"}, cobra.ShellCompDirectiveNoFileComp
		default:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}
