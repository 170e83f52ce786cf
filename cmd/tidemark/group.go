package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroup(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "List, describe, reset and delete consumer groups"}
	cmd.AddCommand(
		newGroupList(io, shared),
		newGroupDescribe(io, shared),
		newGroupReset(io, shared),
		newGroupDelete(io, shared),
	)
	return cmd
}

func newGroupList(io streams, shared *clientFlags) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			groups, err := admin.ListGroups(cmd.Context(), states...)
			if err != nil {
				return fmt.Errorf("list groups: %w", err)
			}
			out := make([]groupSummary, 0, len(groups))
			rows := [][]string{{"GROUP", "STATE", "TYPE", "PROTOCOL"}}
			for _, g := range groups.Sorted() {
				out = append(out, groupSummary{g.Group, g.State, g.GroupType, g.ProtocolType})
				rows = append(rows, []string{g.Group, g.State, g.GroupType, orDash(g.ProtocolType)})
			}
			if shared.json() {
				return printJSON(io.out, out)
			}
			if len(out) == 0 {
				return nil
			}
			return printTable(io.out, rows)
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only groups in this `state` (repeatable)")
	completeWords(cmd, "state", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
	return cmd
}

// groupSummary is a listed group in JSON.
type groupSummary struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocol_type"`
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newGroupDescribe(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "describe GROUP...",
		Short: "Describe groups: members, committed offsets, lag",
		Args:  someArguments,

		ValidArgsFunction: completeGroups(shared),
		RunE: func(cmd *cobra.Command, groups []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			out, err := describeGroups(cmd.Context(), admin, groups)
			if shared.json() && len(out) > 0 {
				return errors.Join(printJSON(io.out, out), err)
			}
			for _, g := range out {
				if printErr := g.print(io); printErr != nil {
					return printErr
				}
			}
			return err
		},
	}
}

// groupDescription is a group in JSON.
type groupDescription struct {
	Group        string              `json:"group"`
	State        string              `json:"state"`
	ProtocolType string              `json:"protocol_type"`
	Protocol     string              `json:"protocol"`
	Coordinator  int32               `json:"coordinator"`
	Lag          int64               `json:"lag"`
	Members      []memberDescription `json:"members"`
	Offsets      []groupOffset       `json:"offsets"`
}

type memberDescription struct {
	ID         string             `json:"id"`
	InstanceID string             `json:"instance_id,omitempty"`
	ClientID   string             `json:"client_id"`
	Host       string             `json:"host"`
	Assigned   map[string][]int32 `json:"assigned,omitempty"` // partitions by topic, of consumers
}

// groupOffset is how far a group is in a partition: null where nothing is committed, or where the partition is gone.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end_offset"`
	Lag       *int64 `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"member,omitempty"`
}

// describeGroups gathers what can be told of each group; the error names those that cannot be described.
func describeGroups(ctx context.Context, admin *kadm.Client, names []string) ([]groupDescription, error) {
	lags, err := admin.Lag(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe groups: %w", err)
	}
	var out []groupDescription
	var errs []error
	for _, name := range names {
		g, known := lags[name]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("describe group %s: no broker answered for it", name))
		case g.Error() != nil:
			errs = append(errs, explained("describe group "+name, g.Error(), ""))
		case g.State == "Dead":
			errs = append(errs, fmt.Errorf("describe group %s: there is no such group", name))
		default:
			out = append(out, describeGroup(&g))
		}
	}
	return out, errors.Join(errs...)
}

func describeGroup(g *kadm.DescribedGroupLag) groupDescription {
	out := groupDescription{
		Group: g.Group, State: g.State, ProtocolType: g.ProtocolType, Protocol: g.Protocol, Coordinator: g.Coordinator.NodeID,
		Lag: g.Lag.Total(), Members: []memberDescription{}, Offsets: []groupOffset{},
	}
	for _, m := range g.Members {
		member := memberDescription{ID: m.MemberID, ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/")}
		if m.InstanceID != nil {
			member.InstanceID = *m.InstanceID
		}
		if assigned, is := m.Assigned.AsConsumer(); is {
			member.Assigned = make(map[string][]int32)
			for _, topic := range assigned.Topics {
				member.Assigned[topic.Topic] = topic.Partitions
			}
		}
		out.Members = append(out.Members, member)
	}
	for _, lag := range g.Lag.Sorted() {
		entry := groupOffset{Topic: lag.Topic, Partition: lag.Partition, Metadata: lag.Commit.Metadata}
		if lag.Commit.At >= 0 {
			entry.Committed = &lag.Commit.At
		}
		if lag.End.Err == nil {
			entry.End = &lag.End.Offset
		}
		if lag.Err == nil {
			entry.Lag = &lag.Lag
		}
		if lag.Member != nil {
			entry.Member = lag.Member.MemberID
		}
		out.Offsets = append(out.Offsets, entry)
	}
	return out
}

func (g groupDescription) print(io streams) error {
	fmt.Fprintf(io.out, "group %s  state %s  coordinator %d  lag %d", g.Group, g.State, g.Coordinator, g.Lag)
	if g.Protocol != "" {
		fmt.Fprintf(io.out, "  protocol %s", g.Protocol)
	}
	fmt.Fprintln(io.out)
	if len(g.Members) > 0 {
		rows := [][]string{{"  MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"}}
		for _, m := range g.Members {
			partitions := 0
			for _, p := range m.Assigned {
				partitions += len(p)
			}
			rows = append(rows, []string{"  " + m.ID, orDash(m.InstanceID), m.ClientID, m.Host, strconv.Itoa(partitions)})
		}
		if err := printTable(io.out, rows); err != nil {
			return err
		}
	}
	if len(g.Offsets) == 0 {
		return nil
	}
	rows := [][]string{{"  TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"}}
	for _, o := range g.Offsets {
		rows = append(rows, []string{
			"  " + o.Topic, strconv.Itoa(int(o.Partition)), committedText(o.Committed), offsetText(o.End), offsetText(o.Lag), orDash(o.Member),
		})
	}
	return printTable(io.out, rows)
}

func committedText(offset *int64) string {
	if offset == nil {
		return "-"
	}
	return offsetText(offset)
}

func newGroupDelete(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups that have no members, with their offsets",
		Args:  someArguments,

		ValidArgsFunction: completeGroups(shared),
		RunE: func(cmd *cobra.Command, groups []string) error {
			admin, err := shared.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			answers, err := admin.DeleteGroups(cmd.Context(), groups...)
			if err != nil && len(answers) == 0 {
				return fmt.Errorf("delete groups: %w", err)
			}
			var errs []error
			for _, name := range groups {
				if err := answers[name].Err; err != nil {
					errs = append(errs, explainedGroup("delete group "+name, err))
					continue
				}
				if !shared.json() {
					fmt.Fprintln(io.out, name)
				}
			}
			if shared.json() {
				out := make([]groupDeletion, 0, len(groups))
				for _, name := range groups {
					deletion := groupDeletion{Group: name}
					if err := answers[name].Err; err != nil {
						deletion.Error = explainedGroup("delete group "+name, err).Error()
					}
					out = append(out, deletion)
				}
				errs = append(errs, printJSON(io.out, out))
			}
			return errors.Join(errs...)
		},
	}
}

// groupDeletion is the outcome of a deletion in JSON.
type groupDeletion struct {
	Group string `json:"group"`
	Error string `json:"error,omitempty"`
}

// explainedGroup says what to do about the refusals that people meet.
func explainedGroup(doing string, err error) error {
	switch {
	case isCode(err, "GROUP_ID_NOT_FOUND"):
		return fmt.Errorf("%s: there is no such group (GROUP_ID_NOT_FOUND)", doing)
	case isCode(err, "NON_EMPTY_GROUP"):
		return fmt.Errorf("%s: it has members: stop them first (NON_EMPTY_GROUP)", doing)
	}
	return explained(doing, err, "")
}
