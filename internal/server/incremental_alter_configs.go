package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// incrementalAlterConfigs changes single keys of topics, brokers and loggers (key 44).
func (s *Server) incrementalAlterConfigs(
	ctx context.Context, _ *client, req *kmsg.IncrementalAlterConfigsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	alteration := alteration{server: s, validateOnly: req.ValidateOnly}
	for _, asked := range req.Resources {
		ops := make([]configOp, len(asked.Configs))
		for i, c := range asked.Configs {
			ops[i] = configOp{op: c.Op, name: c.Name, null: c.Value == nil}
			if c.Value != nil {
				ops[i].value = *c.Value
			}
		}
		alteration.add(asked.ResourceType, asked.ResourceName, ops)
	}
	for _, r := range alteration.run(ctx) {
		answer := kmsg.NewIncrementalAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = r.kind, r.name
		answer.ErrorCode, answer.ErrorMessage = r.refused.code, r.refused.text()
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}

// configOp is one change of one key.
type configOp struct {
	op    kmsg.IncrementalAlterConfigOp
	name  string
	value string
	null  bool // no value was given
}

// alteration is one request to change configurations. Resources succeed and fail one by one, in the order asked.
type alteration struct {
	server       *Server
	validateOnly bool
	replace      bool // what is not mentioned is removed: the old AlterConfigs
	resources    []alteredResource
}

type alteredResource struct {
	kind    kmsg.ConfigResourceType
	name    string
	ops     []configOp
	refused refusedResource
}

func (a *alteration) add(kind kmsg.ConfigResourceType, name string, ops []configOp) {
	a.resources = append(a.resources, alteredResource{kind: kind, name: name, ops: ops})
}

// run makes the changes and returns the resources with their refusals. It returns once this broker's Image shows what
// was written (D13).
func (a *alteration) run(ctx context.Context) []alteredResource {
	times := make(map[meta.ConfigResource]int)
	for i := range a.resources {
		times[a.resources[i].key()]++
	}
	var revision int64
	for i := range a.resources {
		r := &a.resources[i]
		if times[r.key()] > 1 {
			r.refused = invalidRequest("Each resource must appear at most once.")
			continue
		}
		written, refused := a.alter(ctx, r)
		r.refused = refused
		revision = max(revision, written)
	}
	if revision > 0 {
		if err := a.server.config.WaitImage(ctx, revision); err != nil {
			for i := range a.resources {
				if a.resources[i].refused.code == 0 {
					a.resources[i].refused = refusedResource{code: kerr.RequestTimedOut.Code}
				}
			}
		}
	}
	return a.resources
}

func (r *alteredResource) key() meta.ConfigResource {
	return meta.ConfigResource{Kind: meta.ResourceKind(r.kind), Name: r.name}
}

// alter checks one resource and writes it. It returns the revision written, 0 for none.
func (a *alteration) alter(ctx context.Context, r *alteredResource) (int64, refusedResource) {
	if refused := checkOps(r.ops); refused.code != 0 {
		return 0, refused
	}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		return a.alterTopic(ctx, r)
	case kmsg.ConfigResourceTypeBroker:
		return a.alterBroker(ctx, r)
	case kmsg.ConfigResourceTypeBrokerLogger:
		if !a.replace {
			return 0, a.server.alterLogger(r.name, r.ops, a.validateOnly)
		}
	}
	return 0, invalidRequest(fmt.Sprintf("Unknown resource type %d", r.kind))
}

// checkOps refuses what no resource allows.
func checkOps(ops []configOp) refusedResource {
	seen := make(map[string]bool, len(ops))
	var null []string
	for _, op := range ops {
		if seen[op.name] {
			return invalidRequest("Error due to duplicate config keys")
		}
		seen[op.name] = true
		if op.op < kmsg.IncrementalAlterConfigOpSet || op.op > kmsg.IncrementalAlterConfigOpSubtract {
			return invalidRequest(fmt.Sprintf("Unknown operation %d for config key %s", op.op, op.name))
		}
		if op.null && op.op != kmsg.IncrementalAlterConfigOpDelete {
			null = append(null, op.name)
		}
	}
	if len(null) > 0 {
		return invalidRequest("Null value not supported for : " + strings.Join(null, ","))
	}
	return refusedResource{}
}

func (a *alteration) alterTopic(ctx context.Context, r *alteredResource) (int64, refusedResource) {
	s := a.server
	if r.name == "" {
		return 0, invalidRequest("Default topic resources are not allowed.")
	}
	if err := meta.ValidateTopicName(r.name); err != nil {
		return 0, refusedResource{kerr.InvalidTopicException.Code, err.Error()}
	}
	image := s.config.Image()
	if _, found := image.Topic(r.name); !found {
		return 0, refusedResource{kerr.UnknownTopicOrPartition.Code, fmt.Sprintf("The topic '%s' does not exist.", r.name)}
	}
	table := s.config.Configs
	current := func(values map[string]string, name string) string { return table.TopicValue(image, values, name) }
	return a.write(ctx, meta.TopicConfig(r.name), func(values map[string]string) (map[string]string, error) {
		next, err := a.edit(values, r.ops, table.keys.Topic, current)
		if err != nil {
			return nil, err
		}
		if err := table.CheckTopic(image, next); err != nil {
			return nil, configRefusal{invalidConfig(err.Error())}
		}
		return next, nil
	})
}

// configRefusal carries a refusal through an edit function.
type configRefusal struct{ refusedResource }

func (r configRefusal) Error() string { return r.message }

// edit applies the operations to what is set; current is a list's value to append to or subtract from.
func (a *alteration) edit(
	values map[string]string, ops []configOp, find func(string) *meta.ConfigKey, current func(map[string]string, string) string,
) (map[string]string, error) {
	next := make(map[string]string, len(values)+len(ops))
	if !a.replace {
		maps.Copy(next, values)
	}
	for _, op := range ops {
		switch op.op {
		case kmsg.IncrementalAlterConfigOpSet:
			next[op.name] = op.value
		case kmsg.IncrementalAlterConfigOpDelete:
			delete(next, op.name)
		default:
			if key := find(op.name); key == nil || key.Type != meta.ListType {
				return nil, configRefusal{invalidConfig(fmt.Sprintf("Can't %s to key %s because its type is not LIST.", op.op, op.name))}
			}
			next[op.name] = editList(current(values, op.name), op)
		}
	}
	return next, nil
}

// editList appends what is not there yet, or removes what is.
func editList(current string, op configOp) string {
	elements := meta.SplitList(current)
	for _, element := range meta.SplitList(op.value) {
		if op.op == kmsg.IncrementalAlterConfigOpSubtract {
			elements = slices.DeleteFunc(elements, func(e string) bool { return e == element })
		} else if !slices.Contains(elements, element) {
			elements = append(elements, element)
		}
	}
	return strings.Join(elements, ",")
}

func (a *alteration) alterBroker(ctx context.Context, r *alteredResource) (int64, refusedResource) {
	s := a.server
	resource := meta.DefaultBrokerConfig
	if r.name != "" {
		id, err := strconv.ParseInt(r.name, 10, 32)
		switch {
		case err != nil:
			return 0, invalidRequest("Node id must be an integer, but it is: " + r.name)
		case meta.BrokerID(id) != s.config.Broker:
			return 0, invalidRequest(fmt.Sprintf("Unexpected broker id, expected %d, but received %s", s.config.Broker, r.name))
		}
		resource = meta.BrokerConfig(s.config.Broker)
	}
	table := s.config.Configs
	image := s.config.Image()
	current := func(values map[string]string, name string) string {
		if value, set := values[name]; set {
			return value
		}
		return table.Value(image, name)
	}
	return a.write(ctx, resource, func(values map[string]string) (map[string]string, error) {
		next, err := a.edit(values, r.ops, table.brokerKey, current)
		if err != nil {
			return nil, err
		}
		if refused := table.checkBroker(resource, next, values); refused.code != 0 {
			return nil, configRefusal{refused}
		}
		return next, nil
	})
}

// checkBroker judges what would be set for a broker, or as the default of all. Keys that this table does not have are
// let through, as in Kafka: they may belong to what a newer version knows.
func (t *ConfigTable) checkBroker(resource meta.ConfigResource, next, before map[string]string) refusedResource {
	var readOnly, perListener, perBroker []string
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if old, set := before[name]; set && old == next[name] {
			continue // a newer version may have set it; whoever changes something else is not to blame
		}
		key := t.brokerKey(name)
		switch {
		case key == nil:
		case key.Dynamic == meta.ReadOnly:
			readOnly = append(readOnly, name)
		case key.Name == name && isListenerSecurity(name):
			perListener = append(perListener, name)
		case key.Dynamic == meta.PerBroker && resource.Name == "":
			perBroker = append(perBroker, name)
		}
	}
	switch {
	case len(readOnly) > 0:
		return invalidRequest("Cannot update these configs dynamically: " + bracketed(readOnly))
	case len(perListener) > 0:
		return invalidRequest("These security configs can be dynamically updated only per-listener using the listener prefix: " + bracketed(perListener))
	case len(perBroker) > 0:
		return invalidRequest("Cannot update these configs at default cluster level, broker id must be specified: " + bracketed(perBroker))
	}
	if _, set := next[minISRKey]; set && resource.Name != "" {
		return invalidConfig("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if key := t.brokerKey(name); key != nil {
			if _, err := key.Parse(next[name]); err != nil {
				return invalidRequest(err.Error())
			}
		}
	}
	return refusedResource{}
}

// minISRKey lives in every partition's value (D8): a setting of one broker could mean nothing.
const minISRKey = "min.insync.replicas"

// isListenerSecurity tells whether a key concerns one listener's security, which can only be changed for a listener by
// its name.
func isListenerSecurity(name string) bool {
	return strings.HasPrefix(name, "ssl.") || strings.HasPrefix(name, "sasl.") || name == "principal.builder.class"
}

func bracketed(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

// write lets the admin side apply the edit to what is set now, or only checks it.
func (a *alteration) write(
	ctx context.Context, resource meta.ConfigResource, edit func(map[string]string) (map[string]string, error),
) (int64, refusedResource) {
	s := a.server
	var revision int64
	var err error
	if a.validateOnly {
		_, err = edit(s.config.Image().Config(resource))
	} else {
		revision, err = s.config.Admin.EditConfig(ctx, resource, edit)
	}
	var refused configRefusal
	switch {
	case err == nil:
		return revision, refusedResource{}
	case errors.As(err, &refused):
		return 0, refused.refusedResource
	}
	return 0, refusedOf(err)
}
