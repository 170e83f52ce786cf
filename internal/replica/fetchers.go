package replica

import (
	"context"
	"hash/fnv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// fetchers are the lanes on which this broker's followers fetch: for each leader broker as many as num.replica.fetchers
// says, and one more for its flush partitions, whose next fetch waits for the group commit (D9).
type fetchers struct {
	table *Table
	begin chan struct{} // one slot: lanes wait to be started

	mu struct {
		sync.Mutex
		lanes map[laneKey]*lane
		where map[*Replica]*place
		fresh []*lane // to be started
		held  int     // statements that are being applied: lanes are not disturbed before their end
		later map[*lane]struct{}
	}
}

// laneKey names a lane; the number of the lane for flush partitions is -1.
type laneKey struct {
	leader meta.BrokerID
	number int
}

const flushLane = -1

// place is where a replica fetches.
type place struct {
	lane  *lane
	epoch meta.Epoch
}

func newFetchers(t *Table) *fetchers {
	f := &fetchers{table: t, begin: make(chan struct{}, 1)}
	f.mu.lanes, f.mu.where, f.mu.later = make(map[laneKey]*lane), make(map[*Replica]*place), make(map[*lane]struct{})
	return f
}

// hold keeps lanes as they are until release: what a statement changes disturbs each lane once.
func (f *fetchers) hold() {
	f.mu.Lock()
	f.mu.held++
	f.mu.Unlock()
}

func (f *fetchers) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.held--; f.mu.held > 0 {
		return
	}
	for l := range f.mu.later {
		l.disturb()
	}
	clear(f.mu.later)
}

// moved puts a replica where its machine says that it fetches from. A lane whose replicas or terms have changed gives up
// the fetch that it waits for, so that a new leader is asked at once; else the lane merely looks again.
func (f *fetchers) moved(r *Replica) {
	if f.table.config.Leaders == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	leader, epoch, flush, ok := r.following()
	old := f.mu.where[r]
	if !ok {
		if old != nil {
			old.lane.drop(r)
			delete(f.mu.where, r)
		}
		return
	}
	l := f.laneLocked(f.key(r, leader, flush))
	if old != nil && old.lane == l && old.epoch == epoch {
		l.look(r)
		return
	}
	if old != nil && old.lane != l {
		old.lane.drop(r)
	}
	f.mu.where[r] = &place{l, epoch}
	l.add(r)
	if f.mu.held > 0 {
		f.mu.later[l] = struct{}{}
	} else {
		l.disturb()
	}
}

func (f *fetchers) key(r *Replica, leader meta.BrokerID, flush bool) laneKey {
	if flush {
		return laneKey{leader, flushLane}
	}
	h := fnv.New32a()
	_, _ = h.Write(r.id[:])
	return laneKey{leader, int((h.Sum32() + uint32(r.partition)) % uint32(max(f.table.config.Fetch.ConnectionsOfOne(), 1)))}
}

func (f *fetchers) laneLocked(key laneKey) *lane {
	l := f.mu.lanes[key]
	if l == nil {
		l = newLane(f.table, key)
		f.mu.lanes[key] = l
		f.mu.fresh = append(f.mu.fresh, l)
		select {
		case f.begin <- struct{}{}:
		default:
		}
	}
	return l
}

// run runs the lanes until ctx ends. A lane without replicas ends.
func (f *fetchers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-f.begin:
		}
		f.mu.Lock()
		fresh := f.mu.fresh
		f.mu.fresh = nil
		f.mu.Unlock()
		for _, l := range fresh {
			group.Go(func() error {
				for l.round(ctx) || !f.retire(ctx, l) {
				}
				return nil
			})
		}
	}
}

// retire ends a lane that has no replicas, or whose time is over.
func (f *fetchers) retire(ctx context.Context, l *lane) bool {
	if ctx.Err() != nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.size() > 0 {
		return false
	}
	delete(f.mu.lanes, l.key)
	delete(f.mu.later, l)
	return true
}
