package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// configValueMax is Kafka's limit on the bytes of one value.
const configValueMax = 32_767

// Operation says what IncrementalAlterConfigs does with a key; the numbers are the protocol's.
type Operation int8

// The operations. Append and Subtract are for lists.
const (
	Set      Operation = 0
	Unset    Operation = 1
	Append   Operation = 2
	Subtract Operation = 3
)

// String is Kafka's name of the operation.
func (o Operation) String() string {
	switch o {
	case Set:
		return "SET"
	case Unset:
		return "DELETE"
	case Append:
		return "APPEND"
	case Subtract:
		return "SUBTRACT"
	}
	return "UNKNOWN"
}

// Alteration is one operation on one key; Value is nil for null, and ignored by Unset.
type Alteration struct {
	Name      string
	Operation Operation
	Value     *string
}

// AlterConfig asks for a change of one resource's configuration.
type AlterConfig struct {
	Resource meta.ConfigResource
	Changes  []Alteration
}

// ReplaceConfig asks for one resource to have exactly these settings.
type ReplaceConfig struct {
	Resource meta.ConfigResource
	Settings []Setting
}

// AlterConfigs changes configurations key by key (IncrementalAlterConfigs), each resource atomically and independently of
// the others. It returns one error for each: a *Refusal, or nil.
func (a *Admin) AlterConfigs(ctx context.Context, alterations []AlterConfig, validateOnly bool) (results []error, revision int64, err error) {
	changes := make([]change, len(alterations))
	for i := range alterations {
		c := &alterations[i]
		changes[i] = change{resource: c.Resource, refusal: checkAlterations(c.Changes), edit: func(values map[string]string) (map[string]string, *Refusal) {
			return a.alter(c, values)
		}}
	}
	return a.change(ctx, changes, validateOnly)
}

// ReplaceConfigs replaces configurations as a whole (AlterConfigs), like AlterConfigs otherwise.
func (a *Admin) ReplaceConfigs(ctx context.Context, replacements []ReplaceConfig, validateOnly bool) (results []error, revision int64, err error) {
	changes := make([]change, len(replacements))
	for i := range replacements {
		c := &replacements[i]
		changes[i] = change{resource: c.Resource, refusal: checkSettings(c.Settings), edit: func(map[string]string) (map[string]string, *Refusal) {
			values := make(map[string]string, len(c.Settings))
			for _, s := range c.Settings {
				values[s.Name] = *s.Value
			}
			return values, nil
		}}
	}
	return a.change(ctx, changes, validateOnly)
}

// change is one resource's change.
type change struct {
	resource meta.ConfigResource
	refusal  *Refusal // of the request as such
	edit     func(values map[string]string) (map[string]string, *Refusal)
}

func checkAlterations(changes []Alteration) *Refusal {
	names, null := make([]string, 0, len(changes)), []string(nil)
	for _, c := range changes {
		names = append(names, c.Name)
		switch {
		case c.Operation < Set || c.Operation > Subtract:
			return refuse(ErrInvalidRequest, "Unknown operations type %d", c.Operation)
		case c.Value == nil && c.Operation != Unset:
			null = append(null, c.Name)
		}
	}
	return checkNames(names, null)
}

func checkSettings(settings []Setting) *Refusal {
	names, null := make([]string, 0, len(settings)), []string(nil)
	for _, s := range settings {
		names = append(names, s.Name)
		if s.Value == nil {
			null = append(null, s.Name)
		}
	}
	return checkNames(names, null)
}

func checkNames(names, null []string) *Refusal {
	slices.Sort(names)
	switch {
	case len(slices.Compact(slices.Clone(names))) != len(names):
		return refuse(ErrInvalidRequest, "Error due to duplicate config keys")
	case len(null) > 0:
		return refuse(ErrInvalidRequest, "Null value not supported for : %s", strings.Join(null, ","))
	}
	return nil
}

func (a *Admin) change(ctx context.Context, changes []change, validateOnly bool) (results []error, revision int64, err error) {
	results = make([]error, len(changes))
	image := a.config.Image()
	times := make(map[meta.ConfigResource]int)
	for i := range changes {
		times[changes[i].resource]++
	}
	var edits []registry.ConfigEdit
	var index []int
	for i := range changes {
		c := &changes[i]
		edit, refusal := a.edit(image, c)
		switch {
		case times[c.resource] > 1:
			results[i] = refuse(ErrInvalidRequest, "Each resource must appear at most once.")
		case c.refusal != nil:
			results[i] = c.refusal
		case refusal != nil:
			results[i] = refusal
		case validateOnly:
			_, results[i] = edit.Edit(cloneOrEmpty(image.Config(c.resource)))
		default:
			edits, index = append(edits, edit), append(index, i)
		}
	}
	if len(edits) == 0 {
		return results, 0, nil
	}
	outcomes, revision, err := a.config.Cluster.EditConfigs(ctx, edits)
	if err != nil {
		return nil, 0, err
	}
	for at, err := range outcomes {
		i := index[at]
		switch refusal := (*Refusal)(nil); {
		case err == nil || errors.As(err, &refusal):
			results[i] = err
		case errors.Is(err, registry.ErrUnknownTopic):
			results[i] = noSuchTopic(changes[i].resource.Name)
		default:
			results[i] = topicRefusal(err, changes[i].resource.Name)
		}
	}
	return results, revision, nil
}

func noSuchTopic(name string) *Refusal {
	return refuse(ErrUnknownTopic, "The topic '%s' does not exist.", name)
}

// edit finds the resource and wraps its change with the checks of the result.
func (a *Admin) edit(image *meta.Image, c *change) (registry.ConfigEdit, *Refusal) {
	edit := registry.ConfigEdit{Kind: c.resource.Kind, Broker: c.resource.Name}
	check := func(values map[string]string) *Refusal { return a.checkTopic(image, values) }
	switch c.resource.Kind {
	case meta.TopicResource:
		topic, found := image.Topic(c.resource.Name)
		switch {
		case c.resource.Name == "":
			return edit, refuse(ErrInvalidRequest, "Default topic resources are not allowed.")
		case !found:
			return edit, noSuchTopic(c.resource.Name)
		}
		edit.Topic = topic.ID
	case meta.BrokerResource:
		if refusal := checkBrokerName(image, c.resource.Name); refusal != nil {
			return edit, refusal
		}
		check = func(values map[string]string) *Refusal {
			err, refusal := a.config.CheckBroker(c.resource.Name, values), (*Refusal)(nil)
			if err != nil && !errors.As(err, &refusal) {
				refusal = refuse(ErrInvalidConfig, "%s", err)
			}
			return refusal
		}
	default:
		return edit, refuse(ErrInvalidRequest, "Unknown resource type %s", c.resource.Kind)
	}
	edit.Edit = func(values map[string]string) (map[string]string, error) {
		next, refusal := c.edit(values)
		if refusal == nil {
			refusal = check(next)
		}
		if refusal != nil {
			return nil, refusal
		}
		return next, nil
	}
	return edit, nil
}

func checkBrokerName(image *meta.Image, name string) *Refusal {
	if name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil || strconv.FormatInt(id, 10) != name {
		return refuse(ErrInvalidRequest, "Node id must be an integer, but it is: %s", name)
	}
	if _, found := image.Broker(meta.BrokerID(id)); !found {
		return refuse(ErrUnknownBroker, "No node with id %d found.", id)
	}
	return nil
}

// alter applies operations to a configuration.
func (a *Admin) alter(c *AlterConfig, values map[string]string) (map[string]string, *Refusal) {
	key := a.config.Keys.Topic
	if c.Resource.Kind == meta.BrokerResource {
		key = a.config.Keys.Broker
	}
	for _, operation := range c.Changes {
		switch operation.Operation {
		case Set:
			values[operation.Name] = *operation.Value
		case Unset:
			delete(values, operation.Name)
		case Append, Subtract:
			known := key(operation.Name)
			if known == nil || known.Type != meta.ListType {
				return nil, refuse(ErrInvalidConfig, "Can't %s to key %s because its type is not LIST.", operation.Operation, operation.Name)
			}
			value, set := values[operation.Name]
			if !set {
				value = known.Default
			}
			values[operation.Name] = editList(value, operation.Operation, *operation.Value)
		}
	}
	return values, nil
}

// editList adds or takes away the elements of a comma-separated list, as Kafka does.
func editList(list string, operation Operation, elements string) string {
	parts := slices.DeleteFunc(strings.Split(list, ","), func(part string) bool { return part == "" })
	for element := range strings.SplitSeq(elements, ",") {
		present := slices.Contains(parts, element)
		switch {
		case operation == Append && !present:
			parts = append(parts, element)
		case operation == Subtract && present:
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == element })
		}
	}
	return strings.Join(parts, ",")
}

func cloneOrEmpty(values map[string]string) map[string]string {
	out := make(map[string]string, len(values))
	for k, v := range values {
		out[k] = v
	}
	return out
}
