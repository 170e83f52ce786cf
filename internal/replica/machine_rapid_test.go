package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestMachineHistories drives a machine through random histories and holds it, after every event, against what the
// clauses say in the plainest way:
//
//   - the high watermark never falls, and rises only as far as this broker's written end (synced end, if the value in
//     force says flush) while every member of the ISR is this broker, and those are enough for acks=all;
//   - values are applied exactly if they are newer, and an epoch is given to the log exactly once;
//   - a request is admitted exactly if this broker leads in its epoch, and with acks=all if enough replicas are in sync.
func TestMachineHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMachine(1, time.Minute)
		var log LogState
		var current meta.Partition
		applied := false
		high := int64(0)
		flushedUpTo := int64(0) // the highest bound that the high watermark could have had
		t.Repeat(map[string]func(*rapid.T){
			"role": func(t *rapid.T) {
				value := meta.Partition{
					Replicas: []meta.BrokerID{1, 2}, Leader: rapid.SampledFrom([]meta.BrokerID{1, 1, 2, meta.NoBroker}).Draw(t, "leader"),
					LeaderEpoch: meta.Epoch(rapid.IntRange(0, 6).Draw(t, "epoch")), Version: rapid.Int64Range(1, 12).Draw(t, "version"),
					ISR:    rapid.SampledFrom([][]meta.BrokerID{{1}, {1}, {1, 2}, {2}}).Draw(t, "isr"),
					MinISR: int32(rapid.IntRange(1, 3).Draw(t, "min")), Flush: rapid.Bool().Draw(t, "flush"),
				}
				if value.Leader == 1 && !slices.Contains(value.ISR, 1) {
					value.ISR = []meta.BrokerID{1} // a leader is a member of its ISR (U-50)
				}
				newer := !applied || value.Newer(&current)
				e := m.RoleChanged(value, log, 0, time.Time{})
				if e.Ignored == newer {
					t.Fatalf("value %+v after %+v: ignored %v", value, current, e.Ignored)
				}
				if !newer {
					return
				}
				if lost := applied && current.Leader == 1 && value.Leader != 1; errors.Is(e.Fail, ErrNotLeader) != lost {
					t.Fatalf("leadership lost %v, failed with %v", lost, e.Fail)
				}
				current, applied = value, true
				if e.AssignEpoch {
					if e.Epoch <= log.Epochs.LatestEpoch() || e.EpochStart != log.Written || value.Leader != 1 {
						t.Fatalf("epoch %d from %d given to a log with epoch %d, end %d", e.Epoch, e.EpochStart, log.Epochs.LatestEpoch(), log.Written)
					}
					log.Epochs, _, _ = log.Epochs.Assign(e.Epoch, e.EpochStart)
				} else if value.Leader == 1 && value.LeaderEpoch > log.Epochs.LatestEpoch() {
					t.Fatalf("epoch %d was not given to the log", value.LeaderEpoch)
				}
			},
			"append": func(t *rapid.T) {
				log.Written += rapid.Int64Range(1, 5).Draw(t, "records")
				m.Appended(log.Written)
			},
			"late append": func(t *rapid.T) { m.Appended(log.Written - rapid.Int64Range(0, 3).Draw(t, "late")) },
			"sync": func(t *rapid.T) {
				log.Synced = max(log.Synced, rapid.Int64Range(0, log.Written).Draw(t, "synced"))
				m.Synced(log.Synced)
			},
			"start": func(t *rapid.T) {
				log.Start = max(log.Start, rapid.Int64Range(0, high).Draw(t, "start"))
				m.StartRaised(log.Start)
				log.Synced = max(log.Synced, log.Start) // nothing below the start can be lost
			},
			"": func(t *rapid.T) {
				short := len(current.ISR) < min(int(current.MinISR), 2)
				if applied && current.Leader == 1 && !slices.Contains(current.ISR, 2) && !short {
					end := log.Written
					if current.Flush {
						end = log.Synced
					}
					flushedUpTo = max(flushedUpTo, end)
					if m.HighWatermark() < end {
						t.Fatalf("high watermark %d of a lone member with end %d", m.HighWatermark(), end)
					}
				}
				if m.HighWatermark() < high || m.HighWatermark() > max(flushedUpTo, log.Start) {
					t.Fatalf("high watermark %d: was %d, may be %d", m.HighWatermark(), high, flushedUpTo)
				}
				high = m.HighWatermark()
				if !applied {
					return
				}
				for _, acks := range []int16{AcksAll, AcksNone, AcksLeader} {
					for epoch := current.LeaderEpoch - 1; epoch <= current.LeaderEpoch+1; epoch++ {
						want := error(nil)
						switch {
						case epoch >= 0 && epoch < current.LeaderEpoch:
							want = ErrFencedEpoch
						case epoch > current.LeaderEpoch:
							want = ErrUnknownEpoch
						case current.Leader != 1:
							want = ErrNotLeader
						case acks == AcksAll && len(current.ISR) < min(int(current.MinISR), 2):
							want = ErrNotEnoughReplicas
						}
						if got := m.CheckAppend(epoch, acks); !errors.Is(got, want) {
							t.Fatalf("append with acks %d in epoch %d: %v, want %v", acks, epoch, got, want)
						}
					}
				}
			},
		})
	})
}
