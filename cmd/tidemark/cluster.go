package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/broker"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/server"
)

func newCluster(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Look at the cluster as a whole"}
	cmd.AddCommand(newClusterStatus(io, shared))
	return cmd
}

func newClusterStatus(io streams, shared *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Tell whether the cluster is healthy, in one screen",
		Long: `Tell whether the cluster is healthy: every broker that is listed or has replicas is there, all members of the
registry that shall vote do, every partition has a leader and all its
replicas in sync. The exit code is 0 if so, else 1.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := shared.client(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			status, err := statusOf(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if shared.json() {
				err = printJSON(io.out, status)
			} else {
				err = status.print(io)
			}
			if err == nil && !status.Healthy {
				err = errors.New("the cluster is not healthy: " + status.faults())
			}
			return err
		},
	}
}

// clusterStatus is the state of a cluster as one broker tells it.
type clusterStatus struct {
	Cluster    string         `json:"cluster"`
	Level      int16          `json:"level"` // tidemark.version, which is finalised; 0 if the broker does not say
	Healthy    bool           `json:"healthy"`
	Controller int32          `json:"controller"`
	Brokers    []brokerStatus `json:"brokers"`
	Topics     int            `json:"topics"`
	Partitions int            `json:"partitions"`

	// The partitions with something to say, as TOPIC-PARTITION.
	Leaderless      []string `json:"leaderless"`
	UnderMinISR     []string `json:"under_min_isr"`
	UnderReplicated []string `json:"under_replicated"`
	Moving          []string `json:"moving"`

	// Registry is nil when it is an external one.
	Registry *registryStatus `json:"registry,omitempty"`
}

// registryStatus counts the registry's members: a majority of those that vote must run for anything to be decided.
type registryStatus struct {
	Leader int32 `json:"leader"` // -1 for none
	Voters int   `json:"voters"`
	Wanted int   `json:"wanted"` // how many shall vote, by the list of brokers

	// Away are the voters whose brokers do not answer: they vote on nothing until they are back.
	Away []int32 `json:"away"`
}

type brokerStatus struct {
	ID       int32  `json:"id"`
	State    string `json:"state"`             // "live", "silent" (registered, but it does not answer), "fenced", "down" (it was there) or "missing"
	Address  string `json:"address,omitempty"` // the last one of a broker that is down, as is Rack
	Rack     string `json:"rack,omitempty"`
	Leads    int    `json:"leads"`
	Replicas int    `json:"replicas"`
	InSync   int    `json:"in_sync"`

	listed bool // the cluster is to have it
}

// statusOf asks for everything that the status shows. It does without the brokers that do not answer, the controller too:
// that is when somebody wants to know.
func statusOf(ctx context.Context, cl *kgo.Client) (*clusterStatus, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	server.AskForDown(req)
	described, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(described.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	s := &clusterStatus{Cluster: described.ClusterID, Controller: described.ControllerID, Topics: len(topics)}
	brokers := make(map[int32]*brokerStatus)
	for i := range described.Brokers {
		b := &described.Brokers[i]
		status := &brokerStatus{ID: b.NodeID, State: "live", Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))}
		switch {
		case server.IsDown(b):
			status.State = "down"
		case b.IsFenced:
			status.State = "fenced"
		}
		if b.Rack != nil {
			status.Rack = *b.Rack
		}
		brokers[b.NodeID] = status
	}
	hearBrokers(ctx, cl, brokers)
	err = s.ask(ctx, cl, brokers, func(ctx context.Context, id int32, witness *kgo.Broker) error {
		return s.hear(ctx, id, witness, topics, brokers)
	})
	if err != nil {
		return nil, err
	}
	for _, b := range brokers {
		s.Brokers = append(s.Brokers, *b)
	}
	slices.SortFunc(s.Brokers, func(a, b brokerStatus) int { return int(a.ID) - int(b.ID) })
	s.Healthy = s.faults() == ""
	return s, nil
}

// answerPatience bounds the wait for one broker's answers.
const answerPatience = 5 * time.Second

// hearBrokers asks each live broker for a sign of life, and calls those that give none silent.
func hearBrokers(ctx context.Context, cl *kgo.Client, brokers map[int32]*brokerStatus) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	var asked sync.WaitGroup
	for id, b := range brokers {
		asked.Go(func() {
			if _, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl.Broker(int(id))); err != nil && b.State == "live" {
				b.State = "silent"
			}
		})
	}
	asked.Wait()
}

// ask has one live broker after the other, the controller first, tell what any of them can, until one has done so.
func (s *clusterStatus) ask(ctx context.Context, cl *kgo.Client, brokers map[int32]*brokerStatus, tell func(context.Context, int32, *kgo.Broker) error) error {
	var live []int32
	for _, id := range slices.Sorted(maps.Keys(brokers)) {
		if brokers[id].State == "live" {
			live = append(live, id)
		}
	}
	if at := slices.Index(live, s.Controller); at > 0 {
		live[0], live[at] = live[at], live[0]
	}
	err := errors.New("none of the brokers that are listed answers")
	for _, id := range live {
		asking, cancel := context.WithTimeout(ctx, answerPatience)
		err = tell(asking, id, cl.Broker(int(id)))
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// hear takes down what one broker tells beside the list of brokers and topics.
func (s *clusterStatus) hear(ctx context.Context, id int32, witness *kgo.Broker, topics kadm.TopicDetails, brokers map[int32]*brokerStatus) error {
	listed, wanted, err := listedBrokers(ctx, id, witness)
	if err != nil {
		return err
	}
	for _, id := range listed {
		if brokers[id] == nil {
			brokers[id] = &brokerStatus{ID: id, State: "missing"}
		}
		brokers[id].listed = true
	}
	if s.Registry, err = registryOf(ctx, witness, wanted, brokers); err != nil {
		return err
	}
	if s.Level, err = levelOf(ctx, witness); err != nil {
		return err
	}
	moves, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(ctx, witness)
	if err == nil {
		err = kerr.ErrorForCode(moves.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("list reassignments: %w", err)
	}
	s.Moving = nil
	for i := range moves.Topics {
		for _, p := range moves.Topics[i].Partitions {
			s.Moving = append(s.Moving, fmt.Sprintf("%s-%d", moves.Topics[i].Topic, p.Partition))
		}
	}
	minISR, err := minInsync(ctx, witness, topics)
	if err != nil {
		return err
	}
	s.count(topics, minISR, brokers)
	return nil
}

// levelOf asks for the finalised level of what brokers say to each other.
func levelOf(ctx context.Context, witness *kgo.Broker) (int16, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "tidemark", versionNumber()
	resp, err := req.RequestWith(ctx, witness)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for feature levels: %w", err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == registry.TidemarkLevel {
			return f.MaxVersionLevel, nil
		}
	}
	return 0, nil
}

// registryMembersKey is the key that says how many brokers embed a member of the registry.
const registryMembersKey = "registry.members"

// listedBrokers are the brokers that the cluster is to have, as the broker that is asked was started with them, and how many
// members of its registry shall vote.
func listedBrokers(ctx context.Context, id int32, witness *kgo.Broker) (ids []int32, voters int, err error) {
	settings, err := settingsOf(ctx, witness, kmsg.ConfigResourceTypeBroker, []string{strconv.Itoa(int(id))}, broker.ClusterKey, registryMembersKey)
	if err != nil {
		return nil, 0, fmt.Errorf("describe settings of broker %d: %w", id, err)
	}
	own := settings[strconv.Itoa(int(id))]
	for _, item := range meta.SplitList(own[broker.ClusterKey]) {
		number, _, _ := strings.Cut(item, "@")
		if id, err := strconv.ParseInt(number, 10, 32); err == nil {
			ids = append(ids, int32(id))
		}
	}
	most, err := strconv.Atoi(own[registryMembersKey])
	if err != nil {
		return nil, 0, fmt.Errorf("%s of broker %d is %q: want a number", registryMembersKey, id, own[registryMembersKey])
	}
	return ids, broker.RegistryMembers(max(len(ids), 1), most), nil
}

// settingsOf asks a broker for these keys of brokers or topics, and returns values by name and key.
func settingsOf(ctx context.Context, witness *kgo.Broker, kind kmsg.ConfigResourceType, names []string, keys ...string) (map[string]map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName, resource.ConfigNames = kind, name, keys
		req.Resources = append(req.Resources, resource)
	}
	resp, err := req.RequestWith(ctx, witness)
	if err != nil {
		return nil, err
	}
	settings := make(map[string]map[string]string)
	for i := range resp.Resources {
		r := &resp.Resources[i]
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil && kind == kmsg.ConfigResourceTypeBroker { // a topic may be gone by now
			return nil, err
		}
		values := make(map[string]string)
		for j := range r.Configs {
			if r.Configs[j].Value != nil {
				values[r.Configs[j].Name] = *r.Configs[j].Value
			}
		}
		settings[r.ResourceName] = values
	}
	return settings, nil
}

// registryOf asks for the registry's members; nil when it is an external one.
func registryOf(ctx context.Context, witness *kgo.Broker, wanted int, brokers map[int32]*brokerStatus) (*registryStatus, error) {
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = meta.ClusterMetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, witness)
	switch {
	case err != nil:
		return nil, fmt.Errorf("describe the registry: %w", err)
	case resp.ErrorCode == kerr.UnsupportedVersion.Code:
		return nil, nil
	case resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return nil, fmt.Errorf("describe the registry: %w", cmp.Or(kerr.ErrorForCode(resp.ErrorCode), errors.New("the broker did not answer for it")))
	}
	p := &resp.Topics[0].Partitions[0]
	r := &registryStatus{Leader: p.LeaderID, Voters: len(p.CurrentVoters), Wanted: wanted}
	for _, voter := range p.CurrentVoters {
		if b := brokers[voter.ReplicaID]; b == nil || b.State != "live" && b.State != "fenced" {
			r.Away = append(r.Away, voter.ReplicaID)
		}
	}
	return r, nil
}

// minInsync asks for min.insync.replicas of the topics that have too few in sync anywhere.
func minInsync(ctx context.Context, witness *kgo.Broker, topics kadm.TopicDetails) (map[string]int, error) {
	var short []string
	for _, topic := range topics.Sorted() {
		lacking := func(p kadm.PartitionDetail) bool { return len(p.ISR) < len(p.Replicas) }
		if slices.ContainsFunc(topic.Partitions.Sorted(), lacking) {
			short = append(short, topic.Topic)
		}
	}
	minISR := make(map[string]int)
	if len(short) == 0 {
		return minISR, nil
	}
	const key = "min.insync.replicas"
	settings, err := settingsOf(ctx, witness, kmsg.ConfigResourceTypeTopic, short, key)
	if err != nil {
		return nil, fmt.Errorf("describe settings: %w", err)
	}
	for _, topic := range short {
		minISR[topic], _ = strconv.Atoi(settings[topic][key]) // the broker has checked it
	}
	return minISR, nil
}

// count goes through the partitions. minISR has the topics that have too few in sync anywhere.
func (s *clusterStatus) count(topics kadm.TopicDetails, minISR map[string]int, brokers map[int32]*brokerStatus) {
	of := func(id int32) *brokerStatus {
		if brokers[id] == nil {
			brokers[id] = &brokerStatus{ID: id, State: "missing"}
		}
		return brokers[id]
	}
	for _, topic := range topics.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			s.Partitions++
			name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			if p.Leader < 0 {
				s.Leaderless = append(s.Leaderless, name)
			} else {
				of(p.Leader).Leads++
			}
			for _, id := range p.Replicas {
				of(id).Replicas++
			}
			for _, id := range p.ISR {
				of(id).InSync++
			}
			if len(p.ISR) < len(p.Replicas) {
				s.UnderReplicated = append(s.UnderReplicated, name)
			}
			if len(p.ISR) < min(minISR[p.Topic], len(p.Replicas)) {
				s.UnderMinISR = append(s.UnderMinISR, name)
			}
		}
	}
}

// faults says what is wrong; empty if nothing is. Replicas that catch up because they are being added are not a fault.
func (s *clusterStatus) faults() string {
	var faults []string
	add := func(n int, one, many string) {
		if n > 0 {
			faults = append(faults, counted(int64(n), one, many))
		}
	}
	away, silent := 0, 0
	for _, b := range s.Brokers {
		switch b.State {
		case "live":
		case "silent":
			silent++
		case "down":
			if b.listed || b.Replicas > 0 { // else it was taken out, and only waits to be unregistered
				away++
			}
		default:
			away++
		}
	}
	lacking := 0
	for _, name := range s.UnderReplicated {
		if !slices.Contains(s.Moving, name) {
			lacking++
		}
	}
	if r := s.Registry; r != nil {
		if r.Leader < 0 {
			faults = append(faults, "the registry has no leader, so nothing can be decided")
		}
		if r.Voters < r.Wanted { // a broker that stops now may take the majority along
			faults = append(faults, fmt.Sprintf("%d of %d members of the registry vote", r.Voters, r.Wanted))
		}
	}
	add(away, "broker is away", "brokers are away")
	add(silent, "broker does not answer", "brokers do not answer")
	add(len(s.Leaderless), "partition has no leader", "partitions have no leader")
	add(len(s.UnderMinISR), "partition takes no acks=all", "partitions take no acks=all")
	add(lacking, "partition lacks replicas in sync", "partitions lack replicas in sync")
	return strings.Join(faults, ", ")
}

func (r *registryStatus) String() string {
	text := fmt.Sprintf("led by broker %d", r.Leader)
	if r.Leader < 0 {
		text = "without a leader"
	}
	text += fmt.Sprintf(", %d of %d members vote", r.Voters, r.Wanted)
	if len(r.Away) > 0 {
		text += fmt.Sprintf(", away: %s", idsText(r.Away))
	}
	return text
}

func (s *clusterStatus) print(io streams) error {
	health := "healthy"
	if !s.Healthy {
		health = "NOT HEALTHY: " + s.faults()
	}
	fmt.Fprintf(io.out, "cluster %s  level %d  %s\n", s.Cluster, s.Level, health)
	rows := [][]string{{"  BROKER", "STATE", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN SYNC"}}
	for _, b := range s.Brokers {
		state := b.State
		if b.ID == s.Controller {
			state += ", controller"
		}
		address := orDash(b.Address)
		if b.State == "down" {
			address = "last at " + address
		}
		rows = append(rows, []string{
			fmt.Sprintf("  %d", b.ID), state, address, orDash(b.Rack), strconv.Itoa(b.Leads), strconv.Itoa(b.Replicas), strconv.Itoa(b.InSync),
		})
	}
	if err := printTable(io.out, rows); err != nil {
		return err
	}
	if r := s.Registry; r != nil {
		fmt.Fprintf(io.out, "registry %s\n", r)
	}
	fmt.Fprintf(io.out, "%s, %s\n", counted(int64(s.Topics), "topic", "topics"), counted(int64(s.Partitions), "partition", "partitions"))
	for _, list := range []struct {
		what string
		of   []string
	}{
		{"without a leader", s.Leaderless}, {"below min.insync.replicas", s.UnderMinISR}, {"under-replicated", s.UnderReplicated}, {"moving", s.Moving},
	} {
		if len(list.of) > 0 {
			fmt.Fprintf(io.out, "  %s: %d (%s)\n", list.what, len(list.of), firstNames(list.of))
		}
	}
	return nil
}

// namedMax bounds how many partitions a line of text names; JSON names all.
const namedMax = 5

func firstNames(names []string) string {
	if len(names) <= namedMax {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:namedMax], ", ") + ", …"
}
