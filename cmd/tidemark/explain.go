package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/server"
)

// explainPatience bounds the wait for one broker's account: one that stands still must not keep the others' from being read.
const explainPatience = 5 * time.Second

func newExplain(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "explain", Short: "Tell why something is as it is"}
	cmd.AddCommand(newExplainISR(io, shared))
	return cmd
}

func newExplainISR(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "isr TOPIC-PARTITION",
		Short: "Tell why replicas of a partition are out of sync, or why it has no leader",
		Long: `Tell why replicas of a partition are out of sync, or why it has no leader: what the leader, the controller and the other
replicas know now, and the last events, oldest first. Brokers keep these events in memory, from their start or the
controller's election on. The exit code is 0 if all replicas are in sync, else 1.`,
		Example: "  tidemark explain isr lines-0",
		Args:    cobra.MatchAll(someArguments, cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parsePartitionNames(args)
			if err != nil {
				return err
			}
			cl, err := shared.client(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			e, err := explainISR(cmd.Context(), cl, names[0])
			if err != nil {
				return err
			}
			if shared.json() {
				err = printJSON(io.out, e)
			} else {
				err = e.print(io)
			}
			if err == nil && !e.InSync {
				err = fmt.Errorf("%s is not in sync: %s", names[0], e.fault())
			}
			return err
		},
	}
}

// isrExplanation is why a partition is as it is, as all its brokers tell it.
type isrExplanation struct {
	Partition    string          `json:"partition"`
	InSync       bool            `json:"in_sync"` // all replicas of the assignment are
	Leader       meta.BrokerID   `json:"leader"`  // -1 for none
	LeaderEpoch  meta.Epoch      `json:"leader_epoch"`
	MinISR       int32           `json:"min_isr"`
	Replicas     []meta.BrokerID `json:"replicas"`
	ISR          []meta.BrokerID `json:"isr"`
	ELR          []meta.BrokerID `json:"elr"`
	LastKnownISR []meta.BrokerID `json:"last_known_isr"`
	Controller   meta.BrokerID   `json:"controller"`
	Leaderless   string          `json:"leaderless,omitempty"` // why nobody leads

	Out      []outOfSync      `json:"out_of_sync"`
	Events   []explainedEvent `json:"events"`   // the oldest first
	Accounts []server.Account `json:"accounts"` // of the brokers that answered, the newest value first
	Silent   []silentBroker   `json:"silent"`   // those that did not
}

// outOfSync is one replica that is not in sync, and what is known of it, one sentence for each broker that knows something.
type outOfSync struct {
	Broker meta.BrokerID `json:"broker"`
	Known  []string      `json:"known"`
}

type explainedEvent struct {
	By []meta.BrokerID `json:"by"` // whose journals have it
	meta.Event
}

// sameTime is how far apart two brokers hear of the same change.
const sameTime = 5 * time.Second

// add adds events of a broker's journal. What several brokers heard of is told once.
func (e *isrExplanation) add(by meta.BrokerID, events []meta.Event) {
	for _, event := range events {
		i := slices.IndexFunc(e.Events, func(other explainedEvent) bool {
			return other.Kind == event.Kind && other.Why == event.Why && !slices.Contains(other.By, by) && event.At.Sub(other.At).Abs() < sameTime
		})
		if i >= 0 {
			e.Events[i].By = append(e.Events[i].By, by)
			continue
		}
		e.Events = append(e.Events, explainedEvent{[]meta.BrokerID{by}, event})
	}
}

// silentBroker has not told what it knows.
type silentBroker struct {
	Broker meta.BrokerID `json:"broker"`
	Why    string        `json:"why"`
}

// explainISR asks every broker that has a part in the partition, and the controller.
func explainISR(ctx context.Context, cl *kgo.Client, name partitionName) (*isrExplanation, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(name.topic)
	req.Topics = append(req.Topics, topic)
	metadata, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", name, err)
	}
	if err := kerr.ErrorForCode(metadata.Topics[0].ErrorCode); err != nil {
		return nil, explained("explain "+name.String(), err, "")
	}
	i := slices.IndexFunc(metadata.Topics[0].Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == name.partition })
	if i < 0 {
		return nil, explainedPartition("explain "+name.String(), kerr.UnknownTopicOrPartition, "")
	}
	ask := map[meta.BrokerID]bool{}
	for _, id := range metadata.Topics[0].Partitions[i].Replicas {
		ask[meta.BrokerID(id)] = true
	}
	ask[meta.BrokerID(metadata.ControllerID)] = true
	delete(ask, meta.NoBroker)
	for _, b := range metadata.Brokers {
		if len(ask) < 16 { // who has no part in it may still know the value, when all who have are gone
			ask[meta.BrokerID(b.NodeID)] = true
		}
	}
	e := &isrExplanation{Partition: name.String(), Controller: meta.BrokerID(metadata.ControllerID), Silent: []silentBroker{}, Out: []outOfSync{}, Events: []explainedEvent{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for id := range ask {
		known := slices.ContainsFunc(metadata.Brokers, func(b kmsg.MetadataResponseBroker) bool { return meta.BrokerID(b.NodeID) == id })
		wait.Go(func() {
			account, err := (*server.Account)(nil), errors.New("it is not there")
			if known {
				account, err = accountOf(ctx, cl, id, name)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.Silent = append(e.Silent, silentBroker{id, err.Error()})
			} else {
				e.Accounts = append(e.Accounts, *account)
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(e.Accounts) == 0 {
		return nil, fmt.Errorf("explain %s: no broker tells what it knows: %s", name, e.Silent[0].Why)
	}
	e.conclude()
	return e, nil
}

// accountOf asks one broker.
func accountOf(ctx context.Context, cl *kgo.Client, id meta.BrokerID, name partitionName) (*server.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, explainPatience)
	defer cancel()
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = name.topic
	req.Topics = append(req.Topics, topic)
	req.ResponsePartitionLimit = 1
	cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
	cursor.Topic, cursor.Partition = name.topic, name.partition
	req.Cursor = &cursor
	req.UnknownTags.Set(server.TagAccount, nil)
	answer, err := cl.Broker(int(id)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, t := range answer.(*kmsg.DescribeTopicPartitionsResponse).Topics {
		for i := range t.Partitions {
			if t.Partitions[i].Partition != name.partition {
				continue
			}
			var account *server.Account
			t.Partitions[i].UnknownTags.Each(func(tag uint32, value []byte) {
				if tag == server.TagAccount {
					account = new(server.Account)
					err = json.Unmarshal(value, account)
				}
			})
			if account != nil || err != nil {
				return account, err
			}
			return nil, errors.New("it keeps no journal: it is not tidemark, or an older one")
		}
		if t.ErrorCode != 0 {
			return nil, kerr.ErrorForCode(t.ErrorCode)
		}
	}
	return nil, errors.New("it does not know the partition yet")
}

// conclude puts together what the brokers have told.
func (e *isrExplanation) conclude() {
	slices.SortFunc(e.Accounts, func(a, b server.Account) int {
		switch {
		case b.Version != a.Version:
			return int(b.Version - a.Version)
		default:
			return int(a.Broker - b.Broker)
		}
	})
	slices.SortFunc(e.Silent, func(a, b silentBroker) int { return int(a.Broker - b.Broker) })
	value := &e.Accounts[0].Value
	e.Leader, e.LeaderEpoch, e.MinISR = value.Leader, value.LeaderEpoch, value.MinISR
	e.Replicas, e.ISR, e.ELR, e.LastKnownISR = orEmpty(value.Replicas), orEmpty(value.ISR), orEmpty(value.ELR), orEmpty(value.LastKnownISR)
	states := make(map[meta.BrokerID]string)
	for i := range e.Accounts {
		a := &e.Accounts[i]
		e.add(a.Broker, a.Replica.Events)
		if a.Controller == nil {
			continue
		}
		e.Controller, e.Leaderless = a.Broker, a.Controller.Leaderless
		for _, b := range a.Controller.Brokers {
			states[b.Broker] = b.State
			e.add(a.Broker, b.Events)
		}
		e.add(a.Broker, a.Controller.Events)
	}
	e.drop()
	slices.SortStableFunc(e.Events, func(a, b explainedEvent) int { return a.At.Compare(b.At) })
	e.InSync = value.Leader != meta.NoBroker && e.Leaderless == ""
	for _, id := range value.Replicas {
		known := e.knownOf(id)
		if !value.InSync(id) {
			e.InSync = false
		} else if state := states[id]; state == "" || state == "live" || state == "leaving" {
			continue
		}
		e.Out = append(e.Out, outOfSync{id, known})
	}
}

// drop leaves out what followers read in a value that its leader, or the controller, explains.
func (e *isrExplanation) drop() {
	explained := slices.Clone(e.Events)
	e.Events = slices.DeleteFunc(e.Events, func(event explainedEvent) bool {
		vague := event.Why == fmt.Sprintf("broker %d left the ISR", event.Broker) || event.Why == fmt.Sprintf("broker %d is in the ISR", event.Broker)
		return vague && slices.ContainsFunc(explained, func(other explainedEvent) bool {
			return other.Kind == event.Kind && other.Broker == event.Broker && len(other.Why) > len(event.Why) && event.At.Sub(other.At).Abs() < sameTime
		})
	})
}

func orEmpty(ids []meta.BrokerID) []meta.BrokerID {
	if ids == nil {
		return []meta.BrokerID{}
	}
	return ids
}

// knownOf is what the brokers say about one replica, the controller first.
func (e *isrExplanation) knownOf(id meta.BrokerID) []string {
	var known []string
	for i := range e.Accounts {
		a := &e.Accounts[i]
		if a.Controller == nil {
			continue
		}
		for _, b := range a.Controller.Brokers {
			if b.Broker == id {
				known = append(known, brokerText(a.Broker, &b))
			}
		}
	}
	for i := range e.Accounts {
		a := &e.Accounts[i]
		for _, s := range a.Replica.Others {
			if s.Broker != id || s.Why == "" {
				continue
			}
			text := fmt.Sprintf("leader %d: %s", a.Broker, s.Why)
			if !s.Fetched.IsZero() {
				text += fmt.Sprintf("; its last fetch that counted, at %s (%s ago), asked for offset %d of %d", clock(s.Fetched), ago(a.At.Sub(s.Fetched)), s.End, a.Replica.LogEnd)
			}
			known = append(known, text)
		}
	}
	for i := range e.Accounts {
		a := &e.Accounts[i]
		if a.Broker != id {
			continue
		}
		text := fmt.Sprintf("broker %d itself: ", id)
		switch f := a.Replica.Following; {
		case a.Replica.Offline != "":
			text += "its copy is offline: " + a.Replica.Offline
		case f != nil && f.Failing != "":
			text += fmt.Sprintf("follows broker %d from offset %d, in vain since %s: %s", f.Leader, a.Replica.LogEnd, clock(f.FailingSince), f.Failing)
		case f != nil && f.Leader == meta.NoBroker:
			text += fmt.Sprintf("knows no leader in epoch %d; its copy ends at %d", a.Replica.LeaderEpoch, a.Replica.LogEnd)
		case f != nil:
			text += fmt.Sprintf("follows broker %d in epoch %d (it %s); its copy ends at %d", f.Leader, a.Replica.LeaderEpoch, f.State, a.Replica.LogEnd)
		case a.Replica.Role == "leader":
			text += fmt.Sprintf("leads in epoch %d; its copy ends at %d", a.Replica.LeaderEpoch, a.Replica.LogEnd)
		default:
			text += "has no copy"
		}
		if f := a.Replica.Following; f != nil && f.ThrottledTo > 0 {
			text += fmt.Sprintf("; its fetches are throttled to %d bytes per second", f.ThrottledTo)
		}
		known = append(known, text)
	}
	for _, s := range e.Silent {
		if s.Broker == id {
			known = append(known, fmt.Sprintf("broker %d itself does not answer: %s", id, s.Why))
		}
	}
	if known == nil {
		known = []string{}
	}
	return known
}
