package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newTopic(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"}
	cmd.AddCommand(
		newTopicCreate(io, shared),
		newTopicList(io, shared),
		newTopicDescribe(io, shared),
		newTopicAlter(io, shared),
		newTopicDelete(io, shared),
	)
	return cmd
}

func newTopicCreate(io streams, shared *clientFlags) *cobra.Command {
	var partitions, replication int32
	var settings []string
	var ifNotExists, dryRun bool
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Args:  someArguments,
		RunE: func(cmd *cobra.Command, topics []string) error {
			configs, err := parseSettings(settings)
			if err != nil {
				return err
			}
			if replication < math.MinInt16 || replication > math.MaxInt16 {
				return usageError{fmt.Errorf("--replication-factor %d: want a small positive number", replication)}
			}
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			create := admin.CreateTopics
			if dryRun {
				create = admin.ValidateCreateTopics
			}
			values := make(map[string]*string, len(configs))
			for _, c := range configs {
				values[c.key] = &c.value
			}
			answers, err := create(cmd.Context(), partitions, int16(replication), values, topics...)
			if err != nil {
				return fmt.Errorf("create topics: %w", err)
			}
			return reportTopics(io, shared, topics, func(topic string) topicResult {
				answer := answers[topic]
				switch {
				case answer.Err == nil:
					return topicResult{Topic: topic, ID: idText(answer.ID), Partitions: answer.NumPartitions}
				case ifNotExists && isCode(answer.Err, "TOPIC_ALREADY_EXISTS"):
					return topicResult{Topic: topic}
				default:
					err := explained("create topic "+topic, answer.Err, answer.ErrMessage)
					if isCode(answer.Err, "INVALID_CONFIG") {
						err = fmt.Errorf("%w%s", err, unknownKeyHint(configs))
					}
					return topicResult{Topic: topic, err: err}
				}
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "number of `partitions` (default: the broker's num.partitions)")
	cmd.Flags().Int32Var(&replication, "replication-factor", -1, "`copies` of each partition (default: the broker's)")
	cmd.Flags().StringArrayVar(&settings, "set", nil, "topic setting `key=value` (repeatable)")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "an existing topic is not an error")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check only, create nothing")
	completeKeys(cmd, "set", "=", topicKeys)
	hideDefaults(cmd, "partitions", "replication-factor")
	return cmd
}

func newTopicDelete(io streams, shared *clientFlags) *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics",
		Args:  someArguments,

		ValidArgsFunction: completeTopics(shared, 0, false),
		RunE: func(cmd *cobra.Command, topics []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			answers, err := admin.DeleteTopics(cmd.Context(), topics...)
			if err != nil {
				return fmt.Errorf("delete topics: %w", err)
			}
			return reportTopics(io, shared, topics, func(topic string) topicResult {
				answer := answers[topic]
				switch {
				case answer.Err == nil:
					return topicResult{Topic: topic, ID: idText(answer.ID)}
				case ifExists && isCode(answer.Err, "UNKNOWN_TOPIC_OR_PARTITION"):
					return topicResult{Topic: topic}
				default:
					return topicResult{Topic: topic, err: explained("delete topic "+topic, answer.Err, answer.ErrMessage)}
				}
			})
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a missing topic is not an error")
	return cmd
}

func newTopicAlter(io streams, shared *clientFlags) *cobra.Command {
	var partitions int
	var settings, unset []string
	cmd := &cobra.Command{
		Use:   "alter TOPIC...",
		Short: "Add partitions, set or unset settings",
		Args:  someArguments,

		ValidArgsFunction: completeTopics(shared, 0, false),
		RunE: func(cmd *cobra.Command, topics []string) error {
			changes, err := parseChanges(settings, unset)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("partitions") && partitions < 1 {
				return usageError{fmt.Errorf("--partitions %d: want the new total, a positive number", partitions)}
			}
			if partitions == 0 && len(changes) == 0 {
				return usageError{errors.New("nothing to alter: give --partitions, --set or --unset")}
			}
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			return alterTopics(cmd.Context(), io, shared, admin, topics, partitions, changes)
		},
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "new total number of `partitions`")
	cmd.Flags().StringArrayVar(&settings, "set", nil, "topic setting `key=value` (repeatable)")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "topic setting `key` to take back to its default (repeatable)")
	completeKeys(cmd, "set", "=", topicKeys)
	completeKeys(cmd, "unset", "", topicKeys)
	return cmd
}

func alterTopics(ctx context.Context, io streams, shared *clientFlags, admin *kadm.Client, topics []string,
	partitions int, changes []kadm.AlterConfig,
) error {
	failed := map[string]error{}
	if err := checkTopicKeys(ctx, admin, topics, changes); err != nil {
		return err
	}
	if partitions > 0 {
		answers, err := admin.UpdatePartitions(ctx, partitions, topics...)
		if err != nil {
			return fmt.Errorf("add partitions: %w", err)
		}
		for topic, answer := range answers {
			if answer.Err != nil {
				failed[topic] = explained("add partitions to "+topic, answer.Err, answer.ErrMessage)
			}
		}
	}
	if len(changes) > 0 {
		answers, err := admin.AlterTopicConfigs(ctx, changes, topics...)
		if err != nil {
			return fmt.Errorf("alter settings: %w", err)
		}
		for _, answer := range answers {
			if answer.Err != nil && failed[answer.Name] == nil {
				failed[answer.Name] = explained("alter settings of "+answer.Name, answer.Err, answer.ErrMessage)
			}
		}
	}
	return reportTopics(io, shared, topics, func(topic string) topicResult {
		return topicResult{Topic: topic, Partitions: int32(partitions), err: failed[topic]}
	})
}

// checkTopicKeys refuses keys that no topic has, before anything is changed. A broker ignores the removal of a key that it
// does not know, so that a misspelt one would seem to be done. A topic that cannot be described is the broker's to refuse.
func checkTopicKeys(ctx context.Context, admin *kadm.Client, topics []string, changes []kadm.AlterConfig) error {
	if len(changes) == 0 {
		return nil
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return fmt.Errorf("describe settings: %w", err)
	}
	for _, c := range configs {
		if c.Err != nil {
			continue
		}
		names := make([]string, len(c.Configs))
		for i, config := range c.Configs {
			names[i] = config.Key
		}
		return checkKeys(names, changes)
	}
	return nil
}

func newTopicList(io streams, shared *clientFlags) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			list := admin.ListTopics
			if internal {
				list = admin.ListTopicsWithInternal
			}
			topics, err := list(cmd.Context())
			if err != nil {
				return fmt.Errorf("list topics: %w", err)
			}
			if shared.json() {
				out := make([]topicDescription, 0, len(topics))
				for _, topic := range topics.Sorted() {
					out = append(out, describe(topic))
				}
				return printJSON(io.out, out)
			}
			for _, topic := range topics.Sorted() {
				if _, err := fmt.Fprintln(io.out, topic.Topic); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

// topicDescription is a topic in JSON.
type topicDescription struct {
	Topic      string                 `json:"topic"`
	ID         string                 `json:"id"`
	Internal   bool                   `json:"internal"`
	Partitions []partitionDescription `json:"partitions"`
	Config     map[string]string      `json:"config,omitempty"` // what differs from the defaults
}

type partitionDescription struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       *int64  `json:"start_offset,omitempty"`
	End         *int64  `json:"end_offset,omitempty"`
}

func describe(topic kadm.TopicDetail) topicDescription {
	out := topicDescription{Topic: topic.Topic, ID: idText(topic.ID), Internal: topic.IsInternal}
	for _, p := range topic.Partitions.Sorted() {
		out.Partitions = append(out.Partitions, partitionDescription{
			Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
		})
	}
	return out
}

func newTopicDescribe(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TOPIC...",
		Short: "Describe topics: partitions, replicas, offsets, settings",
		Args:  someArguments,

		ValidArgsFunction: completeTopics(shared, 0, false),
		RunE: func(cmd *cobra.Command, topics []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			out, err := describeTopics(cmd.Context(), admin, topics)
			if shared.json() && len(out) > 0 {
				return errors.Join(printJSON(io.out, out), err)
			}
			for _, topic := range out {
				if printErr := topic.print(io); printErr != nil {
					return printErr
				}
			}
			return err
		},
	}
}

// describeTopics gathers what can be told of each topic; the error names those that cannot be described.
func describeTopics(ctx context.Context, admin *kadm.Client, names []string) ([]topicDescription, error) {
	details, err := admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var out []topicDescription
	var errs []error
	var found []string
	for _, name := range names {
		switch detail, known := details[name]; {
		case !known:
			errs = append(errs, fmt.Errorf("describe topic %s: the broker did not answer for it", name))
		case detail.Err != nil:
			errs = append(errs, explained("describe topic "+name, detail.Err, ""))
		default:
			out = append(out, describe(detail))
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil, errors.Join(errs...)
	}
	starts, startErr := admin.ListStartOffsets(ctx, found...)
	ends, endErr := admin.ListEndOffsets(ctx, found...)
	configs, configErr := admin.DescribeTopicConfigs(ctx, found...)
	errs = append(errs, startErr, endErr, configErr)
	for i := range out {
		topic := &out[i]
		for j := range topic.Partitions {
			p := &topic.Partitions[j]
			if offset, ok := starts.Lookup(topic.Topic, p.Partition); ok && offset.Err == nil {
				p.Start = &offset.Offset
			}
			if offset, ok := ends.Lookup(topic.Topic, p.Partition); ok && offset.Err == nil {
				p.End = &offset.Offset
			}
		}
		topic.Config = overrides(configs, topic.Topic)
	}
	return out, errors.Join(errs...)
}

// overrides are the settings of a topic that differ from the defaults.
func overrides(configs kadm.ResourceConfigs, name string) map[string]string {
	out := map[string]string{}
	for _, resource := range configs {
		if resource.Name != name {
			continue
		}
		for _, c := range resource.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil {
				out[c.Key] = *c.Value
			}
		}
	}
	return out
}

func (t topicDescription) print(io streams) error {
	keys := make([]string, 0, len(t.Config))
	for key, value := range t.Config {
		keys = append(keys, key+"="+value)
	}
	slices.Sort(keys)
	fmt.Fprintf(io.out, "topic %s  id %s  partitions %d", t.Topic, t.ID, len(t.Partitions))
	if len(keys) > 0 {
		fmt.Fprintf(io.out, "  %s", strings.Join(keys, " "))
	}
	fmt.Fprintln(io.out)
	rows := [][]string{{"  PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"}}
	for _, p := range t.Partitions {
		rows = append(rows, []string{
			fmt.Sprintf("  %d", p.Partition), leaderText(p.Leader), strconv.Itoa(int(p.LeaderEpoch)),
			idsText(p.Replicas), idsText(p.ISR), offsetText(p.Start), offsetText(p.End),
		})
	}
	return printTable(io.out, rows)
}

func leaderText(id int32) string {
	if id < 0 {
		return "none"
	}
	return strconv.Itoa(int(id))
}

func idsText(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	return strings.Join(texts, ",")
}

func offsetText(offset *int64) string {
	if offset == nil {
		return "?"
	}
	return strconv.FormatInt(*offset, 10)
}

// topicResult is the outcome of a change to one topic.
type topicResult struct {
	Topic      string `json:"topic"`
	ID         string `json:"id,omitempty"`
	Partitions int32  `json:"partitions,omitempty"`
	Error      string `json:"error,omitempty"`
	err        error
}

// reportTopics prints the outcomes in the order asked for, names on stdout, and joins the failures.
func reportTopics(io streams, shared *clientFlags, topics []string, result func(string) topicResult) error {
	var errs []error
	var results []topicResult
	for _, topic := range topics {
		r := result(topic)
		if r.err != nil {
			r.Error = r.err.Error()
			errs = append(errs, r.err)
		}
		results = append(results, r)
	}
	if shared.json() {
		return errors.Join(append(errs, printJSON(io.out, results))...)
	}
	for _, r := range results {
		if r.err == nil {
			fmt.Fprintln(io.out, r.Topic)
		}
	}
	return errors.Join(errs...)
}
