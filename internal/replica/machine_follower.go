package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// FollowerState is what a follower does in the present epoch.
type FollowerState uint8

// The states of a follower.
const (
	// FollowerWaits is a follower that knows no leader, or whose leader knows a newer epoch than it does: it waits for a
	// value.
	FollowerWaits FollowerState = iota
	// FollowerTruncates is a follower whose log is being cut; it fetches nothing until that is done.
	FollowerTruncates
	// FollowerFetches is a follower that fetches from its end.
	FollowerFetches
	// FollowerRefuses is a follower that would have to cut what was committed: it is left as it is, for a person to look at.
	FollowerRefuses
)

// String is the state in lower case.
func (s FollowerState) String() string {
	return [...]string{"waits", "truncates", "fetches", "refuses"}[s]
}

// follower is what a machine knows while it follows.
//
//	state       event                            to          effects
//	any         RoleChanged, another leader      fetches     where to fetch from has changed; a log without lineage is cut at
//	            or epoch                                     the high watermark first (E-28)
//	any         RoleChanged, no leader           waits
//	fetches     Answered, diverging              truncates   cut where the lineages part (KIP-279); another answer may part them
//	                                                         again, each round takes at least one epoch (E-30)
//	fetches     the same, below the high         truncates   only if what goes is older than the last unclean election;
//	            watermark                        or refuses  otherwise nothing is cut (D9)
//	fetches     Answered, out of range           truncates   start over at the leader's start, or cut at its high watermark
//	fetches     Answered, fenced                 waits       a newer value is on its way (E-35)
//	fetches     Answered, another error          fetches     again after a while
//	fetches     Answered, records                fetches     append them, then Followed
//	truncates   Truncated                        fetches     from the new end
//	any         Answered to a request that it    unchanged   ignored (KAFKA-18991): another leader, epoch or offset, or after
//	            would not make any more                      a record of another epoch: the log was cut and is as long again
//
// A follower's high watermark is the leader's, as far as its own log goes, and never taken from an answer that tells it to
// truncate. In a flush partition it fetches only from a synced end: its fetch offset is its acknowledgement.
type follower struct {
	state FollowerState
}

// Position is where a follower fetches from.
type Position struct {
	Leader        meta.BrokerID
	Epoch         meta.Epoch // the leader epoch
	Offset        int64
	HighWatermark int64 // that it knows
	LogStart      int64
}

// Answer is a leader's answer to a follower's fetch.
type Answer struct {
	// What the request said: whom it asked, in which leader epoch, from which offset, after a record of which epoch.
	Leader    meta.BrokerID
	Epoch     meta.Epoch
	Offset    int64
	LastEpoch meta.Epoch

	// Err is nil, ErrFencedEpoch, ErrOffsetOutOfRange, or anything else: then the follower tries again later.
	Err error
	// Diverging says that the follower's log parts from the leader's: the end of the leader's highest epoch that is not
	// above the follower's last one.
	Diverging *EpochEnd
	// HighWatermark and LogStart are the leader's; also with ErrOffsetOutOfRange.
	HighWatermark, LogStart int64
	Records                 bool // there are some
}

type follows struct {
	before *meta.Partition
	role   Role
	first  bool
}

// follow begins to follow, or goes on.
func (m *Machine) follow(log LogState, e *Effects, was follows) {
	m.role = RoleFollower
	if !m.lacks(KeepProgress) {
		m.leader = leader{}
	}
	if was.role == RoleLeader {
		e.Fail = ErrNotLeader
	}
	newTerm := was.first || m.value.LeaderEpoch != was.before.LeaderEpoch || m.value.Leader != was.before.Leader || was.role != RoleFollower
	e.Wake = was.role == RoleLeader || newTerm
	if !newTerm {
		return // the fetches in flight are as good as before
	}
	e.Follow = true
	last, known := log.Epochs.Latest()
	switch {
	case m.value.Leader == meta.NoBroker:
		m.follower.state = FollowerWaits
	case m.lacks(TruncateToHigh) && m.written > m.high:
		m.truncate(m.high, "a mutant cuts at the high watermark", e)
	case !known && m.written > m.high:
		m.truncate(m.high, "nothing is known of the epochs above its high watermark", e)
	case known && last.Start >= m.written:
		m.truncate(m.written, "", e) // an epoch that wrote nothing is not the leader's
	default:
		m.follower.state = FollowerFetches
		e.Sync = m.value.Flush && m.synced < m.written
	}
}

func (m *Machine) truncate(to int64, why string, e *Effects) {
	if to < m.written {
		e.note(time.Time{}, meta.EventTruncate, m.self, "broker %d cut its log at %d, from %d, to follow broker %d in epoch %d: %s",
			m.self, to, m.written, m.value.Leader, m.value.LeaderEpoch, why)
	}
	m.follower.state = FollowerTruncates
	e.Truncate, e.TruncateTo = true, to
}

// FetchFrom tells where to fetch from; false while there is nothing to fetch, or it must not be asked for yet.
func (m *Machine) FetchFrom() (Position, bool) {
	if m.role != RoleFollower || m.follower.state != FollowerFetches || m.value.Leader == meta.NoBroker {
		return Position{}, false
	}
	if m.value.Flush && m.synced < m.written && !m.lacks(CountWritten) {
		return Position{}, false
	}
	return Position{m.value.Leader, m.value.LeaderEpoch, m.written, m.high, m.start}, true
}

// Answered takes a leader's answer; epochs is the lineage of the log.
func (m *Machine) Answered(a Answer, epochs commitlog.Epochs) Effects {
	if m.role != RoleFollower || m.follower.state != FollowerFetches {
		return Effects{Ignored: true}
	}
	present := a.Leader == m.value.Leader && a.Epoch == m.value.LeaderEpoch && a.Offset == m.written && a.LastEpoch == epochs.LatestEpoch()
	if !present && !m.lacks(AnyAnswer) {
		return Effects{Ignored: true}
	}
	var e Effects
	switch {
	case errors.Is(a.Err, ErrFencedEpoch):
		m.follower.state = FollowerWaits
		e.Follow = true
	case errors.Is(a.Err, ErrOffsetOutOfRange):
		m.outOfRange(a, epochs, &e)
	case a.Err != nil:
		e.Backoff = true
	case a.Diverging != nil:
		m.diverge(a, epochs, &e)
	case a.Records:
		e.Append = true
	default:
		e = m.Followed(a)
	}
	m.check()
	return e
}

// diverge cuts the log where it parts from the leader's (E-29, E-44).
func (m *Machine) diverge(a Answer, epochs commitlog.Epochs, e *Effects) {
	if m.lacks(RaiseWhenDiverging) {
		m.high = max(m.high, min(a.HighWatermark, m.written))
	}
	to, _ := epochs.Diverge(a.Diverging.Epoch, a.Diverging.End, m.written, m.high)
	if m.lacks(TruncateOneRound) {
		to = min(a.Diverging.End, m.written)
	}
	m.cut(to, fmt.Sprintf("in the leader's log epoch %d ends at %d", a.Diverging.Epoch, a.Diverging.End), epochs, e)
}

// outOfRange follows a leader whose log does not reach this one (E-47).
func (m *Machine) outOfRange(a Answer, epochs commitlog.Epochs, e *Effects) {
	switch {
	case a.LogStart > m.written:
		m.follower.state = FollowerTruncates
		e.StartOver, e.StartAt = true, a.LogStart
		e.note(time.Time{}, meta.EventTruncate, m.self, "broker %d emptied its log, which ended at %d: the leader's starts at %d", m.self, m.written, a.LogStart)
	case a.HighWatermark >= 0 && a.HighWatermark < m.written:
		m.cut(max(a.HighWatermark, m.start), fmt.Sprintf("the leader's log ends before it; its high watermark is %d", a.HighWatermark), epochs, e)
	default:
		e.Backoff = true
	}
}

// cut truncates the log, unless what was committed would go that no unclean election has given up (D9).
func (m *Machine) cut(to int64, why string, epochs commitlog.Epochs, e *Effects) {
	last, known := epochs.Latest()
	if to >= m.written && (!known || last.Start < m.written) {
		e.Backoff = true // an answer that changes nothing would come again
		return
	}
	to = max(to, m.start)
	if to < m.high {
		epoch, _ := epochs.At(m.high - 1)
		if epoch >= m.value.UncleanEpoch && !m.lacks(CutCommitted) {
			m.follower.state = FollowerRefuses
			e.Follow = true
			e.RefuseFollow = fmt.Sprintf("the leader's log ends at %d where this one was committed up to %d in epoch %d, and no unclean election since has given that up",
				to, m.high, epoch)
			e.note(time.Time{}, meta.EventNotFollowing, m.self, "broker %d does not follow broker %d in epoch %d: %s", m.self, m.value.Leader, m.value.LeaderEpoch, e.RefuseFollow)
			return
		}
		e.Lost = m.high - to
	}
	m.truncate(to, why, e)
}

// Truncated tells what is left of the log.
func (m *Machine) Truncated(log LogState) Effects {
	m.start, m.written, m.synced = log.Start, log.Written, min(log.Synced, log.Written)
	m.high = max(min(m.high, m.written), m.start)
	var e Effects
	if m.role == RoleFollower && m.follower.state == FollowerTruncates {
		m.follower.state = FollowerFetches
		e.Follow = true
		e.Sync = m.value.Flush && m.synced < m.written
	}
	m.check()
	return e
}

// Followed tells that the records of an answer are in the log: the leader's high watermark and start count here too, as
// far as this log goes.
func (m *Machine) Followed(a Answer) Effects {
	var e Effects
	if m.role != RoleFollower {
		return Effects{Ignored: true}
	}
	if high := min(a.HighWatermark, m.written); high > m.high {
		m.high = high
		e.Advanced, e.HighWatermark = true, high
	}
	if start := min(a.LogStart, m.high); start > m.start {
		e.RaiseStart, e.NewStart = true, start
	}
	return e
}

// Follower is what a follower does in the present epoch.
func (m *Machine) Follower() FollowerState { return m.follower.state }
