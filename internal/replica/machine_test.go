package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestMachine runs the scripts of testdata/machine. A script drives one machine of broker 1 and prints every effect and,
// after each event, the state. Followers may lag for 30 s.
//
//	role epoch=E version=V [leader=L] [replicas=(..)] [isr=(..)] [elr=(..)] [last=(..)] [min=N] [unclean=E] [recovery] [flush] [flushed] — a partition
//	     value; the log's state is what earlier events made it, or log=(start,written,synced,epoch,start,...); checkpoint=HW
//	appended|synced|start N, closed
//	append acks=A [epoch=E], fetch epoch=E: what a request is told
//	fetched broker=B life=L offset=N [epoch=E] [stale] [start=N]: a follower's fetch, by default in the present epoch
//	brokers (B,LIFE,...): who is live; clock S: the time in seconds, with a tick; stalled
//	change version=V refused|unknown; read version=V
//	journal: what the events since the last one have for the journal, and how a leader sees the other replicas
//	position
//	answer offset=N [last=E] [epoch=E] [leader=L] [hw=N] [start=N] [records] [diverging=(epoch,end)] [err=fenced|range|other]
//	truncated start end epoch start epoch start...; followed hw=N start=N
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		s := &script{m: NewMachine(1, 30*time.Second), now: time.Unix(0, 0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "append":
				var acks, epoch int
				epoch = -1
				d.ScanArgs(t, "acks", &acks)
				d.MaybeScanArgs(t, "epoch", &epoch)
				return answer(s.m.CheckAppend(meta.Epoch(epoch), int16(acks)))
			case "fetch":
				var epoch int
				d.ScanArgs(t, "epoch", &epoch)
				return answer(s.m.CheckLeader(meta.Epoch(epoch)))
			case "position":
				p, ok := s.m.FetchFrom()
				return fmt.Sprintf("%+v %t\n", p, ok)
			case "journal":
				return s.told()
			}
			e := s.event(t, d)
			s.journal = append(s.journal, e.Journal...)
			return fmt.Sprintf("%s\n-- %s\n", e, state(&s.m))
		})
	})
}

// script is a machine under a script.
type script struct {
	m      Machine
	now    time.Time
	epochs commitlog.Epochs

	journal []meta.Event
}

// told is the journal since it was last asked for, and the standings.
func (s *script) told() string {
	var out strings.Builder
	for _, e := range s.journal {
		fmt.Fprintf(&out, "%s: %s\n", e.Kind, e.Why)
	}
	s.journal = nil
	for _, o := range s.m.Standings(s.now) {
		fmt.Fprintf(&out, "-- broker %d in-sync=%t end=%d %s\n", o.Broker, o.InSync, o.End, o.Why)
	}
	return out.String()
}

func (s *script) event(t *testing.T, d *datadriven.TestData) Effects {
	var n int64
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		fmt.Sscan(d.CmdArgs[0].Key, &n)
	}
	switch d.Cmd {
	case "role":
		return s.role(t, d)
	case "appended":
		return s.m.Appended(n)
	case "synced":
		return s.m.Synced(n)
	case "start":
		return s.m.StartRaised(n)
	case "closed":
		return s.m.Closed(errors.New("the broker stops"))
	case "fetched":
		f := FollowerFetch{Current: !d.HasArg("stale"), Epoch: s.m.Epoch(), LeaderEnd: s.m.written}
		f.Broker, f.BrokerEpoch = meta.BrokerID(number(t, d, "broker", 0)), number(t, d, "life", 0)
		f.Epoch, f.Offset = meta.Epoch(number(t, d, "epoch", int64(f.Epoch))), number(t, d, "offset", 0)
		f.LogStart = number(t, d, "start", 0)
		return s.m.FollowerFetched(f, s.now)
	case "brokers":
		live := map[meta.BrokerID]int64{}
		for i := 0; i+1 < len(d.CmdArgs[0].Vals); i += 2 {
			var id, life int64
			d.CmdArgs[0].Scan(t, i, &id)
			d.CmdArgs[0].Scan(t, i+1, &life)
			live[meta.BrokerID(id)] = life
		}
		return s.m.BrokersChanged(func(id meta.BrokerID) int64 { return live[id] })
	case "clock":
		s.now = time.Unix(n, 0)
		return s.m.Tick(s.now)
	case "stalled":
		s.m.Stalled(s.now)
		return Effects{}
	case "change":
		outcome := OutcomeUnknown
		if d.HasArg("refused") {
			outcome = OutcomeRefused
		}
		return s.m.ChangeDone(number(t, d, "version", 0), outcome, s.now)
	case "read":
		return s.m.ValueRead(number(t, d, "version", 0))
	case "answer":
		return s.answer(t, d)
	case "truncated":
		var numbers []int64
		for _, arg := range d.CmdArgs {
			var n int64
			fmt.Sscan(arg.Key, &n)
			numbers = append(numbers, n)
		}
		s.epochs = lineage(numbers[2:])
		return s.m.Truncated(LogState{Start: numbers[0], Written: numbers[1], Synced: numbers[1], Epochs: s.epochs})
	case "followed":
		return s.m.Followed(Answer{HighWatermark: number(t, d, "hw", 0), LogStart: number(t, d, "start", 0)})
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return Effects{}
}

func (s *script) answer(t *testing.T, d *datadriven.TestData) Effects {
	value := s.m.Value()
	a := Answer{
		Leader: meta.BrokerID(number(t, d, "leader", int64(value.Leader))), Epoch: meta.Epoch(number(t, d, "epoch", int64(value.LeaderEpoch))),
		Offset: number(t, d, "offset", 0), HighWatermark: number(t, d, "hw", 0), LogStart: number(t, d, "start", 0), Records: d.HasArg("records"),
		LastEpoch: meta.Epoch(number(t, d, "last", int64(s.epochs.LatestEpoch()))),
	}
	var kind string
	d.MaybeScanArgs(t, "err", &kind)
	a.Err = map[string]error{"": nil, "fenced": ErrFencedEpoch, "range": ErrOffsetOutOfRange, "other": ErrNotLeader}[kind]
	for _, arg := range d.CmdArgs {
		if arg.Key == "diverging" {
			var epoch, end int64
			arg.Scan(t, 0, &epoch)
			arg.Scan(t, 1, &end)
			a.Diverging = &EpochEnd{meta.Epoch(epoch), end}
		}
	}
	return s.m.Answered(a, s.epochs)
}

// number is an argument of a command, or what it is without one.
func number(t *testing.T, d *datadriven.TestData, key string, otherwise int64) int64 {
	n := otherwise
	d.MaybeScanArgs(t, key, &n)
	return n
}

func lineage(numbers []int64) commitlog.Epochs {
	var epochs commitlog.Epochs
	for i := 0; i+1 < len(numbers); i += 2 {
		epochs = append(epochs, commitlog.EpochEntry{Epoch: meta.Epoch(numbers[i]), Start: numbers[i+1]})
	}
	return epochs
}

func answer(err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}

func state(m *Machine) string {
	s := fmt.Sprintf("%s epoch=%d isr=%v hw=%d log=[%d,%d) synced=%d", m.role, m.value.LeaderEpoch, m.value.ISR, m.high, m.start, m.written, m.synced)
	switch m.role {
	case RoleLeader:
		s += fmt.Sprintf(" epoch-start=%d latest-known=%v", m.leader.epochStart, m.LatestKnown())
		for _, p := range m.leader.others {
			s += fmt.Sprintf(" %d:%d", p.broker, p.end)
			if p.unproven {
				s += "?"
			}
			if p.holds {
				s += "+"
			}
		}
	case RoleFollower:
		s += " " + m.Follower().String()
	}
	return s
}

func (s *script) role(t *testing.T, d *datadriven.TestData) Effects {
	m := &s.m
	value := meta.Partition{Leader: 1, MinISR: 1, Replicas: []meta.BrokerID{1}, ISR: []meta.BrokerID{1}}
	var checkpoint int64
	log := LogState{Start: m.start, Written: m.written, Synced: m.synced, Epochs: s.epochs}
	for _, arg := range d.CmdArgs {
		var ids []meta.BrokerID
		var numbers []int64
		var n int64
		for i := range arg.Vals {
			arg.Scan(t, i, &n)
			ids, numbers = append(ids, meta.BrokerID(n)), append(numbers, n)
		}
		switch arg.Key {
		case "epoch":
			value.LeaderEpoch = meta.Epoch(n)
		case "version":
			value.Version = n
		case "leader":
			value.Leader = meta.BrokerID(n)
		case "min":
			value.MinISR = int32(n)
		case "replicas":
			value.Replicas = ids
		case "isr":
			value.ISR = ids
		case "elr":
			value.ELR = ids
		case "last":
			value.LastKnownISR = ids
		case "recovery":
			value.Recovery = 1
		case "unclean":
			value.UncleanEpoch = meta.Epoch(n)
		case "flush":
			value.Flush = true
		case "flushed":
			value.Flushed = true
		case "checkpoint":
			checkpoint = n
		case "log":
			log = LogState{Start: numbers[0], Written: numbers[1], Synced: numbers[2], Epochs: lineage(numbers[3:])}
			if len(numbers) == 4 {
				log.Epochs = lineage([]int64{numbers[3], numbers[0]})
			}
		default:
			d.Fatalf(t, "unknown argument %s", arg.Key)
		}
	}
	e := m.RoleChanged(value, log, checkpoint, s.now)
	s.epochs = log.Epochs
	if e.AssignEpoch {
		s.epochs, _, _ = s.epochs.Assign(e.Epoch, e.EpochStart)
	}
	return e
}

// TestNothingHasAName keeps the empty effects readable in scripts.
func TestNothingHasAName(t *testing.T) {
	if got := (Effects{}).String(); !strings.Contains(got, "nothing") {
		t.Fatalf("empty effects print as %q", got)
	}
}
