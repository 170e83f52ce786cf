package broker

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/server"
)

// account asks a broker what it knows of partition 0 of a topic, as `tidemark explain isr` does.
func (b *running) account(topic string) server.Account {
	b.t.Helper()
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	asked := kmsg.NewDescribeTopicPartitionsRequestTopic()
	asked.Topic = topic
	req.Topics, req.ResponsePartitionLimit = append(req.Topics, asked), 1
	req.UnknownTags.Set(server.TagAccount, nil)
	answer, err := req.RequestWith(b.t.Context(), b.client())
	if err != nil {
		b.t.Fatal(err)
	}
	var account server.Account
	answer.Topics[0].Partitions[0].UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == server.TagAccount {
			err = json.Unmarshal(value, &account)
		}
	})
	if err != nil || account.Broker != b.config.BrokerID {
		b.t.Fatalf("account %+v: %v", account, err)
	}
	return account
}

// A cluster tells why a replica is out of sync: what the leader has seen of it, and what the controller knows of its broker;
// and for whom a partition without a leader waits. (R-94, R-100, D6)
func TestClusterExplains(t *testing.T) {
	brokers := startCluster(t, 3)
	controllerID := brokers[0].state.load().Controller()
	governor := brokers[controllerID-1]
	// Replicas: "copied" is led by the controller's broker and followed by the next one, "single" is the next one's alone.
	next := controllerID%3 + 1
	for topic, replicas := range map[string][]int32{"copied": {int32(controllerID), int32(next)}, "single": {int32(next)}} {
		create := kmsg.NewPtrCreateTopicsRequest()
		create.TimeoutMillis = 10_000
		of := kmsg.NewCreateTopicsRequestTopic()
		of.Topic, of.NumPartitions, of.ReplicationFactor = topic, -1, -1
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Replicas = replicas
		of.ReplicaAssignment = append(of.ReplicaAssignment, assignment)
		create.Topics = append(create.Topics, of)
		if answer, err := create.RequestWith(t.Context(), governor.client()); err != nil || answer.Topics[0].ErrorCode != 0 {
			t.Fatalf("create %s: %v %+v", topic, err, answer)
		}
	}
	a := governor.account("copied")
	if a.Replica.Role != "leader" || len(a.Replica.Others) != 1 || a.Replica.Others[0].Why != "" || a.Controller == nil || a.Controller.Leaderless != "" {
		t.Errorf("in sync: %+v", a)
	}

	brokers[next-1].close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := governor.state.until(ctx, func(image *meta.Image) bool {
		copied, _ := image.Topic("copied")
		return len(copied.Partition(0).ISR) == 1
	}); err != nil {
		t.Fatal(err)
	}
	a = governor.account("copied")
	if i := slices.IndexFunc(a.Replica.Events, func(e meta.Event) bool { return e.Kind == meta.EventShrink && e.Broker == next }); i < 0 {
		t.Errorf("the leader's journal: %+v", a.Replica.Events)
	}
	if other := a.Replica.Others[0]; other.Broker != next || other.InSync || other.Why == "" {
		t.Errorf("the leader's view: %+v", other)
	}
	if b := a.Controller.Brokers[1]; b.Broker != next || b.State != "gone" && b.State != "leaving" || len(b.Events) == 0 {
		t.Errorf("the controller's view: %+v", b)
	}
	if len(a.Controller.Events) == 0 || !strings.Contains(a.Controller.Events[0].Why, "ISR") {
		t.Errorf("the controller's decisions: %+v", a.Controller.Events)
	}
	if err := governor.state.until(ctx, func(image *meta.Image) bool { b, found := image.Broker(next); return !found || b.Fenced }); err != nil {
		t.Fatal(err)
	}
	// D6: where it was is known while it is down.
	if err := governor.state.until(ctx, func(image *meta.Image) bool {
		down := image.Down()
		return len(down) == 1 && down[0].ID == next && slices.Equal(down[0].Endpoints, brokers[next-1].endpoints())
	}); err != nil {
		t.Fatalf("down are %+v: %v", governor.state.load().Down(), err)
	}
	a = governor.account("single")
	if want := "waiting for broker " + next.String(); a.Replica.Role != "none" || !strings.HasSuffix(a.Controller.Leaderless, want) {
		t.Errorf("without a leader: %+v", a)
	}
	third := brokers[6-controllerID-next-1]
	if a := third.account("copied"); a.Controller != nil || a.Replica.Role != "none" {
		t.Errorf("who has no part in it: %+v", a)
	}
}
