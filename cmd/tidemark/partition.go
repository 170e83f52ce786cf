package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newPartition(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "partition", Short: "List partitions, move their replicas, elect their leaders"}
	cmd.AddCommand(newPartitionList(io, shared), newPartitionReassign(io, shared), newPartitionElect(io, shared))
	return cmd
}

// partitionName is TOPIC-PARTITION, as directories and logs spell it.
type partitionName struct {
	topic     string
	partition int32
}

func (p partitionName) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

func parsePartitionNames(args []string) ([]partitionName, error) {
	var names []partitionName
	for _, arg := range args {
		i := strings.LastIndex(arg, "-")
		n, err := strconv.ParseInt(arg[i+1:], 10, 32)
		if i < 1 || err != nil || n < 0 {
			return nil, usageError{fmt.Errorf("partition %q: want TOPIC-PARTITION, for example lines-0", arg)}
		}
		names = append(names, partitionName{arg[:i], int32(n)})
	}
	return names, nil
}

func newPartitionList(io streams, shared *clientFlags) *cobra.Command {
	var unhealthy bool
	cmd := &cobra.Command{
		Use:   "list [TOPIC...]",
		Short: "List partitions with leader, replicas and in-sync replicas",
		Args:  cobra.ArbitraryArgs,

		ValidArgsFunction: completeTopics(shared, 0, false),
		RunE: func(cmd *cobra.Command, topics []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			details, err := admin.ListTopicsWithInternal(cmd.Context(), topics...)
			if err != nil {
				return fmt.Errorf("list partitions: %w", err)
			}
			return listPartitions(io, shared, details, unhealthy)
		},
	}
	cmd.Flags().BoolVar(&unhealthy, "unhealthy", false, "only those without a leader or with replicas out of sync")
	return cmd
}

// listedPartition is a partition in JSON.
type listedPartition struct {
	Topic string `json:"topic"`
	partitionDescription
}

func listPartitions(io streams, shared *clientFlags, details kadm.TopicDetails, unhealthy bool) error {
	var errs []error
	listed := []listedPartition{}
	rows := [][]string{{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"}}
	for _, topic := range details.Sorted() {
		if topic.Err != nil {
			errs = append(errs, explained("list partitions of "+topic.Topic, topic.Err, ""))
			continue
		}
		for _, p := range describe(topic).Partitions {
			if unhealthy && p.Leader >= 0 && len(p.ISR) == len(p.Replicas) {
				continue
			}
			listed = append(listed, listedPartition{topic.Topic, p})
			rows = append(rows, []string{
				partitionName{topic.Topic, p.Partition}.String(), leaderText(p.Leader), strconv.Itoa(int(p.LeaderEpoch)), idsText(p.Replicas), idsText(p.ISR),
			})
		}
	}
	switch {
	case shared.json():
		errs = append(errs, printJSON(io.out, listed))
	case len(listed) > 0:
		errs = append(errs, printTable(io.out, rows))
	}
	return errors.Join(errs...)
}

func newPartitionReassign(io streams, shared *clientFlags) *cobra.Command {
	var to []int32
	var cancel bool
	cmd := &cobra.Command{
		Use:   "reassign TOPIC-PARTITION...",
		Short: "Move partitions to other brokers",
		Long: `Move partitions to other brokers: the first of --to is the preferred leader. The old replicas go when all new ones are in
sync; until then "cluster status" and "partition list" show the move, and --cancel gives it up.`,
		Example: "  tidemark partition reassign lines-0 lines-1 --to 2,3,1",
		Args:    someArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parsePartitionNames(args)
			switch {
			case err != nil:
				return err
			case cancel == (len(to) > 0):
				return usageError{errors.New("give either --to with the brokers, or --cancel")}
			}
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			var req kadm.AlterPartitionAssignmentsReq
			for _, p := range names {
				if cancel {
					req.CancelAssign(p.topic, p.partition)
				} else {
					req.Assign(p.topic, p.partition, to)
				}
			}
			answers, err := admin.AlterPartitionAssignments(cmd.Context(), req)
			if err != nil {
				return fmt.Errorf("reassign: %w", err)
			}
			return reportPartitions(io, shared, names, func(p partitionName) error {
				answer := answers[p.topic][p.partition]
				return explainedPartition("reassign "+p.String(), answer.Err, answer.ErrMessage)
			})
		},
	}
	cmd.Flags().Int32SliceVar(&to, "to", nil, "`brokers` that shall hold the replicas, the preferred leader first")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "give up moves that are under way")
	hideDefaults(cmd, "to")
	return cmd
}

func newPartitionElect(io streams, shared *clientFlags) *cobra.Command {
	var unclean, all bool
	cmd := &cobra.Command{
		Use:   "elect TOPIC-PARTITION... | elect --all",
		Short: "Make preferred replicas the leaders",
		Long: `Make the preferred replica, the first of the assignment, the leader. With --unclean, give a leader to partitions that have
none although a replica is there: what it never received is LOST, also for consumers that have read it.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parsePartitionNames(args)
			switch {
			case err != nil:
				return err
			case all == (len(names) > 0):
				return usageError{errors.New("give either partitions or --all")}
			}
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			return elect(cmd.Context(), io, shared, admin, names, unclean)
		},
	}
	cmd.Flags().BoolVar(&unclean, "unclean", false, "accept the loss of records: any replica may lead where nobody eligible is left")
	cmd.Flags().BoolVar(&all, "all", false, "every partition that needs it")
	return cmd
}

// elect asks for elections; no names are all partitions. One that is not needed is no failure.
func elect(ctx context.Context, io streams, shared *clientFlags, admin *kadm.Client, names []partitionName, unclean bool) error {
	how := kadm.ElectPreferredReplica
	if unclean {
		how = kadm.ElectLiveReplica
	}
	var set kadm.TopicsSet
	for _, p := range names {
		set.Add(p.topic, p.partition)
	}
	answers, err := admin.ElectLeaders(ctx, how, set)
	if err != nil {
		return fmt.Errorf("elect leaders: %w", err)
	}
	if len(names) == 0 {
		for topic, partitions := range answers {
			for partition := range partitions {
				names = append(names, partitionName{topic, partition})
			}
		}
		slices.SortFunc(names, func(a, b partitionName) int {
			return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
		})
	}
	return reportPartitions(io, shared, names, func(p partitionName) error {
		answer := answers[p.topic][p.partition]
		if isCode(answer.Err, "ELECTION_NOT_NEEDED") {
			return nil
		}
		return explainedPartition("elect a leader of "+p.String(), answer.Err, answer.ErrMessage)
	})
}

// explainedPartition explains an error about one partition; nil for none.
func explainedPartition(doing string, err error, message string) error {
	switch {
	case err == nil:
		return nil
	case isCode(err, "UNKNOWN_TOPIC_OR_PARTITION"):
		return fmt.Errorf("%s: there is no such partition (UNKNOWN_TOPIC_OR_PARTITION)", doing)
	}
	return explained(doing, err, message)
}

// partitionResult is the outcome of a change to one partition.
type partitionResult struct {
	Partition string `json:"partition"`
	Error     string `json:"error,omitempty"`
}

// reportPartitions prints the outcomes in the order asked for, names on stdout, and joins the failures.
func reportPartitions(io streams, shared *clientFlags, names []partitionName, outcome func(partitionName) error) error {
	var errs []error
	results := make([]partitionResult, 0, len(names))
	for _, p := range names {
		r := partitionResult{Partition: p.String()}
		if err := outcome(p); err != nil {
			r.Error = err.Error()
			errs = append(errs, err)
		}
		results = append(results, r)
	}
	if shared.json() {
		return errors.Join(append(errs, printJSON(io.out, results))...)
	}
	for _, r := range results {
		if r.Error == "" {
			fmt.Fprintln(io.out, r.Partition)
		}
	}
	return errors.Join(errs...)
}
