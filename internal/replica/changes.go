package replica

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// ISRWriter changes partition values for their leader (D8).
type ISRWriter interface {
	// WriteChanges writes each change by compare-and-set on the version of its value, on the condition that this broker is
	// live, and each of its Joining in the epoch named; one does not depend on another. It returns one outcome for each
	// change. An error leaves all outcomes unknown.
	WriteChanges(ctx context.Context, changes []PartitionChange) ([]ChangeOutcome, error)
	// ReadValue reads the value of a partition linearizably.
	ReadValue(ctx context.Context, partition meta.TopicIDPartition) (meta.Partition, error)
}

// PartitionChange is the change of one partition's value.
type PartitionChange struct {
	meta.TopicIDPartition
	*Change
}

// ChangeOutcome is what became of one change.
type ChangeOutcome struct {
	// Current is the value that the registry holds now. If its version is the one that the change was to replace, the
	// change was refused: a joining broker does not live in that epoch.
	Current meta.Partition
	// Err says that there is no such value, and that the change was not written.
	Err error
}

const (
	// wantedMax bounds the changes that wait to be written: one that finds no room counts as unknown, and is tried again.
	wantedMax = 4096
	// changesMax is how many are written at once.
	changesMax = 512
	// changeTimeout bounds one write or read of the registry.
	changeTimeout = 5 * time.Second
)

// wanted is a value to be written, or, without a change, to be read.
type wanted struct {
	replica *Replica
	change  *Change
}

func (w wanted) partition() meta.TopicIDPartition {
	return meta.TopicIDPartition{Topic: w.replica.id, Partition: w.replica.partition}
}

// want asks for a write or a read of the registry; it does not wait.
func (t *Table) want(w wanted) {
	select {
	case t.wanted <- w:
	default:
		w.done(OutcomeUnknown)
	}
}

// done tells the machine of a change that did not give a newer value.
func (w wanted) done(outcome Outcome) {
	if w.change != nil {
		w.replica.act(func(m *Machine) Effects { return m.ChangeDone(w.change.Value.Version, outcome, time.Now()) })
	}
}

// writeChanges writes values for leaders, whatever has gathered at a time, until ctx ends.
func (t *Table) writeChanges(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-t.wanted:
			batch := []wanted{w}
			for len(t.wanted) > 0 && len(batch) < changesMax {
				batch = append(batch, <-t.wanted)
			}
			t.exchange(ctx, batch)
		}
	}
}

// exchange writes and reads a batch of values, and tells the replicas.
func (t *Table) exchange(ctx context.Context, batch []wanted) {
	if t.config.ISR == nil {
		return
	}
	var writes []wanted
	var changes []PartitionChange
	for _, w := range batch {
		if w.change == nil {
			t.readValue(ctx, w)
			continue
		}
		writes = append(writes, w)
		changes = append(changes, PartitionChange{w.partition(), w.change})
	}
	if len(changes) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	outcomes, err := t.config.ISR.WriteChanges(limited, changes)
	cancel()
	if err != nil && ctx.Err() == nil {
		t.logger.Warn("partition values were perhaps not written; tried again in a while", slog.Int("partitions", len(changes)), slog.Any("err", err))
	}
	for i, w := range writes {
		if i >= len(outcomes) {
			w.done(OutcomeUnknown)
			continue
		}
		t.settle(ctx, w, &outcomes[i])
	}
}

// settle tells a replica what became of its change.
func (t *Table) settle(ctx context.Context, w wanted, o *ChangeOutcome) {
	if o.Err != nil || o.Current.Version == w.change.Value.Version {
		t.logger.Info("change of a partition value refused", slog.String("topic", w.replica.topic),
			slog.Int("partition", int(w.replica.partition)), slog.String("change", w.change.String()), slog.Any("err", o.Err))
		w.done(OutcomeRefused)
		return
	}
	t.metrics.isrChanged(w.change, o.Current)
	t.take(ctx, w.replica, o.Current)
}

// readValue reads a value linearizably and tells the replica.
func (t *Table) readValue(ctx context.Context, w wanted) {
	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	value, err := t.config.ISR.ReadValue(limited, w.partition())
	if err != nil {
		t.logger.Warn("partition value not read; tried again in a while", slog.String("topic", w.replica.topic),
			slog.Int("partition", int(w.replica.partition)), slog.Any("err", err))
		return
	}
	t.take(ctx, w.replica, value)
	w.replica.act(func(m *Machine) Effects { return m.ValueRead(value.Version) })
}

// take applies a value that was read from the registry by this broker, not stated by a controller.
func (t *Table) take(ctx context.Context, r *Replica, value meta.Partition) {
	r.adopt(value)
	if !value.HasReplica(t.config.Broker) {
		return // a statement will say what becomes of the copy
	}
	r.mu.Lock()
	newer := r.mu.machine.Supersedes(&value) && r.mu.closed == nil
	r.mu.Unlock()
	if !newer {
		return
	}
	// Another leads, or this one in another epoch: the change of role is made as for a statement.
	select {
	case t.applying <- struct{}{}:
	case <-ctx.Done():
		return
	}
	err := r.roleChanged(value, 0)
	<-t.applying
	t.roleChanged(r.topic, meta.TopicIDPartition{Topic: r.id, Partition: r.partition})
	if err != nil {
		t.logger.Error("partition failed", slog.String("topic", r.topic), slog.Int("partition", int(r.partition)), slog.Any("err", err))
	}
}
