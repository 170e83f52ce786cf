package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// differs lists where tidemark's table is not Kafka's: by key, or by key and column.
var differs = map[string]string{
	"broker listeners default":                             "both loopback addresses, so that nothing is exposed unasked",
	"broker listeners change":                              "listeners do not change while a broker runs",
	"broker listener.security.protocol.map change":         "listeners do not change while a broker runs",
	"broker log.dir default":                               "never a temporary folder (U-135)",
	"broker node.id default":                               "a single broker needs no number",
	"broker process.roles default":                         "every broker is both",
	"broker controller.listener.names default":             "there are none",
	"broker authorizer.class.name values":                  "null cannot be given in a properties file",
	"broker controller.quorum.voters values":               "without effect here, so an empty list does no harm",
	"broker controller.quorum.bootstrap.servers values":    "without effect here, so an empty list does no harm",
	"broker remote.log.manager.task.retry.jitter values":   "a bound of 0.5 has no use here: without effect",
	"topic leader.replication.throttled.replicas values":   "says that * is right too",
	"topic follower.replication.throttled.replicas values": "says that * is right too",
}

// TestKeysOfKafka holds the table against that of Apache Kafka 4.4: every key is there with its type, default, values
// and way of change (U-123).
func TestKeysOfKafka(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "kafka-4.4-keys.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	all, used := Keys(), make(map[string]bool)
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		scope, name := fields[0], fields[1]
		key := all.Broker(name)
		if scope == "topic" {
			key = all.Topic(name)
		}
		if key == nil {
			t.Errorf("%s key %s is missing", scope, name)
			continue
		}
		for column, got := range map[string][2]string{
			"type": {key.Type.String(), fields[2]}, "default": {goldenDefault(key), fields[3]},
			"values": {goldenValues(key), fields[4]}, "change": {goldenChange(key), fields[5]},
		} {
			why := scope + " " + name + " " + column
			if got[0] == got[1] {
				continue
			}
			if differs[why] == "" {
				t.Errorf("%s key %s: %s is %q, in Kafka %q", scope, name, column, got[0], got[1])
			}
			used[why] = true
		}
	}
	for why := range differs {
		if !used[why] {
			t.Errorf("%s does not differ", why)
		}
	}
}

func goldenDefault(key *meta.ConfigKey) string {
	switch {
	case !key.HasDefault:
		return "-"
	case key.Default == "":
		return `""`
	}
	return key.Default
}

func goldenValues(key *meta.ConfigKey) string {
	if key.Valid == nil {
		return ""
	}
	return key.Valid.String()
}

func goldenChange(key *meta.ConfigKey) string {
	if key.Topic {
		return ""
	}
	return key.Dynamic.String()
}
