package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// alterConfigs replaces the whole of what is set for topics and brokers (key 33): what is not mentioned is removed.
// Clients should prefer IncrementalAlterConfigs.
func (s *Server) alterConfigs(ctx context.Context, c *client, req *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	resources := make([]alteredResource, len(req.Resources))
	for i, asked := range req.Resources {
		resources[i] = alteredResource{kind: asked.ResourceType, name: asked.ResourceName}
		if asked.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
			resources[i].refused = unknownKind(asked.ResourceType)
		}
		for _, config := range asked.Configs {
			resources[i].settings = append(resources[i].settings, controller.Setting{Name: config.Name, Value: config.Value})
		}
	}
	s.alter(ctx, resources, func(ctx context.Context, replaced []*alteredResource) ([]error, int64, error) {
		replacements := make([]controller.ReplaceConfig, len(replaced))
		for i, r := range replaced {
			replacements[i] = controller.ReplaceConfig{Resource: r.resource, Settings: r.settings}
		}
		return s.config.Admin.ReplaceConfigs(ctx, replacements, req.ValidateOnly)
	})
	for i := range resources {
		r := &resources[i]
		if r.refused.code == 0 && !req.ValidateOnly {
			s.log.Info("configuration replaced", slog.Any("resource", r.kind.String()+" "+r.name), slog.Any("settings", s.shownSettings(r.settings)),
				slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
		}
		answer := kmsg.NewAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = r.kind, r.name
		answer.ErrorCode, answer.ErrorMessage = r.refused.code, r.refused.text()
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}

// shownSettings renders settings for the log, secrets left out.
func (s *Server) shownSettings(settings []controller.Setting) []string {
	shown := make([]string, len(settings))
	for i, setting := range settings {
		shown[i] = setting.Name
		if setting.Value != nil {
			shown[i] += "=" + s.shownValue(setting.Name, *setting.Value)
		}
	}
	return shown
}

// alteredResource is one resource whose configuration shall change, and what became of it.
type alteredResource struct {
	kind kmsg.ConfigResourceType
	name string
	// One of these says what shall change.
	changes  []controller.Alteration
	settings []controller.Setting

	resource meta.ConfigResource // of a topic or broker
	refused  refusedItem
}

// alter judges the resources and lets change write those that may be written: topics and brokers. It returns once this
// broker's Image shows what was written (D13).
func (s *Server) alter(
	ctx context.Context, resources []alteredResource, change func(context.Context, []*alteredResource) ([]error, int64, error),
) {
	ctx, cancel := adminTimeout(ctx, 0)
	defer cancel()
	type key struct {
		kind kmsg.ConfigResourceType
		name string
	}
	times := make(map[key]int)
	for i := range resources {
		times[key{resources[i].kind, resources[i].name}]++
	}
	var altered []*alteredResource
	for i := range resources {
		r := &resources[i]
		switch {
		case times[key{r.kind, r.name}] > 1:
			r.refused = invalidRequest("Each resource must appear at most once.")
		case r.refused.code == 0 && r.kind != kmsg.ConfigResourceTypeBrokerLogger:
			if r.refused = s.resolve(r); r.refused.code == 0 {
				altered = append(altered, r)
			}
		}
	}
	if len(altered) == 0 {
		return
	}
	results, revision, err := change(ctx, altered)
	if err == nil {
		err = s.waitFor(ctx, revision)
	}
	for i, r := range altered {
		if err != nil {
			r.refused = s.refusedBy(err)
		} else {
			r.refused = s.refusedBy(results[i])
		}
	}
}

// resolve finds the topic or broker that a request names.
func (s *Server) resolve(r *alteredResource) refusedItem {
	r.resource = meta.ConfigResource{Kind: meta.ResourceKind(r.kind), Name: r.name}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if r.name != "" { // the controller's side has words for a nameless topic
			if err := meta.ValidateTopicName(r.name); err != nil {
				return refusedItem{kerr.InvalidTopicException.Code, err.Error()}
			}
		}
		return refusedItem{}
	case kmsg.ConfigResourceTypeBroker:
		if r.name == "" {
			return refusedItem{}
		}
		id, err := strconv.ParseInt(r.name, 10, 32)
		switch {
		case err != nil:
			return invalidRequest("Node id must be an integer, but it is: " + r.name)
		case meta.BrokerID(id) != s.config.Broker:
			return invalidRequest(fmt.Sprintf("Unexpected broker id, expected %d, but received %s", s.config.Broker, r.name))
		}
		r.resource = meta.BrokerConfig(s.config.Broker)
		return refusedItem{}
	default:
		return unknownKind(r.kind)
	}
}

func unknownKind(kind kmsg.ConfigResourceType) refusedItem {
	return invalidRequest(fmt.Sprintf("Unknown resource type %d", kind))
}

// CheckBroker judges the whole of what would be set for a broker, or with an empty name as the default of all. The
// error is a *controller.Refusal with Kafka's words. Keys that this table does not have are let through, as in Kafka:
// they may belong to what a newer version knows.
func (t *ConfigTable) CheckBroker(broker string, values map[string]string) error {
	names := slices.Sorted(maps.Keys(values))
	var readOnly, perListener, perBroker []string
	for _, name := range names {
		key := t.brokerKey(name)
		switch {
		case key == nil:
		case key.Dynamic == meta.ReadOnly:
			readOnly = append(readOnly, name)
		case key.Name == name && listenerSecurity[name]:
			perListener = append(perListener, name)
		case key.Dynamic == meta.PerBroker && broker == "":
			perBroker = append(perBroker, name)
		}
	}
	switch {
	case len(readOnly) > 0:
		return refuseBroker("Cannot update these configs dynamically: " + bracketed(readOnly))
	case len(perListener) > 0:
		return refuseBroker("These security configs can be dynamically updated only per-listener using the listener prefix: " + bracketed(perListener))
	}
	if _, set := values[minISRKey]; set && broker != "" {
		return &controller.Refusal{
			Kind: controller.ErrInvalidConfig, Message: "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
		}
	}
	for _, name := range names {
		if key := t.brokerKey(name); key != nil {
			if _, err := key.Parse(values[name]); err != nil {
				return refuseBroker(err.Error())
			}
		}
	}
	if len(perBroker) > 0 {
		return refuseBroker("Cannot update these configs at default cluster level, broker id must be specified: " + bracketed(perBroker))
	}
	return nil
}

func refuseBroker(message string) error {
	return &controller.Refusal{Kind: controller.ErrInvalidRequest, Message: message}
}

// minISRKey lives in every partition's value (D8): a setting of one broker could mean nothing.
const minISRKey = "min.insync.replicas"

// listenerSecurity are the keys that can change only for a listener by its name, because the certificates of connections
// that are open hang on them.
var listenerSecurity = map[string]bool{
	"ssl.keystore.type": true, "ssl.keystore.location": true, "ssl.keystore.password": true, "ssl.key.password": true,
	"ssl.keystore.key": true, "ssl.keystore.certificate.chain": true, "ssl.truststore.type": true, "ssl.truststore.location": true,
	"ssl.truststore.password": true, "ssl.truststore.certificates": true,
}

func bracketed(names []string) string { return "[" + strings.Join(names, ", ") + "]" }
