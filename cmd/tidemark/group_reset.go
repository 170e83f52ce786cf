package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroupReset(io streams, shared *clientFlags) *cobra.Command {
	var topics []string
	var all, dryRun bool
	var to string
	var shift int64
	cmd := &cobra.Command{
		Use:   "reset GROUP",
		Short: "Set the committed offsets of a group that has no members",
		Long: `Set where a group goes on. The group must have no members. --to is earliest, latest, an offset, or a time such as
2026-01-31T12:00:00Z: then the first record from that time on. Offsets beyond the ends of a partition become the end.`,
		Args: exactArguments(1),

		ValidArgsFunction: completeGroups(shared),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := parseTarget(to, shift, cmd.Flags().Changed("to"), cmd.Flags().Changed("shift-by"))
			if err != nil {
				return err
			}
			if all == (len(topics) > 0) {
				return usageError{errors.New("which offsets? give either --topic TOPIC[:PARTITION,...] or --all-topics")}
			}
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			moves, err := planReset(cmd.Context(), admin, args[0], topics, target)
			if err != nil {
				return err
			}
			if !dryRun {
				if err := commitReset(cmd.Context(), admin, args[0], moves); err != nil {
					return err
				}
			}
			if shared.json() {
				return printJSON(io.out, moves)
			}
			rows := [][]string{{"TOPIC", "PARTITION", "BEFORE", "NOW"}}
			for _, m := range moves {
				rows = append(rows, []string{m.Topic, strconv.Itoa(int(m.Partition)), committedText(m.Before), strconv.FormatInt(m.Now, 10)})
			}
			return printTable(io.out, rows)
		},
	}
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "`topic`, or topic:0,1 for some partitions (repeatable)")
	cmd.Flags().BoolVar(&all, "all-topics", false, "every partition that the group has committed an offset for")
	cmd.Flags().StringVar(&to, "to", "", "earliest, latest, an offset or a `time`")
	cmd.Flags().Int64Var(&shift, "shift-by", 0, "move forwards, or backwards if negative, by this `number` of offsets")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show only, change nothing")
	return cmd
}

// offsetMove is the change of one committed offset.
type offsetMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    *int64 `json:"before"`
	Now       int64  `json:"now"`
}

// resetTarget is where offsets are to go.
type resetTarget struct {
	earliest, latest bool
	at               int64     // an offset, if none of the others
	time             time.Time // not zero: the first record from then on
	shift            int64     // with relative
	relative         bool
}

func parseTarget(to string, shift int64, toGiven, shiftGiven bool) (resetTarget, error) {
	if toGiven == shiftGiven {
		return resetTarget{}, usageError{errors.New("where to? give either --to or --shift-by")}
	}
	if shiftGiven {
		return resetTarget{shift: shift, relative: true}, nil
	}
	switch to {
	case "earliest":
		return resetTarget{earliest: true}, nil
	case "latest":
		return resetTarget{latest: true}, nil
	}
	if at, err := strconv.ParseInt(to, 10, 64); err == nil && at >= 0 {
		return resetTarget{at: at}, nil
	}
	if at, err := time.Parse(time.RFC3339, to); err == nil {
		return resetTarget{time: at}, nil
	}
	return resetTarget{}, usageError{fmt.Errorf("--to %q: want earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z", to)}
}

// planReset computes the new offsets. Without topics it is about what the group has committed.
func planReset(ctx context.Context, admin *kadm.Client, group string, topics []string, to resetTarget) ([]offsetMove, error) {
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, explained("reset group "+group, err, "")
	}
	want, err := chosen(topics, committed)
	if err != nil {
		return nil, err
	}
	if len(want) == 0 {
		return nil, fmt.Errorf("reset group %s: it has committed no offsets", group)
	}
	names := want.Topics()
	starts, err := admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("reset group %s: %w", group, err)
	}
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("reset group %s: %w", group, err)
	}
	var times kadm.ListedOffsets
	if !to.time.IsZero() {
		if times, err = admin.ListOffsetsAfterMilli(ctx, to.time.UnixMilli(), names...); err != nil {
			return nil, fmt.Errorf("reset group %s: %w", group, err)
		}
	}
	var moves []offsetMove
	for _, start := range sortedOffsets(starts) {
		if !want.wants(start.Topic, start.Partition) {
			continue
		}
		end, _ := ends.Lookup(start.Topic, start.Partition)
		if err := errors.Join(start.Err, end.Err); err != nil {
			return nil, explained("reset group "+group+": topic "+start.Topic, err, "")
		}
		move := offsetMove{Topic: start.Topic, Partition: start.Partition, Now: to.at}
		if before, has := committed.Lookup(start.Topic, start.Partition); has && before.At >= 0 {
			move.Before = &before.At
		}
		switch {
		case to.earliest:
			move.Now = start.Offset
		case to.latest:
			move.Now = end.Offset
		case !to.time.IsZero():
			at, _ := times.Lookup(start.Topic, start.Partition)
			move.Now = at.Offset
		case to.relative && move.Before == nil:
			return nil, fmt.Errorf("reset group %s: partition %d of %s has no committed offset to shift", group, start.Partition, start.Topic)
		case to.relative:
			move.Now = *move.Before + to.shift
		}
		move.Now = min(max(move.Now, start.Offset), end.Offset)
		moves = append(moves, move)
	}
	return moves, want.missing(group, moves)
}

func sortedOffsets(listed kadm.ListedOffsets) []kadm.ListedOffset {
	var all []kadm.ListedOffset
	listed.Each(func(o kadm.ListedOffset) { all = append(all, o) })
	slices.SortFunc(all, func(a, b kadm.ListedOffset) int {
		if a.Topic != b.Topic {
			return strings.Compare(a.Topic, b.Topic)
		}
		return int(a.Partition) - int(b.Partition)
	})
	return all
}

// choice is the partitions to reset, by topic; nil partitions are all.
type choice map[string][]int32

func (c choice) Topics() []string {
	var names []string
	for name := range c {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c choice) wants(topic string, partition int32) bool {
	partitions, chosen := c[topic]
	return chosen && (partitions == nil || slices.Contains(partitions, partition))
}

// missing names a chosen partition that does not exist.
func (c choice) missing(group string, moves []offsetMove) error {
	for topic, partitions := range c {
		for _, p := range partitions {
			if !slices.ContainsFunc(moves, func(m offsetMove) bool { return m.Topic == topic && m.Partition == p }) {
				return usageError{fmt.Errorf("reset group %s: topic %s has no partition %d", group, topic, p)}
			}
		}
	}
	return nil
}

// chosen reads the --topic flags; without any it chooses what is committed.
func chosen(flags []string, committed kadm.OffsetResponses) (choice, error) {
	c := make(choice)
	if len(flags) == 0 {
		committed.Each(func(o kadm.OffsetResponse) { c[o.Topic] = append(c[o.Topic], o.Partition) })
		return c, nil
	}
	for _, flag := range flags {
		topic, list, some := strings.Cut(flag, ":")
		if !some {
			c[topic] = nil
			continue
		}
		for text := range strings.SplitSeq(list, ",") {
			partition, err := strconv.ParseInt(text, 10, 32)
			if err != nil || partition < 0 {
				return nil, usageError{fmt.Errorf("--topic %q: want topic, or topic:0,1 for some partitions", flag)}
			}
			c[topic] = append(c[topic], int32(partition))
		}
	}
	return c, nil
}

// commitReset commits the new offsets.
func commitReset(ctx context.Context, admin *kadm.Client, group string, moves []offsetMove) error {
	var offsets kadm.Offsets
	for _, m := range moves {
		offsets.AddOffset(m.Topic, m.Partition, m.Now, -1)
	}
	answers, err := admin.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return explained("reset group "+group, err, "")
	}
	err = answers.Error()
	switch {
	case err == nil:
		return nil
	case isCode(err, "UNKNOWN_MEMBER_ID"):
		return fmt.Errorf("reset group %s: it has members: stop them first (UNKNOWN_MEMBER_ID)", group)
	}
	return explained("reset group "+group, err, "")
}
