package meta

import "slices"

// Partition is the whole registry value of one partition (D4), under /topics/<id>/p/<n>. Whoever changes it writes all
// of it by compare-and-set on Version. A Partition in an [Image] is shared: read its slices, never write them.
type Partition struct {
	Replicas []BrokerID `json:"replicas"` // the assignment; the first is the preferred leader
	Adding   []BrokerID `json:"adding,omitempty"`
	Removing []BrokerID `json:"removing,omitempty"`

	Leader      BrokerID `json:"leader"` // NoBroker when none could be elected
	LeaderEpoch Epoch    `json:"leader_epoch"`

	ISR          []BrokerID `json:"isr"`
	ELR          []BrokerID `json:"elr,omitempty"`            // KIP-966: eligible although out of the ISR
	LastKnownISR []BrokerID `json:"last_known_isr,omitempty"` // removed since a leader last served with |ISR| >= MinISR (D9)

	MinISR   int32 `json:"min_isr"`            // the topic's min.insync.replicas when this value was written
	Recovery int8  `json:"recovery,omitempty"` // 1 while a leader elected uncleanly recovers, else 0

	// UncleanEpoch is the leader epoch that the last election began whose winner may lack committed records: of what others
	// hold below the high watermark, they may truncate what older epochs wrote, and nothing else (D9). 0: there was none.
	UncleanEpoch Epoch `json:"unclean_epoch,omitempty"`

	Flush   bool `json:"flush,omitempty"`   // acknowledgements wait for fsync (log.flush.acks)
	Flushed bool `json:"flushed,omitempty"` // and every eligible member has acknowledged a synced end in this epoch

	Dirs []DirectoryID `json:"dirs,omitempty"` // Dirs[i] holds the copy of Replicas[i]

	// Version is the key's version in the registry: 1 when created, one more with every write. It is not part of the
	// value. Zero marks a partition that this Image has not been told of.
	Version int64 `json:"-"`
}

// Known tells whether p states a partition that exists, rather than a gap in [Topic.Partitions].
func (p *Partition) Known() bool { return p.Version > 0 }

// Newer tells whether p was written after q: the order of two values of one partition is (leader epoch, version) (D8).
func (p *Partition) Newer(q *Partition) bool {
	if p.LeaderEpoch != q.LeaderEpoch {
		return p.LeaderEpoch > q.LeaderEpoch
	}
	return p.Version > q.Version
}

// HasReplica tells whether the broker is assigned a copy.
func (p *Partition) HasReplica(id BrokerID) bool { return slices.Contains(p.Replicas, id) }

// InSync tells whether the broker is a member of the ISR.
func (p *Partition) InSync(id BrokerID) bool { return slices.Contains(p.ISR, id) }

// MinISRBound is the number of in-sync replicas that acks=all demands: MinISR, at most the number of replicas (D8), at
// least 1.
func (p *Partition) MinISRBound() int {
	return max(1, min(int(p.MinISR), len(p.Replicas)))
}

// ChangeISR sets the ISR and recomputes what follows from it, in the one way that every writer of the ISR does (D8,
// KIP-966): while fewer are in sync than acks=all demands, the high watermark rests, so whoever leaves the ISR still
// holds everything committed and stays eligible. The slice is kept.
func (p *Partition) ChangeISR(isr []BrokerID) {
	old := p.ISR
	p.ISR = isr
	p.SettleISR(old)
}

// SettleISR recomputes ELR and LastKnownISR after members of old have left the ISR, or others have entered it.
func (p *Partition) SettleISR(old []BrokerID) {
	if len(p.ISR) >= p.MinISRBound() {
		p.ELR, p.LastKnownISR = nil, nil
		return
	}
	elr := slices.Clone(p.ELR)
	for _, id := range old {
		if !slices.Contains(elr, id) {
			elr = append(elr, id)
		}
	}
	p.ELR = slices.DeleteFunc(elr, func(id BrokerID) bool { return p.InSync(id) || !p.HasReplica(id) })
}

// WaitsForLongest tells whether nobody is known to have everything that was committed: every copy that mattered may have
// lost something, and the longest of them leads once all have told where they end (D9).
func (p *Partition) WaitsForLongest() bool {
	return p.Leader == NoBroker && len(p.ISR) == 0 && len(p.ELR) == 0 && len(p.LastKnownISR) > 0
}

// Clone is a copy that shares nothing with p.
func (p *Partition) Clone() Partition {
	c := *p
	c.Replicas, c.Adding, c.Removing = slices.Clone(p.Replicas), slices.Clone(p.Adding), slices.Clone(p.Removing)
	c.ISR, c.ELR, c.LastKnownISR = slices.Clone(p.ISR), slices.Clone(p.ELR), slices.Clone(p.LastKnownISR)
	c.Dirs = slices.Clone(p.Dirs)
	return c
}

// unknownPartition fills the gaps of a topic whose partitions were not all stated yet.
var unknownPartition = Partition{Leader: NoBroker, LeaderEpoch: NoEpoch}

// Topic is one life of a topic. Topics in an [Image] are shared and never change.
type Topic struct {
	Name           string
	ID             TopicID
	Partitions     []Partition // Partitions[i] is partition i; gaps are not Known
	ConfigRevision int64       // registry revision that last changed the topic's configuration, 0 when it has none
}

// Internal tells whether clients see the topic marked as internal.
func (t *Topic) Internal() bool { return IsInternalTopic(t.Name) }

// Partition is the state of partition n, or nil when the topic has no such partition or it was not stated yet.
func (t *Topic) Partition(n int32) *Partition {
	if n < 0 || int(n) >= len(t.Partitions) || !t.Partitions[n].Known() {
		return nil
	}
	return &t.Partitions[n]
}

// Endpoint is one address that a broker advertises.
type Endpoint struct {
	Listener string `json:"listener"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"` // Kafka's name of the security protocol, such as PLAINTEXT
}

// Broker is one registered broker (D6).
type Broker struct {
	ID           BrokerID
	Registration int64 // create revision of its registration: this incarnation; 0 of a fenced broker: it is down
	Epoch        int64 // the broker epoch: create revision of its live key, the last one while fenced, 0 when never unfenced
	Endpoints    []Endpoint
	Rack         string
	Directories  []DirectoryID
	Fenced       bool // leads nothing and joins no ISR
}

// Down tells whether the broker is not registered: it was once, and Endpoints and Rack are what it said then.
func (b *Broker) Down() bool { return b.Fenced && b.Registration == 0 }

// Endpoint finds the address for a listener by its name; the second result is false when the broker has none.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	i := slices.IndexFunc(b.Endpoints, func(e Endpoint) bool { return e.Listener == listener })
	if i < 0 {
		return Endpoint{}, false
	}
	return b.Endpoints[i], true
}
