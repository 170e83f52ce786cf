package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestMachine runs the scripts of testdata/machine. A script drives one machine of broker 1 and prints every effect and,
// after each event, the state.
//
//	role epoch=E version=V [leader=L] [replicas=(..)] [isr=(..)] [elr=(..)] [min=N] [flush] [flushed] — a partition value; the
//	     log's state is what earlier events made it, or log=(start,written,synced,epoch); checkpoint=HW
//	appended|synced|start N, closed
//	append acks=A [epoch=E], epoch E: what a request is told
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		m := NewMachine(1)
		logEpoch := meta.NoEpoch
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var n int64
			var e Effects
			if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
				fmt.Sscan(d.CmdArgs[0].Key, &n)
			}
			switch d.Cmd {
			case "role":
				e = scanRole(t, d, &m, &logEpoch)
			case "appended":
				e = m.Appended(n)
			case "synced":
				e = m.Synced(n)
			case "start":
				e = m.StartRaised(n)
			case "flushed-failed":
				m.FlushedFailed()
			case "closed":
				e = m.Closed(errors.New("the broker stops"))
			case "append":
				var acks, epoch int
				epoch = -1
				d.ScanArgs(t, "acks", &acks)
				d.MaybeScanArgs(t, "epoch", &epoch)
				return answer(m.CheckAppend(meta.Epoch(epoch), int16(acks)))
			case "fetch":
				var epoch int
				d.ScanArgs(t, "epoch", &epoch)
				return answer(m.CheckLeader(meta.Epoch(epoch)))
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return fmt.Sprintf("%s\n-- %s\n", e, state(&m))
		})
	})
}

func answer(err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}

func state(m *Machine) string {
	s := fmt.Sprintf("%s epoch=%d isr=%v hw=%d log=[%d,%d) synced=%d", m.role, m.value.LeaderEpoch, m.value.ISR, m.high, m.start, m.written, m.synced)
	if m.role == RoleLeader {
		s += fmt.Sprintf(" epoch-start=%d latest-known=%v", m.epochStart, m.LatestKnown())
	}
	return s
}

func scanRole(t *testing.T, d *datadriven.TestData, m *Machine, logEpoch *meta.Epoch) Effects {
	value := meta.Partition{Leader: 1, MinISR: 1, Replicas: []meta.BrokerID{1}, ISR: []meta.BrokerID{1}}
	var checkpoint int64
	log := LogState{Start: m.start, Written: m.written, Synced: m.synced, Epoch: *logEpoch}
	for _, arg := range d.CmdArgs {
		var ids []meta.BrokerID
		var n int64
		for i := range arg.Vals {
			arg.Scan(t, i, &n)
			ids = append(ids, meta.BrokerID(n))
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
		case "flush":
			value.Flush = true
		case "flushed":
			value.Flushed = true
		case "checkpoint":
			checkpoint = n
		case "log":
			log = LogState{Start: int64(ids[0]), Written: int64(ids[1]), Synced: int64(ids[2]), Epoch: meta.Epoch(ids[3])}
		default:
			d.Fatalf(t, "unknown argument %s", arg.Key)
		}
	}
	e := m.RoleChanged(value, log, checkpoint)
	*logEpoch = max(log.Epoch, *logEpoch)
	if e.AssignEpoch {
		*logEpoch = e.Epoch
	}
	return e
}

// TestNothingHasAName keeps the empty effects readable in scripts.
func TestNothingHasAName(t *testing.T) {
	if got := (Effects{}).String(); !strings.Contains(got, "nothing") {
		t.Fatalf("empty effects print as %q", got)
	}
}
