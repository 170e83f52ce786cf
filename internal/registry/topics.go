package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// NewTopic is a topic to create. Its id must be fresh: no other topic ever had it.
type NewTopic struct {
	ID     meta.TopicID
	Name   string
	Config map[string]string // empty for none

	// Partitions are the first values. Each LeaderEpoch is raised by one more than the last epoch that the name is known
	// to have had (U-61).
	Partitions []meta.Partition
}

// Outcome is what happened to one item of a batch.
type Outcome struct {
	Err      error
	Revision int64 // the revision that shows it, 0 on error
}

// CreateTopics creates topics, each atomically and independently of the others. ErrTopicExists: the name is taken. An
// error of the call leaves the outcome of all of them unknown; nobody sees half a topic in any case.
func (c *Cluster) CreateTopics(ctx context.Context, topics []NewTopic) ([]Outcome, error) {
	outcomes := make([]Outcome, len(topics))
	todo := indexes(len(topics))
	for range conflictRetries {
		epochs, err := c.lastEpochs(ctx, topics, todo)
		if err != nil {
			return nil, fmt.Errorf("create topics: %w", err)
		}
		commits := make([]commitOp, len(todo))
		err = inFlight(len(todo), func(at int) (err error) {
			t := &topics[todo[at]]
			if commits[at], err = c.stage(ctx, t, epochs[at]); err != nil {
				return fmt.Errorf("create topic %s: %w", t.Name, err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		again, err := c.commitNames(ctx, topics, todo, commits, outcomes)
		if err != nil {
			return nil, fmt.Errorf("create topics: %w", err)
		}
		if len(again) == 0 {
			return outcomes, nil
		}
		todo = again
	}
	for _, i := range todo {
		outcomes[i].Err = ErrConflict
	}
	return outcomes, nil
}

// commitOp is the nested transaction that makes a topic exist, and its size.
type commitOp struct {
	txn   Txn
	bytes int
}

// lastEpochs reads what is kept of the names' earlier lives.
func (c *Cluster) lastEpochs(ctx context.Context, topics []NewTopic, todo []int) ([]Entry, error) {
	epochs := make([]Entry, len(todo))
	err := inFlight((len(todo)+flatOps-1)/flatOps, func(n int) error {
		first := n * flatOps
		read := Txn{}
		for _, i := range todo[first:min(first+flatOps, len(todo))] {
			read.Then = append(read.Then, Get(epochKey(topics[i].Name)))
		}
		result, err := c.store.Txn(ctx, read)
		if err != nil {
			return err
		}
		for at, r := range result.Results {
			if r.Entry != nil {
				epochs[first+at] = *r.Entry
			}
		}
		return nil
	})
	return epochs, err
}

// stage builds a topic's commit. What does not fit into it is written before, under the id, where nobody looks until
// the name is there.
func (c *Cluster) stage(ctx context.Context, t *NewTopic, last Entry) (commitOp, error) {
	raise := meta.Epoch(0)
	if last.Version > 0 {
		value, err := decode[epochValue](last)
		if err != nil {
			return commitOp{}, err
		}
		raise = value.LeaderEpoch + 1
	}
	ops := []Op{Put(topicKey(t.ID), encode(topicValue{Name: t.Name, Partitions: int32(len(t.Partitions))}))}
	if len(t.Config) > 0 {
		ops = append(ops, Put(topicConfigKey(t.ID), encode(t.Config)))
	}
	for n := range t.Partitions {
		p := t.Partitions[n]
		p.LeaderEpoch += raise
		key := partitionKey(t.ID, int32(n))
		if err := checkPartition(key, &p); err != nil {
			return commitOp{}, err
		}
		ops = append(ops, Put(key, encode(&p)))
	}
	commit := Txn{
		Conds: []Cond{Absent(nameKey(t.Name)), ModifiedAt(epochKey(t.Name), last.Mod)},
		Then:  []Op{Put(nameKey(t.Name), encode(nameValue{ID: t.ID}))},
		Else:  []Op{Get(nameKey(t.Name))},
	}
	if len(ops) < nestedOps && bytesOf(ops) < txnBytesMax/2 {
		commit.Then = append(ops, commit.Then...)
		return commitOp{commit, bytesOf(commit.Then)}, nil
	}
	staged := slices.Collect(batches(ops))
	first, err := c.store.Txn(ctx, Txn{Then: staged[0]})
	if err != nil {
		return commitOp{}, err
	}
	// A collector may take the unfinished topic for a leftover.
	created := CreatedAt(topicKey(t.ID), first.Revision)
	err = inFlight(len(staged)-1, func(n int) error {
		result, err := c.store.Txn(ctx, Txn{Conds: []Cond{created}, Then: staged[n+1]})
		if err == nil && !result.Succeeded {
			err = ErrConflict
		}
		return err
	})
	if err != nil {
		return commitOp{}, err
	}
	commit.Conds = append(commit.Conds, created)
	return commitOp{commit, bytesOf(commit.Then)}, nil
}

// commitNames runs the commits, many in one transaction. It returns the topics whose name's last epoch has changed
// meanwhile: what was staged for them is taken back, and they are to be staged again.
func (c *Cluster) commitNames(ctx context.Context, topics []NewTopic, todo []int, commits []commitOp, outcomes []Outcome) (again []int, err error) {
	var starts []int // of the transactions, and where the last one ends
	size := 0
	for at := range commits {
		if at == 0 || at-starts[len(starts)-1] == nestedMax || size+commits[at].bytes >= txnBytesMax {
			starts, size = append(starts, at), 0
		}
		size += commits[at].bytes
	}
	starts = append(starts, len(commits))
	results := make([]TxnResult, len(starts)-1)
	err = inFlight(len(results), func(n int) (err error) {
		outer := Txn{}
		for at := starts[n]; at < starts[n+1]; at++ {
			outer.Then = append(outer.Then, Nest(commits[at].txn))
		}
		results[n], err = c.store.Txn(ctx, outer)
		return err
	})
	if err != nil {
		return nil, err
	}
	var leftovers []meta.TopicID
	for n, result := range results {
		for at, r := range result.Results {
			i := todo[starts[n]+at]
			switch {
			case r.Txn.Succeeded:
				outcomes[i] = Outcome{Revision: result.Revision}
			case r.Txn.Results[0].Entry != nil:
				outcomes[i] = Outcome{Err: ErrTopicExists}
				leftovers = append(leftovers, topics[i].ID)
			default:
				again = append(again, i)
				leftovers = append(leftovers, topics[i].ID)
			}
		}
	}
	return again, c.dropStaged(ctx, leftovers)
}

// dropStaged takes back what was written for topics that were not committed.
func (c *Cluster) dropStaged(ctx context.Context, ids []meta.TopicID) error {
	for chunk := range slices.Chunk(ids, flatOps/2) {
		txn := Txn{}
		for _, id := range chunk {
			txn.Then = append(txn.Then, DeletePrefix(topicKey(id)), Delete(topicConfigKey(id)))
		}
		if _, err := c.store.Txn(ctx, txn); err != nil {
			return err
		}
	}
	return nil
}

// AddPartitions adds partitions to a topic that has count of them. ErrConflict: it has another number now.
func (c *Cluster) AddPartitions(ctx context.Context, id meta.TopicID, count int32, partitions []meta.Partition) (revision int64, err error) {
	entry, err := c.get(ctx, topicKey(id))
	if err != nil {
		return 0, fmt.Errorf("add partitions: %w", err)
	}
	if entry.Version == 0 {
		return 0, fmt.Errorf("add partitions: %w", ErrUnknownTopic)
	}
	value, err := decode[topicValue](entry)
	if err != nil {
		return 0, err
	}
	if value.Partitions != count {
		return 0, fmt.Errorf("add partitions: topic has %d: %w", value.Partitions, ErrConflict)
	}
	ops := make([]Op, 0, len(partitions)+1)
	for n := range partitions {
		key := partitionKey(id, count+int32(n))
		if err := checkPartition(key, &partitions[n]); err != nil {
			return 0, err
		}
		ops = append(ops, Put(key, encode(&partitions[n])))
	}
	value.Partitions = count + int32(len(partitions))
	ops = append(ops, Put(topicKey(id), encode(value))) // the last one, since it is the commit
	staged := slices.Collect(batches(ops))
	conds := []Cond{ModifiedAt(topicKey(id), entry.Mod), Exists(nameKey(value.Name))}
	write := func(n int) error {
		result, err := c.store.Txn(ctx, Txn{Conds: conds, Then: staged[n]})
		if err == nil && !result.Succeeded {
			err = ErrConflict
		}
		if err != nil {
			return fmt.Errorf("add partitions: %w", err)
		}
		if n == len(staged)-1 {
			revision = result.Revision
		}
		return nil
	}
	if err := inFlight(len(staged)-1, write); err != nil {
		return 0, err
	}
	return revision, write(len(staged) - 1)
}

// DeleteTopics deletes topics, each atomically: the name, all values and the configuration go in one transaction, which
// leaves a tombstone for the bytes and the name's last leader epoch. ErrUnknownTopic: there is no such topic.
func (c *Cluster) DeleteTopics(ctx context.Context, ids []meta.TopicID) ([]Outcome, error) {
	outcomes := make([]Outcome, len(ids))
	todo := indexes(len(ids))
	for range conflictRetries {
		again := []int(nil)
		for chunk := range slices.Chunk(todo, nestedMax) {
			outer, asked := Txn{}, []int(nil)
			for _, i := range chunk {
				nested, err := c.deletion(ctx, ids[i])
				if errors.Is(err, ErrUnknownTopic) {
					outcomes[i] = Outcome{Err: ErrUnknownTopic}
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("delete topic %s: %w", ids[i], err)
				}
				outer.Then, asked = append(outer.Then, Nest(nested)), append(asked, i)
			}
			if len(asked) == 0 {
				continue
			}
			result, err := c.store.Txn(ctx, outer)
			if err != nil {
				return nil, fmt.Errorf("delete topics: %w", err)
			}
			for at, i := range asked {
				if result.Results[at].Txn.Succeeded {
					outcomes[i] = Outcome{Revision: result.Revision}
				} else {
					again = append(again, i)
				}
			}
		}
		if todo = again; len(todo) == 0 {
			return outcomes, nil
		}
	}
	for _, i := range todo {
		outcomes[i] = Outcome{Err: ErrConflict}
	}
	return outcomes, nil
}

// deletion reads a topic and builds the transaction that deletes it as it was read.
func (c *Cluster) deletion(ctx context.Context, id meta.TopicID) (Txn, error) {
	var topic topicValue
	var faulty error
	last, holders := meta.Epoch(0), make(map[meta.BrokerID]bool)
	revision, err := c.pages(ctx, topicKey(id), func(entry Entry) {
		if entry.Key == topicKey(id) {
			var err error
			if topic, err = decode[topicValue](entry); err != nil {
				faulty = err
			}
			return
		}
		// A value that cannot be read names no holders, but must not keep the topic from being deleted.
		if p, err := decodePartition(entry); err == nil {
			last = max(last, p.LeaderEpoch)
			for _, replica := range p.Replicas {
				holders[replica] = true
			}
		}
	})
	if err = errors.Join(err, faulty); err != nil {
		return Txn{}, err
	}
	name, err := c.get(ctx, nameKey(topic.Name))
	if err != nil {
		return Txn{}, err
	}
	value := nameValue{}
	if topic.Name != "" && name.Version > 0 {
		if value, err = decode[nameValue](name); err != nil {
			return Txn{}, err
		}
	}
	if value.ID != id || id.IsZero() {
		return Txn{}, ErrUnknownTopic
	}
	tombstone := Tombstone{Name: topic.Name, Partitions: topic.Partitions, Unconfirmed: slices.Sorted(maps.Keys(holders))}
	return Txn{
		Conds: []Cond{ModifiedAt(nameKey(topic.Name), name.Mod), UnchangedSince(topicKey(id), revision)},
		Then: []Op{
			Delete(nameKey(topic.Name)), DeletePrefix(topicKey(id)), Delete(topicConfigKey(id)),
			Put(deletedKey(id), encode(tombstone)), Put(epochKey(topic.Name), encode(epochValue{LeaderEpoch: last})),
		},
	}, nil
}

// ConfirmDeleted notes that a broker holds nothing of some deleted topics any more; a tombstone that nobody is left to
// confirm goes. Topics whose tombstone is gone or changed meanwhile are left for the next time.
func (c *Cluster) ConfirmDeleted(ctx context.Context, seat Seat, tombstones map[meta.TopicID]Tombstone, broker meta.BrokerID) error {
	var ops []Op
	for id, tombstone := range tombstones {
		key := deletedKey(id)
		ops = append(ops, Nest(Txn{Conds: []Cond{ModifiedAt(key, tombstone.mod)}, Then: []Op{confirmed(key, tombstone, broker)}}))
	}
	for chunk := range slices.Chunk(ops, nestedMax) {
		result, err := c.store.Txn(ctx, Txn{Conds: []Cond{seat.cond()}, Then: chunk})
		if err != nil {
			return fmt.Errorf("confirm deletions: %w", err)
		}
		if !result.Succeeded {
			return fmt.Errorf("confirm deletions: %w", ErrDeposed)
		}
	}
	return nil
}

// confirmed writes a tombstone without one of the brokers that it waits for, or removes it if that was all.
func confirmed(key string, tombstone Tombstone, broker meta.BrokerID) Op {
	tombstone.Unconfirmed = slices.DeleteFunc(slices.Clone(tombstone.Unconfirmed), func(b meta.BrokerID) bool { return b == broker })
	if len(tombstone.Unconfirmed) == 0 && tombstone.Remote == "" {
		return Delete(key)
	}
	return Put(key, encode(tombstone))
}

// Collect removes what an unfinished creation left under an id that has neither a name nor a tombstone. ErrConflict: it
// has been finished meanwhile.
func (c *Cluster) Collect(ctx context.Context, seat Seat, topic *TopicState) error {
	if err := c.collect(ctx, seat, topic); err != nil {
		return fmt.Errorf("collect topic %s: %w", topic.ID, err)
	}
	return nil
}

func (c *Cluster) collect(ctx context.Context, seat Seat, topic *TopicState) error {
	name, err := c.get(ctx, nameKey(topic.Name))
	if err != nil {
		return err
	}
	if name.Version > 0 {
		if value, err := decode[nameValue](name); err != nil || value.ID == topic.ID {
			return errors.Join(err, ErrConflict)
		}
	}
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{seat.cond(), ModifiedAt(topicKey(topic.ID), topic.mod), ModifiedAt(nameKey(topic.Name), name.Mod)},
		Then:  []Op{DeletePrefix(topicKey(topic.ID)), Delete(topicConfigKey(topic.ID))},
		Else:  []Op{Get(controllerKey)},
	})
	if err != nil {
		return err
	}
	if !result.Succeeded {
		return seat.lost(result.Results[0].Entry)
	}
	return nil
}

// batches splits plain operations into transactions, in order.
func batches(ops []Op) func(yield func([]Op) bool) {
	return func(yield func([]Op) bool) {
		start, size := 0, 0
		for i := range ops {
			bytes := bytesOf(ops[i : i+1])
			if i > start && (i-start == flatOps || size+bytes > txnBytesMax) {
				if !yield(ops[start:i:i]) {
					return
				}
				start, size = i, 0
			}
			size += bytes
		}
		if start < len(ops) {
			yield(ops[start:])
		}
	}
}

func bytesOf(ops []Op) (n int) {
	for i := range ops {
		n += len(ops[i].key) + len(ops[i].value)
	}
	return n
}

// inFlight does n things, up to inFlightMax at a time, and waits for all that it began. After an error it begins no more,
// and returns the first. The store syncs what it is sent meanwhile together, and the answers' ways overlap.
func inFlight(n int, do func(int) error) error {
	if n == 1 {
		return do(0)
	}
	var group errgroup.Group
	group.SetLimit(inFlightMax)
	failed := atomic.Bool{}
	for i := 0; i < n && !failed.Load(); i++ {
		group.Go(func() error {
			err := do(i)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}
