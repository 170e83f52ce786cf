package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// TestScenarios runs the scripts of testdata/scenarios: known ways to lose records, told step by step, on a network where
// every message takes a millisecond. Each command prints what happened, and every invariant is checked after every event.
//
//	world brokers=N [replicas=N] [min=N] [flush] [unclean] [controllers=N]: all up, broker 1 leads, all replicas in sync. With
//	     unclean the topic allows unclean elections. Controllers have machines of their own, 101 and up, or one is beside the
//	     registry and reaches it at once
//	run MS, until broker=B end=N|high=N
//	produce broker=B n=N acks=all|1
//	sync broker=B [end=N]: the kernel writes back
//	cut FROM TO (0 is the registry), heal [FROM TO]; changes-late MS: so late are changes that leaders want written;
//	disks-slow MS: so long takes a group commit
//	kill B..., power-cut B..., start B..., pause B MS
//	controller off|on; elect leader=B isr=(..) [unclean|wrongly]: by hand, wrongly one that no controller would have made, after
//	     which it does not count what the leader lacks; elect-uncleanly: an administrator's election
//	pause-controller N MS; unseat: another controller may take the seat, and the present one does not know
//	statements-late MS: so late are statements from here on; min N: min.insync.replicas
//	delete, create replicas=N: the topic; read broker=B from=N: what a consumer is shown
//	reassign B...: the replicas that are wanted
//	show: roles, high watermarks and logs, as epoch:record
//	diverge leader=(E,START,...,END) follower=(E,START,...,END): where the follower's log is cut, round by round
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, s.tell)
	})
}

// tell runs a command and tells what happened.
func (s *scenario) tell(t *testing.T, d *datadriven.TestData) string {
	out := s.command(t, d)
	if s.world == nil {
		return out
	}
	for _, line := range s.world.trace {
		out += strings.TrimRight(line, " ") + "\n"
	}
	s.world.trace = nil
	if err := s.world.failure; err != nil {
		out += "BROKEN: " + err.Error() + "\n"
	}
	return out
}

type scenario struct {
	world  *World
	mutant replica.Mutant
}

func (s *scenario) command(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "world":
		o := Options{Steady: true, Brokers: 3, MinISR: 1, Flush: d.HasArg("flush"), Mutant: s.mutant}
		d.MaybeScanArgs(t, "brokers", &o.Brokers)
		d.MaybeScanArgs(t, "replicas", &o.Replicas)
		d.MaybeScanArgs(t, "min", &o.MinISR)
		d.MaybeScanArgs(t, "controllers", &o.Controllers)
		o.Unclean = d.HasArg("unclean")
		s.world = New(o)
		_ = s.world.Run(120 * time.Millisecond)
		s.world.trace = nil
	case "run":
		_ = s.world.Run(time.Duration(argument(t, d, 0)) * time.Millisecond)
	case "until":
		return s.until(t, d)
	case "produce":
		var acks string
		var n, id int
		d.ScanArgs(t, "broker", &id)
		d.ScanArgs(t, "n", &n)
		d.ScanArgs(t, "acks", &acks)
		kind := replica.AcksLeader
		if acks == "all" {
			kind = replica.AcksAll
		}
		if err := s.world.brokers[id-1].produce(n, kind); err != nil {
			return err.Error() + "\n"
		}
	case "sync":
		var id int
		d.ScanArgs(t, "broker", &id)
		b := s.world.brokers[id-1]
		end := len(b.disk.log)
		d.MaybeScanArgs(t, "end", &end)
		b.sync(end)
	case "cut":
		s.world.down[link{meta.BrokerID(argument(t, d, 0)), meta.BrokerID(argument(t, d, 1))}] = true
	case "heal":
		if len(d.CmdArgs) == 0 {
			s.world.heal()
		} else {
			delete(s.world.down, link{meta.BrokerID(argument(t, d, 0)), meta.BrokerID(argument(t, d, 1))})
		}
	case "disks-slow":
		s.world.syncsLate = time.Duration(argument(t, d, 0)) * time.Millisecond
	case "changes-late":
		s.world.changesLate = time.Duration(argument(t, d, 0)) * time.Millisecond
	case "kill", "power-cut", "start":
		for i := range d.CmdArgs {
			switch b := s.world.brokers[argument(t, d, i)-1]; d.Cmd {
			case "start":
				b.start()
			default:
				b.kill(d.Cmd == "power-cut")
			}
		}
	case "pause":
		s.world.brokers[argument(t, d, 0)-1].paused = s.world.now + time.Duration(argument(t, d, 1))*time.Millisecond
	case "controller":
		s.world.manual = d.CmdArgs[0].Key == "off"
	case "elect":
		return s.elect(t, d)
	default:
		return s.administer(t, d)
	}
	return ""
}

// administer does what is done to controllers and topics, and what only looks.
func (s *scenario) administer(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "elect-uncleanly":
		if !s.world.electUncleanly() {
			return "somebody eligible is there, or nobody at all\n"
		}
	case "pause-controller":
		s.world.controls[argument(t, d, 0)-1].paused = s.world.now + time.Duration(argument(t, d, 1))*time.Millisecond
	case "unseat":
		s.world.registry.vacate()
	case "statements-late":
		s.world.statementsLate = time.Duration(argument(t, d, 0)) * time.Millisecond
	case "min":
		s.world.registry.minISR = argument(t, d, 0)
		s.world.registry.next()
	case "delete":
		s.world.registry.remove()
	case "create":
		var replicas int
		d.ScanArgs(t, "replicas", &replicas)
		s.world.registry.create(replicas)
	case "read":
		return s.read(t, d)
	case "reassign":
		return s.reassign(t, d)
	case "show":
		return s.show()
	case "diverge":
		return diverge(numbersOf(t, d, "leader"), numbersOf(t, d, "follower"))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

// read shows what a consumer would be shown.
func (s *scenario) read(t *testing.T, d *datadriven.TestData) string {
	var id, from int
	d.ScanArgs(t, "broker", &id)
	d.ScanArgs(t, "from", &from)
	w := s.world
	before := len(w.unread)
	w.show(w.brokers[id-1], int64(from))
	var out strings.Builder
	for _, r := range w.unread[before:] {
		fmt.Fprintf(&out, "%d: m%d\n", r.offset, r.record.value)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func (s *scenario) until(t *testing.T, d *datadriven.TestData) string {
	var id int
	d.ScanArgs(t, "broker", &id)
	end, high := -1, -1
	d.MaybeScanArgs(t, "end", &end)
	d.MaybeScanArgs(t, "high", &high)
	b := s.world.brokers[id-1]
	for range 100_000 {
		if len(b.disk.log) == end || int(b.machine.HighWatermark()) == high {
			return ""
		}
		if s.world.Steps(1) != nil {
			return ""
		}
	}
	return "never happened\n"
}

// elect writes a value as an operator or a controller without Plan would.
func (s *scenario) elect(t *testing.T, d *datadriven.TestData) string {
	w := s.world
	var leader int
	d.ScanArgs(t, "leader", &leader)
	next := w.registry.value.Clone()
	next.Leader, next.ISR = meta.BrokerID(leader), nil
	for _, id := range numbersOf(t, d, "isr") {
		next.ISR = append(next.ISR, meta.BrokerID(id))
	}
	next.LeaderEpoch++
	next.SettleISR(nil)
	if d.HasArg("wrongly") {
		w.invariants = slices.DeleteFunc(w.invariants, func(i Invariant) bool {
			return name(i) == "TrueHighWatermark" || name(i) == "AckedDurable"
		})
	}
	if !d.HasArg("unclean") {
		w.registry.put(next, "by hand")
		return ""
	}
	next.UncleanEpoch = next.LeaderEpoch
	next.ELR, next.LastKnownISR = nil, nil
	w.registry.put(next, "by hand, unclean")
	w.giveUp(w.brokers[leader-1])
	return ""
}

func (s *scenario) reassign(t *testing.T, d *datadriven.TestData) string {
	var target []meta.BrokerID
	for i := range d.CmdArgs {
		target = append(target, meta.BrokerID(argument(t, d, i)))
	}
	r := &s.world.registry
	next, refusal := controller.Move(&r.value, target, factsOf(&r.snapshot, meta.NoBroker))
	if refusal != nil {
		return refusal.Error() + "\n"
	}
	r.put(next, "reassigned")
	return ""
}

func (s *scenario) show() string {
	var out strings.Builder
	value := &s.world.registry.value
	fmt.Fprintf(&out, "registry: replicas=%v leader=%d epoch=%d isr=%v elr=%v acknowledged=%d\n", value.Replicas, value.Leader, value.LeaderEpoch, value.ISR, value.ELR, len(s.world.acked))
	for _, b := range s.world.brokers {
		what := "down"
		if b.up {
			what = b.machine.Role().String()
			if b.machine.Role() == replica.RoleFollower {
				what += ", " + b.machine.Follower().String()
			}
		}
		fmt.Fprintf(&out, "broker %d: %s, epoch %d, high watermark %d, log", b.id, what, b.machine.Epoch(), b.machine.HighWatermark())
		for _, e := range b.disk.log {
			fmt.Fprintf(&out, " %d:m%d", e.epoch, e.value)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// argument is the number that an argument without a name is.
func argument(t *testing.T, d *datadriven.TestData, i int) int {
	t.Helper()
	if i >= len(d.CmdArgs) {
		d.Fatalf(t, "%s wants more arguments", d.Cmd)
	}
	var n int
	if _, err := fmt.Sscan(d.CmdArgs[i].Key, &n); err != nil {
		d.Fatalf(t, "%s: %v", d.CmdArgs[i].Key, err)
	}
	return n
}

func numbersOf(t *testing.T, d *datadriven.TestData, key string) []int64 {
	var numbers []int64
	for _, arg := range d.CmdArgs {
		if arg.Key != key {
			continue
		}
		for i := range arg.Vals {
			var n int64
			arg.Scan(t, i, &n)
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// diverge runs the rounds between a leader and a follower whose lineages are given as epoch, start, ..., end (E-6).
func diverge(leader, follower []int64) string {
	lineage := func(numbers []int64) (commitlog.Epochs, int64) {
		var epochs commitlog.Epochs
		for i := 0; i+2 < len(numbers); i += 2 {
			epochs = append(epochs, commitlog.EpochEntry{Epoch: meta.Epoch(numbers[i]), Start: numbers[i+1]})
		}
		return epochs, numbers[len(numbers)-1]
	}
	theirs, theirEnd := lineage(leader)
	ours, end := lineage(follower)
	top := max(theirs.LatestEpoch(), ours.LatestEpoch()) + 1
	theirs, _, _ = theirs.Assign(top, theirEnd)
	value := meta.Partition{Replicas: []meta.BrokerID{1, 2}, ISR: []meta.BrokerID{1}, Leader: 1, LeaderEpoch: top, MinISR: 1, Version: 1}
	l, f := newMachine(1, lagMax, 0), newMachine(2, lagMax, 0)
	l.RoleChanged(value, replica.LogState{Written: theirEnd, Epochs: theirs}, 0, time.Time{})
	f.RoleChanged(value, replica.LogState{Written: end, Epochs: ours}, 0, time.Time{})
	var out strings.Builder
	for range len(follower) {
		p, _ := f.FetchFrom()
		diverging, err := l.Compare(ours.LatestEpoch(), p.Offset, theirs, theirEnd)
		if len(ours) == 0 || diverging == nil && err == nil {
			fmt.Fprintf(&out, "fetches from %d after epoch %d\n", p.Offset, ours.LatestEpoch())
			return out.String()
		}
		e := f.Answered(replica.Answer{Leader: 1, Epoch: top, Offset: p.Offset, LastEpoch: ours.LatestEpoch(), Err: err, Diverging: diverging}, ours)
		fmt.Fprintf(&out, "asks after epoch %d at %d, leader has epoch %d up to %d: %s\n", ours.LatestEpoch(), p.Offset, diverging.Epoch, diverging.End, e)
		end = e.TruncateTo
		ours = ours.TruncateFromEnd(end)
		f.Truncated(replica.LogState{Written: end, Epochs: ours})
	}
	return out.String() + "never ends\n"
}
