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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newConfig(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Describe and alter the settings of topics and brokers"}
	cmd.AddCommand(newConfigDescribe(io, shared), newConfigAlter(io, shared))
	return cmd
}

// resource is what a config command works on: `topic NAME`, `broker ID`, or `broker default`.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// String names it as an argument does: "topic lines", "broker 1", "broker default".
func (r resource) String() string {
	if r.kind == kmsg.ConfigResourceTypeTopic {
		return "topic " + r.name
	}
	return "broker " + cmp.Or(r.name, "default")
}

func parseResource(args []string) (resource, error) {
	if len(args) != 2 {
		return resource{}, usageError{errors.New("want `topic NAME`, `broker ID` or `broker default`")}
	}
	switch {
	case args[0] == "topic":
		return resource{kmsg.ConfigResourceTypeTopic, args[1]}, nil
	case args[0] == "broker" && args[1] == "default":
		return resource{kmsg.ConfigResourceTypeBroker, ""}, nil
	case args[0] == "broker":
		if _, err := strconv.ParseInt(args[1], 10, 32); err != nil {
			return resource{}, usageError{fmt.Errorf("broker %q: want a number, or `default`", args[1])}
		}
		return resource{kmsg.ConfigResourceTypeBroker, args[1]}, nil
	default:
		return resource{}, usageError{fmt.Errorf("%q: want topic or broker", args[0])}
	}
}

func newConfigDescribe(io streams, shared *clientFlags) *cobra.Command {
	var all, docs bool
	cmd := &cobra.Command{
		Use:   "describe (topic NAME | broker ID | broker default)",
		Short: "Show settings: those that were set, or all",

		ValidArgsFunction: completeResource(shared),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := parseResource(args)
			if err != nil {
				return err
			}
			entries, err := describeConfig(cmd.Context(), shared, of)
			if err != nil {
				return err
			}
			entries = slices.DeleteFunc(entries, func(e configEntry) bool { return !all && e.isDefault() })
			if shared.json() {
				return printJSON(io.out, entries)
			}
			rows := [][]string{{"KEY", "VALUE", "SOURCE"}}
			for _, e := range entries {
				row := []string{e.Key, e.text(), e.Source}
				if docs {
					row = append(row, e.Doc)
				}
				rows = append(rows, row)
			}
			return printTable(io.out, rows)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show defaults too")
	cmd.Flags().BoolVar(&docs, "doc", false, "show what each key does")
	return cmd
}

type configEntry struct {
	Key       string  `json:"key"`
	Value     *string `json:"value"`
	Source    string  `json:"source"`
	ReadOnly  bool    `json:"read_only"`
	Sensitive bool    `json:"sensitive"`
	Doc       string  `json:"doc,omitempty"`
	source    kmsg.ConfigSource
}

func (e configEntry) isDefault() bool {
	return e.source == kmsg.ConfigSourceDefaultConfig
}

func (e configEntry) text() string {
	switch {
	case e.Sensitive:
		return "(hidden)"
	case e.Value == nil:
		return "(none)"
	default:
		return *e.Value
	}
}

var sourceNames = map[kmsg.ConfigSource]string{
	kmsg.ConfigSourceDynamicTopicConfig:         "topic",
	kmsg.ConfigSourceDynamicBrokerConfig:        "broker",
	kmsg.ConfigSourceDynamicDefaultBrokerConfig: "cluster",
	kmsg.ConfigSourceStaticBrokerConfig:         "static",
	kmsg.ConfigSourceDefaultConfig:              "default",
}

func describeConfig(ctx context.Context, shared *clientFlags, of resource) ([]configEntry, error) {
	cl, err := shared.client(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.IncludeDocumentation = true
	asked := kmsg.NewDescribeConfigsRequestResource()
	asked.ResourceType, asked.ResourceName = of.kind, of.name
	request.Resources = append(request.Resources, asked)
	answer, err := request.RequestWith(ctx, cl)
	if err != nil {
		if err.Error() == "unknown broker" { // kgo keeps the error to itself
			return nil, usageError{fmt.Errorf("there is no broker %s", of.name)}
		}
		return nil, fmt.Errorf("describe settings: %w", err)
	}
	var entries []configEntry
	for _, r := range answer.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, explained("describe settings of "+of.String(), err, deref(r.ErrorMessage))
		}
		for _, c := range r.Configs {
			entries = append(entries, configEntry{
				Key: c.Name, Value: c.Value, Source: sourceNames[c.Source], ReadOnly: c.ReadOnly,
				Sensitive: c.IsSensitive, Doc: deref(c.Documentation), source: c.Source,
			})
		}
	}
	slices.SortFunc(entries, func(a, b configEntry) int { return strings.Compare(a.Key, b.Key) })
	return entries, nil
}

func newConfigAlter(io streams, shared *clientFlags) *cobra.Command {
	var set, unset []string
	cmd := &cobra.Command{
		Use:   "alter (topic NAME | broker ID | broker default) --set key=value --unset key",
		Short: "Set settings, or take them back to their defaults",

		ValidArgsFunction: completeResource(shared),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := parseResource(args)
			if err != nil {
				return err
			}
			changes, err := parseChanges(set, unset)
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				return usageError{errors.New("nothing to alter: give --set or --unset")}
			}
			if err := checkResourceKeys(cmd.Context(), shared, of, changes); err != nil {
				return err
			}
			if err := alterConfig(cmd.Context(), shared, of, changes); err != nil {
				return err
			}
			if shared.json() {
				return printJSON(io.out, map[string]any{"resource": args, "changed": len(changes)})
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "`key=value` (repeatable)")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "`key` to take back to its default (repeatable)")
	return cmd
}

// checkResourceKeys refuses keys that the resource does not have: a broker takes an unknown key of a broker for that of a
// plug-in, and ignores the removal of an unknown key of a topic. The defaults of all brokers have the keys of a broker.
func checkResourceKeys(ctx context.Context, shared *clientFlags, of resource, changes []kadm.AlterConfig) error {
	if of.kind == kmsg.ConfigResourceTypeBroker && of.name == "" {
		admin, err := shared.admin(ctx)
		if err != nil {
			return err
		}
		defer admin.Close()
		brokers, err := admin.ListBrokers(ctx)
		if err != nil || len(brokers) == 0 {
			return errors.Join(err, errors.New("alter settings: the cluster names no broker"))
		}
		of.name = strconv.Itoa(int(brokers[0].NodeID))
	}
	entries, err := describeConfig(ctx, shared, of)
	if err != nil {
		return err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Key
	}
	return checkKeys(names, changes)
}

func alterConfig(ctx context.Context, shared *clientFlags, of resource, changes []kadm.AlterConfig) error {
	cl, err := shared.client(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	asked := kmsg.NewIncrementalAlterConfigsRequestResource()
	asked.ResourceType, asked.ResourceName = of.kind, of.name
	for _, change := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = change.Name, change.Value
		if change.Op == kadm.DeleteConfig {
			c.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		asked.Configs = append(asked.Configs, c)
	}
	request.Resources = append(request.Resources, asked)
	answer, err := request.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("alter settings: %w", err)
	}
	for _, r := range answer.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return explained("alter settings of "+of.String(), err, deref(r.ErrorMessage))
		}
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
