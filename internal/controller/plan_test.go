package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestPlan runs scripts of decisions. The commands:
//
//	value             the partition, as the registry has it
//	isr is=(1,2,3)    the leader changed the ISR
//	plan [live=1,2] [unclean=3 [intact]] [min_isr=2|by-factor] [flush] [unclean-allowed] [ends=(broker,epoch,end,...)]
//	move [live=1,2] to=(4,5) | move [live=1,2]
//	elect [live=1,2] [unclean-election]
//	grow live=1,2 partition=0
//
// plan prints why and what is written; "nothing" when the value stays. move is an administrator's reassignment, without a
// target its end; elect is an election that was asked for, grow what an internal
// topic's partition wants. They print what is written, or the refusal. The result becomes
// the value.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		value := meta.Partition{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "value":
				value = meta.Partition{Version: 1}
				if err := json.Unmarshal([]byte(d.Input), &value); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "isr":
				value.ChangeISR(brokers(t, d, d.CmdArgs[0].Vals))
				return ""
			case "move", "elect", "grow":
				next, refusal := ask(t, d, value)
				if refusal != nil {
					return fmt.Sprintf("%v: %s", refusal.Kind, refusal.Message)
				}
				value = next
				text, err := json.Marshal(&next)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return string(text)
			case "plan":
				next, reasons := Plan(&value, factsOf(t, d, value))
				if len(reasons) == 0 {
					return "nothing"
				}
				value = next
				text, err := json.Marshal(&next)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return fmt.Sprintf("%s\n%s", strings.Join(reasons, "; "), text)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func ask(t *testing.T, d *datadriven.TestData, value meta.Partition) (meta.Partition, *Refusal) {
	f := factsOf(t, d, value)
	if d.Cmd == "elect" {
		return Elect(&value, d.HasArg("unclean-election"), f)
	}
	if d.Cmd == "grow" {
		var live []meta.BrokerID
		var partition int32
		for _, arg := range d.CmdArgs {
			if arg.Key == "live" {
				live = brokers(t, d, arg.Vals)
			}
		}
		d.ScanArgs(t, "partition", &partition)
		target := Grow(&value, partition, 3, live)
		if target == nil {
			return value, nil
		}
		return Move(&value, target, f)
	}
	var target []meta.BrokerID
	for _, arg := range d.CmdArgs {
		if arg.Key == "to" {
			target = brokers(t, d, arg.Vals)
		}
	}
	return Move(&value, target, f)
}

// brokers reads ids.
func brokers(t *testing.T, d *datadriven.TestData, vals []string) []meta.BrokerID {
	var ids []meta.BrokerID
	for _, text := range vals {
		var id meta.BrokerID
		if _, err := fmt.Sscan(text, &id); err != nil {
			d.Fatalf(t, "%v", err)
		}
		ids = append(ids, id)
	}
	return ids
}

func factsOf(t *testing.T, d *datadriven.TestData, value meta.Partition) Facts {
	f := Facts{Unclean: meta.NoBroker, Wants: Wants{MinISR: value.MinISR, Flush: value.Flush}}
	var live []meta.BrokerID
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "live":
			live = brokers(t, d, arg.Vals)
		case "unclean":
			d.ScanArgs(t, "unclean", (*int32)(&f.Unclean))
		case "min_isr":
			d.ScanArgs(t, "min_isr", &f.MinISR)
		case "by-factor":
			f.ByFactor = true
		case "intact":
			f.Intact = true
		case "unclean-allowed":
			f.UncleanElection = true
		case "ends":
			ends := make(map[meta.BrokerID]meta.LogEnd)
			for ids := brokers(t, d, arg.Vals); len(ids) >= 3; ids = ids[3:] {
				ends[ids[0]] = meta.LogEnd{Epoch: meta.Epoch(ids[1]), End: int64(ids[2])}
			}
			f.End = func(id meta.BrokerID) (meta.LogEnd, bool) { end, known := ends[id]; return end, known }
		case "flush":
			f.Flush = arg.Vals == nil || arg.Vals[0] == "true"
		}
	}
	f.Unfenced = func(id meta.BrokerID) bool { return slices.Contains(live, id) }
	return f
}

// Plan keeps what everybody relies on, whatever the value and the facts are, and once is enough.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []meta.BrokerID{1, 2, 3, 4}
		subset := func(of []meta.BrokerID, label string) []meta.BrokerID {
			var out []meta.BrokerID
			for _, id := range of {
				if rapid.Bool().Draw(t, label) {
					out = append(out, id)
				}
			}
			return out
		}
		replicas := rapid.Permutation(all).Draw(t, "replicas")[:rapid.IntRange(1, 4).Draw(t, "n")]
		value := meta.Partition{
			Replicas: replicas, Leader: meta.NoBroker, LeaderEpoch: 5, ISR: subset(replicas, "isr"),
			MinISR: rapid.Int32Range(1, 3).Draw(t, "min_isr"), Flush: rapid.Bool().Draw(t, "flush"), Version: 1,
		}
		value.ELR = slices.DeleteFunc(subset(replicas, "elr"), value.InSync)
		value.LastKnownISR = subset(replicas, "last known")
		if len(value.ISR) > 0 && rapid.IntRange(0, 3).Draw(t, "led") > 0 {
			value.Leader = rapid.SampledFrom(value.ISR).Draw(t, "leader")
		}
		live := subset(all, "live")
		f := Facts{
			Unclean:  meta.NoBroker,
			Wants:    Wants{MinISR: rapid.Int32Range(1, 3).Draw(t, "wanted min_isr"), Flush: rapid.Bool().Draw(t, "wanted flush"), UncleanElection: rapid.Bool().Draw(t, "unclean election")},
			Unfenced: func(id meta.BrokerID) bool { return slices.Contains(live, id) },
		}
		if sweeping := rapid.SampledFrom(all).Draw(t, "sweeping"); !f.Unfenced(sweeping) && rapid.Bool().Draw(t, "unclean") {
			f.Unclean = sweeping
			f.UncleanElection = false // else who leads on after its sweep is replaced until it is unfenced
		}
		before := value.Clone()
		next, reasons := Plan(&value, f)
		if fmt.Sprint(before) != fmt.Sprint(value) {
			t.Fatalf("the given value changed: %+v", value)
		}
		if len(reasons) == 0 {
			return
		}
		if next.Recovery != 0 && len(next.ISR) > 1 {
			t.Fatalf("somebody is in sync with a leader that recovers: %+v", next)
		}
		if next.Leader != meta.NoBroker && !next.InSync(next.Leader) {
			t.Fatalf("leader %d is not in sync: %+v", next.Leader, next)
		}
		if next.Leader != value.Leader && next.Leader != meta.NoBroker && next.LeaderEpoch != value.LeaderEpoch+1 {
			t.Fatalf("a new leader without a new epoch: %+v", next)
		}
		if next.LeaderEpoch < value.LeaderEpoch || next.LeaderEpoch > value.LeaderEpoch+1 {
			t.Fatalf("epoch %d after %d", next.LeaderEpoch, value.LeaderEpoch)
		}
		if len(next.ISR) == 0 && len(value.ISR) > 0 && f.Unclean == meta.NoBroker {
			t.Fatalf("the isr was emptied: %+v", next)
		}
		for _, id := range next.ISR {
			if !next.HasReplica(id) || slices.Contains(next.ELR, id) {
				t.Fatalf("isr and elr: %+v", next)
			}
			if !value.InSync(id) && id != next.Leader {
				t.Fatalf("the controller added %d to the isr: %+v", id, next)
			}
		}
		if next.MinISR != f.MinISR || next.Flush != f.Flush {
			t.Fatalf("the configuration is not followed: %+v", next)
		}
		f.Unclean = meta.NoBroker
		if again, reasons := Plan(&next, f); len(reasons) > 0 {
			t.Fatalf("not settled: %v\n%+v\n%+v", reasons, next, again)
		}
	})
}
