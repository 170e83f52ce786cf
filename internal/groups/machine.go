package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// Machine coordinates the groups of one partition of __consumer_offsets. It is a [coordinator.Machine].
//
// # What is durable
//
// Committed offsets, and for each group its last complete generation: its members, what they subscribe to and what they
// were assigned. Everything else (who has joined, who is expected, deadlines) is lost with the machine, and clients
// bring it back by joining again.
//
// # States of a group
//
//	state                 members   enters when                                   leaves when
//	Empty                 none      created; the last member has gone             somebody joins; it is deleted
//	PreparingRebalance    some      somebody joins, leaves, fails or changes      all known members have joined, or the
//	                                                                              longest rebalance timeout is over
//	CompletingRebalance   some      a generation begins: members have the answer  the leader's assignment is committed;
//	                                to their join                                 or a new rebalance begins
//	Stable                some      the assignment is committed                   a new rebalance begins
//	Dead                  none      its deletion is being written                 written: gone; refused: Empty
//
// # Invariants
//
//   - A generation number is used once, and never falls while the group exists.
//   - Nobody waits for ever: each parked join belongs to a member with a deadline in a group with a join deadline, each
//     parked sync to one with a sync deadline; whoever is removed is answered (U-117).
//   - A member hears of an assignment or of a committed offset when the record is committed, not before, so what was
//     acknowledged survives the coordinator.
//   - What readers see of offsets is what is committed. A deletion also covers the offsets that are being written, so
//     that nothing comes back after a restart (U-116).
//   - A deadline that has passed is taken out or moved by Wake.
type Machine struct {
	config Config

	groups map[string]*group
	timers timers
	expire timer // the next look for expired offsets

	writes    map[coordinator.WriteID]write
	lastWrite coordinator.WriteID

	// Of the event that is being handled.
	now time.Time
	out coordinator.Effects
}

// Config is what decides besides the events. Zero durations and sizes are meant: use DefaultConfig.
type Config struct {
	// SessionTimeoutMin and SessionTimeoutMax bound what members may ask for (group.min.session.timeout.ms,
	// group.max.session.timeout.ms).
	SessionTimeoutMin, SessionTimeoutMax time.Duration
	// InitialRebalanceDelay is how long the first rebalance of an empty group waits for more members
	// (group.initial.rebalance.delay.ms).
	InitialRebalanceDelay time.Duration
	// SizeMax is the number of members of one group (group.max.size).
	SizeMax int
	// MetadataBytesMax is the longest text that may come with an offset (offset.metadata.max.bytes).
	MetadataBytesMax int
	// OffsetsRetention is how long offsets without a consumer are kept (offsets.retention.minutes), and
	// OffsetsRetentionCheck the time between two looks (offsets.retention.check.interval.ms).
	OffsetsRetention, OffsetsRetentionCheck time.Duration
}

// DefaultConfig is Apache Kafka's, for a broker that is not alone.
func DefaultConfig() Config {
	return Config{
		SessionTimeoutMin: 6 * time.Second, SessionTimeoutMax: 30 * time.Minute, InitialRebalanceDelay: 3 * time.Second,
		SizeMax: 1<<31 - 1, MetadataBytesMax: 4096, OffsetsRetention: 7 * 24 * time.Hour, OffsetsRetentionCheck: 10 * time.Minute,
	}
}

// newMemberTimeout is how long a member that cannot send heartbeats yet may wait for its first join to be answered.
const newMemberTimeout = 5 * time.Minute

// NewMachine is a machine that has seen no record.
func NewMachine(config Config) *Machine {
	return &Machine{config: config, groups: make(map[string]*group), writes: make(map[coordinator.WriteID]write)}
}

// write is what to do once records are committed.
type write struct {
	kind  writeKind
	group *group

	call     coordinator.Call // who is answered, with response
	response kmsg.Response
	changes  []change // to offsets

	generation int32             // of an assignment
	assignment map[string][]byte // by member id

	replaced *replacement // of a static member
}

type writeKind uint8

const (
	offsetsWrite    writeKind = iota // offsets are committed or deleted
	assignmentWrite                  // the leader's assignment
	emptyWrite                       // the group has lost its last member
	staticWrite                      // a static member has a new id
	deletionWrite                    // the group and its offsets go
)

// Loaded implements coordinator.Machine: members that were loaded have one session to come back.
func (m *Machine) Loaded(now time.Time) coordinator.Effects {
	m.begin(now)
	for _, g := range m.groups {
		for _, member := range g.members {
			m.beat(member)
		}
		if len(g.members) > m.config.SizeMax {
			m.prepareRebalance(g)
		}
	}
	m.expire = timer{kind: expireTimer}
	m.timers.set(&m.expire, now.Add(m.config.OffsetsRetentionCheck))
	return m.end()
}

// Deadline implements coordinator.Machine.
func (m *Machine) Deadline() (time.Time, bool) { return m.timers.next() }

// Wake implements coordinator.Machine.
func (m *Machine) Wake(now time.Time) coordinator.Effects {
	m.begin(now)
	for {
		t := m.timers.pop(now)
		if t == nil {
			return m.end()
		}
		switch t.kind {
		case sessionTimer:
			m.sessionExpired(t.member)
		case pendingTimer:
			m.pendingExpired(t.group, t.id)
		case joinTimer:
			m.joinExpired(t.group)
		case syncTimer:
			m.syncExpired(t.group)
		case expireTimer:
			m.expireOffsets()
		}
	}
}

// Written implements coordinator.Machine.
func (m *Machine) Written(id coordinator.WriteID, err error, now time.Time) coordinator.Effects {
	m.begin(now)
	w, known := m.writes[id]
	delete(m.writes, id)
	if !known {
		return m.end()
	}
	code := codeOf(err)
	switch w.kind {
	case offsetsWrite:
		m.offsetsWritten(&w, code)
	case assignmentWrite:
		m.assignmentWritten(&w, code)
	case emptyWrite: // nobody waits for it, and an older generation in the log has no live members
	case staticWrite:
		m.staticWritten(&w, code)
	case deletionWrite:
		m.deletionWritten(&w, code)
	}
	return m.end()
}

func (m *Machine) begin(now time.Time) {
	m.now, m.out = now, coordinator.Effects{}
}

func (m *Machine) end() coordinator.Effects {
	out := m.out
	m.out = coordinator.Effects{}
	return out
}

// reply answers a call.
func (m *Machine) reply(call coordinator.Call, response any) {
	if call != coordinator.NoCall {
		m.out.Replies = append(m.out.Replies, coordinator.Reply{Call: call, Value: response})
	}
}

// write asks for records to be appended, and remembers what to do then.
func (m *Machine) write(w write, records []coordinator.Record) {
	m.lastWrite++
	m.writes[m.lastWrite] = w
	m.out.Writes = append(m.out.Writes, coordinator.Write{ID: m.lastWrite, Records: records})
}

// group finds or makes the group of a name.
func (m *Machine) group(name string) *group {
	g := m.groups[name]
	if g == nil {
		g = newGroup(name)
		g.since = m.now
		m.groups[name] = g
	}
	return g
}

// millis is a time as the protocol has it.
func millis(t time.Time) int64 { return t.UnixMilli() }

// duration is a time span of the protocol.
func duration(millis int32) time.Duration { return time.Duration(millis) * time.Millisecond }
