package registry

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// docs/format/registry.md names every key that the builders make and every field of every value.
func TestFormatIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/format/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	id, name := meta.TopicID{1}, "<name>"
	documented := func(key string) string {
		key = strings.ReplaceAll(key, id.String(), "<id>")
		return regexp.MustCompile(`/7$`).ReplaceAllString(key, "/N")
	}
	for _, key := range []string{
		formatKey, clusterKey, featuresKey, producerIDsKey, controllerKey, controllerEpochKey,
		nameKey(name), epochKey(name), topicKey(id), topicConfigKey(id), deletedKey(id), brokerConfigKey(""),
		strings.Replace(refusalKey(8, 7), "8", "N", 1), registrationKey(7), liveKey(7), brokerEpochKey(7), brokerRecordKey(7),
		strings.Replace(partitionKey(id, 0), "/p/0", "/p/<n>", 1), strings.Replace(brokerConfigKey("7"), "7", "<N>", 1),
	} {
		if !strings.Contains(doc, "`"+documented(key)+"`") {
			t.Errorf("key %s is not documented", documented(key))
		}
	}
	for _, value := range []any{
		formatValue{}, clusterValue{}, nameValue{}, topicValue{}, epochValue{}, controllerValue{}, liveValue{}, producerIDsValue{},
		featuresValue{}, brokerRecord{}, Registration{}, Tombstone{}, meta.Endpoint{}, meta.Partition{},
	} {
		kind := reflect.TypeOf(value)
		for i := range kind.NumField() {
			field, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if field == "" || field == "-" {
				continue
			}
			if !strings.Contains(doc, `"`+field+`"`) && !strings.Contains(doc, "`"+field+"`") {
				t.Errorf("field %s of %s is not documented", field, kind)
			}
		}
	}
	for _, prefix := range regexp.MustCompile("`(/[a-z_]+)").FindAllStringSubmatch(doc, -1) {
		if !strings.Contains(keyBuilders, prefix[1]+"/") && !strings.Contains(keyBuilders, prefix[1]+" ") {
			t.Errorf("%s is documented, but no key begins so", prefix[1])
		}
	}
}

// keyBuilders lists where keys begin.
var keyBuilders = strings.Join([]string{
	formatKey, clusterKey, featuresKey, producerIDsKey, controllerKey, controllerEpochKey, namePrefix, epochPrefix, topicPrefix,
	configPrefix, brokerPrefix, deletedPrefix, refusedPrefix, "",
}, " ")

// docs/operate/cluster.md explains the messages that a start of a member may end or wait with.
func TestMessagesAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.ReplaceAll(string(text), "\n", " ")
	for _, err := range []error{ErrSplit, ErrNeedsCluster, ErrLost} {
		if !strings.Contains(doc, err.Error()) {
			t.Errorf("not explained: %v", err)
		}
	}
	if short, _, _ := strings.Cut(ErrRemoved.Error(), ":"); !strings.Contains(doc, short) {
		t.Errorf("not explained: %v", ErrRemoved)
	}
	peers := []Peer{{1, "a:1"}, {2, "b:1"}, {3, "c:1"}}
	for broker, answers := range map[meta.BrokerID]map[meta.BrokerID]*answer{
		1: {2: {Brokers: "other"}, 3: {}},
		2: {1: {Brokers: "1@a:1,2@b:1,3@c:1"}, 3: {Brokers: "1@a:1,2@b:1,3@c:1"}},
		3: {1: {Member: true}},
	} {
		d := &Door{config: DoorConfig{Broker: broker, Peers: peers, Members: 3}}
		d.SetCluster("")
		wait, _, _ := strings.Cut(d.decide(answers).wait, ";")
		if wait == "" || !strings.Contains(doc, "for="+wait) {
			t.Errorf("not explained: waiting for %q", wait)
		}
	}
}
