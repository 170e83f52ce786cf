package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// memoryHistory is how many revisions a Memory keeps for reads of the past and for watchers that fell behind.
const memoryHistory = 100_000

// Memory is a Store in memory, for tests and simulation. It starts no goroutine; leases end by timers, so in a
// synctest bubble time is the bubble's.
type Memory struct {
	mu struct {
		sync.Mutex
		closed    bool
		revision  int64
		compacted int64                // revisions below it are gone
		keys      []string             // sorted; keys that were deleted lately too
		versions  map[string][]version // in order of revisions
		log       []Event              // in order of revisions
		changed   chan struct{}        // closed and replaced by every revision
		leases    map[Lease]*memoryLease
		lastLease Lease
	}
}

// version is the state of a key from a revision on.
type version struct {
	revision int64
	deleted  bool
	entry    Entry
}

type memoryLease struct {
	ttl   time.Duration
	timer *time.Timer
	keys  map[string]bool
}

// NewMemory is an empty store at revision 1, as a new etcd is.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.revision = 1
	m.mu.versions = make(map[string][]version)
	m.mu.changed = make(chan struct{})
	m.mu.leases = make(map[Lease]*memoryLease)
	return m
}

// Range implements Store.
func (m *Memory) Range(ctx context.Context, r Range) (Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return Page{}, err
	}
	at := m.mu.revision
	if r.Revision != 0 {
		at = r.Revision
	}
	if at < m.mu.compacted {
		return Page{}, fmt.Errorf("read at revision %d: %w", at, ErrCompacted)
	}
	page := Page{Revision: at}
	start := sort.SearchStrings(m.mu.keys, r.Prefix)
	if r.After != "" {
		start = sort.SearchStrings(m.mu.keys, r.After+"\x00")
	}
	for _, key := range m.mu.keys[start:] {
		if !strings.HasPrefix(key, r.Prefix) {
			break
		}
		entry, found := m.getLocked(key, at)
		if !found {
			continue
		}
		if r.Limit > 0 && len(page.Entries) == r.Limit {
			page.More = true
			break
		}
		page.Entries = append(page.Entries, entry)
	}
	return page, nil
}

// getLocked is the state of a key at a revision.
func (m *Memory) getLocked(key string, at int64) (Entry, bool) {
	versions := m.mu.versions[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].revision <= at {
			return versions[i].entry, !versions[i].deleted
		}
	}
	return Entry{}, false
}

// Txn implements Store.
func (m *Memory) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	if err := checkTxn(&t, 128); err != nil {
		return TxnResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return TxnResult{}, err
	}
	if err := m.leasesExistLocked(&t); err != nil {
		return TxnResult{}, err
	}
	w := &memoryWrite{m: m, revision: m.mu.revision + 1}
	result := w.run(&t)
	w.commitLocked()
	setRevision(&result, m.mu.revision)
	return result, nil
}

func setRevision(r *TxnResult, revision int64) {
	r.Revision = revision
	for i := range r.Results {
		if r.Results[i].Txn != nil {
			setRevision(r.Results[i].Txn, revision)
		}
	}
}

// memoryWrite is one transaction under way; the store is locked.
type memoryWrite struct {
	m        *Memory
	revision int64 // of its writes
	events   []Event
}

// run does t. Conditions, nested ones too, are judged by the state before the whole transaction, as in etcd; reads see
// the writes before them.
func (w *memoryWrite) run(t *Txn) TxnResult {
	result := TxnResult{Succeeded: true}
	for _, c := range t.Conds {
		result.Succeeded = result.Succeeded && w.holds(c)
	}
	ops := t.Else
	if result.Succeeded {
		ops = t.Then
	}
	result.Results = make([]OpResult, len(ops))
	for i, op := range ops {
		switch op.kind {
		case opPut:
			w.put(op)
		case opDelete:
			result.Results[i].Deleted = w.delete(op.key)
		case opDeletePrefix:
			for _, entry := range w.m.presentLocked(op.key, w.revision) {
				result.Results[i].Deleted += w.delete(entry.Key)
			}
		case opGet:
			if entry, found := w.m.getLocked(op.key, w.revision); found {
				result.Results[i].Entry = &entry
			}
		case opNest:
			inner := w.run(op.txn)
			result.Results[i].Txn = &inner
		}
	}
	return result
}

func (w *memoryWrite) holds(c Cond) bool {
	if c.prefix {
		for _, entry := range w.m.presentLocked(c.key, w.revision-1) {
			if !holdsFor(c, entry) {
				return false
			}
		}
		return true
	}
	entry, found := w.m.getLocked(c.key, w.revision-1)
	if !found {
		entry = Entry{}
	}
	return holdsFor(c, entry)
}

func holdsFor(c Cond, entry Entry) bool {
	switch c.target {
	case createIs:
		return entry.Create == c.value
	case createAbove:
		return entry.Create > c.value
	case versionIs:
		return entry.Version == c.value
	case modIs:
		return entry.Mod == c.value
	default:
		return entry.Mod < c.value
	}
}

func (w *memoryWrite) put(op Op) {
	m := w.m
	entry := Entry{Key: op.key, Value: slices.Clone(op.value), Create: w.revision, Mod: w.revision, Version: 1, Lease: op.lease}
	if old, found := m.getLocked(op.key, w.revision); found {
		entry.Create, entry.Version = old.Create, old.Version+1
		m.detachLocked(old)
	}
	if lease := m.mu.leases[op.lease]; lease != nil {
		lease.keys[op.key] = true
	}
	w.record(version{revision: w.revision, entry: entry})
	w.events = append(w.events, Event{Entry: entry})
}

func (w *memoryWrite) delete(key string) int64 {
	old, found := w.m.getLocked(key, w.revision)
	if !found {
		return 0
	}
	w.m.detachLocked(old)
	w.record(version{revision: w.revision, deleted: true, entry: Entry{Key: key, Mod: w.revision}})
	w.events = append(w.events, Event{Deleted: true, Entry: Entry{Key: key, Mod: w.revision}})
	return 1
}

func (w *memoryWrite) record(v version) {
	key := v.entry.Key
	if _, known := w.m.mu.versions[key]; !known {
		i := sort.SearchStrings(w.m.mu.keys, key)
		w.m.mu.keys = slices.Insert(w.m.mu.keys, i, key)
	}
	w.m.mu.versions[key] = append(w.m.mu.versions[key], v)
}

// commitLocked makes the transaction the store's new revision, if it wrote anything.
func (w *memoryWrite) commitLocked() {
	if len(w.events) == 0 {
		return
	}
	m := w.m
	m.mu.revision = w.revision
	m.mu.log = append(m.mu.log, w.events...)
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
	if m.mu.revision-m.mu.compacted > 2*memoryHistory {
		m.compactLocked(m.mu.revision - memoryHistory)
	}
}

// presentLocked lists the keys with a prefix that exist at a revision.
func (m *Memory) presentLocked(prefix string, at int64) []Entry {
	var present []Entry
	for _, key := range m.mu.keys[sort.SearchStrings(m.mu.keys, prefix):] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if entry, found := m.getLocked(key, at); found {
			present = append(present, entry)
		}
	}
	return present
}

// detachLocked takes a key that is replaced or deleted off its lease.
func (m *Memory) detachLocked(old Entry) {
	if lease := m.mu.leases[old.Lease]; lease != nil {
		delete(lease.keys, old.Key)
	}
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, prefix string, from int64, handle func(Changes) error) error {
	for {
		changes, changed, err := m.since(ctx, prefix, from)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if len(changes.Events) > 0 {
			if err := handle(changes); err != nil {
				return err
			}
		}
		from = max(from, changes.Revision+1)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// since collects the events from a revision on, and the channel that the next revision closes.
func (m *Memory) since(ctx context.Context, prefix string, from int64) (Changes, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return Changes{}, nil, err
	}
	if from <= m.mu.compacted && from != 0 {
		return Changes{}, nil, fmt.Errorf("from revision %d, compacted up to %d: %w", from, m.mu.compacted, ErrCompacted)
	}
	if from == 0 {
		from = m.mu.revision + 1
	}
	changes := Changes{Revision: max(from-1, m.mu.revision)}
	start := sort.Search(len(m.mu.log), func(i int) bool { return m.mu.log[i].Entry.Mod >= from })
	for _, event := range m.mu.log[start:] {
		if strings.HasPrefix(event.Entry.Key, prefix) {
			event.Entry.Value = slices.Clone(event.Entry.Value)
			changes.Events = append(changes.Events, event)
		}
	}
	return changes, m.mu.changed, nil
}

// Compact forgets what was before the revision.
func (m *Memory) Compact(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compactLocked(revision)
}

func (m *Memory) compactLocked(revision int64) {
	m.mu.compacted = max(m.mu.compacted, revision)
	start := sort.Search(len(m.mu.log), func(i int) bool { return m.mu.log[i].Entry.Mod > revision })
	m.mu.log = slices.Clone(m.mu.log[start:])
	m.mu.keys = slices.DeleteFunc(m.mu.keys, func(key string) bool {
		versions := m.mu.versions[key]
		// The last version at or before the revision is still its state then.
		first := sort.Search(len(versions), func(i int) bool { return versions[i].revision > revision }) - 1
		if first > 0 {
			versions = slices.Clone(versions[first:])
		}
		if len(versions) == 1 && versions[0].deleted && versions[0].revision <= revision {
			delete(m.mu.versions, key)
			return true
		}
		m.mu.versions[key] = versions
		return false
	})
}

// Grant implements Store.
func (m *Memory) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return NoLease, fmt.Errorf("grant lease: %w", err)
	}
	m.mu.lastLease++
	id := m.mu.lastLease
	m.mu.leases[id] = &memoryLease{ttl: ttl, keys: make(map[string]bool), timer: time.AfterFunc(ttl, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.endLeaseLocked(id)
	})}
	return id, nil
}

// KeepAlive implements Store.
func (m *Memory) KeepAlive(ctx context.Context, id Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	lease := m.mu.leases[id]
	if lease == nil {
		return fmt.Errorf("renew lease: %w", ErrLeaseGone)
	}
	lease.timer.Reset(lease.ttl)
	return nil
}

// Revoke implements Store.
func (m *Memory) Revoke(ctx context.Context, id Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return fmt.Errorf("revoke lease: %w", err)
	}
	if m.mu.leases[id] == nil {
		return fmt.Errorf("revoke lease: %w", ErrLeaseGone)
	}
	m.endLeaseLocked(id)
	return nil
}

func (m *Memory) endLeaseLocked(id Lease) {
	lease := m.mu.leases[id]
	if lease == nil || m.mu.closed {
		return
	}
	lease.timer.Stop()
	w := &memoryWrite{m: m, revision: m.mu.revision + 1}
	for _, key := range slices.Sorted(maps.Keys(lease.keys)) {
		w.delete(key)
	}
	delete(m.mu.leases, id)
	w.commitLocked()
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil
	}
	m.mu.closed = true
	for _, lease := range m.mu.leases {
		lease.timer.Stop()
	}
	close(m.mu.changed)
	return nil
}

func (m *Memory) usableLocked(ctx context.Context) error {
	if m.mu.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// leasesExistLocked refuses a transaction that puts under a lease that is over.
func (m *Memory) leasesExistLocked(t *Txn) error {
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.kind == opNest:
				if err := m.leasesExistLocked(op.txn); err != nil {
					return err
				}
			case op.kind == opPut && op.lease != NoLease && m.mu.leases[op.lease] == nil:
				return fmt.Errorf("write: %w", ErrLeaseGone)
			}
		}
	}
	return nil
}

// checkTxn applies etcd's rules: a bound on operations that nested transactions share, and no key written twice.
func checkTxn(t *Txn, operations int) error {
	if err := checkSize(t, operations); err != nil {
		return err
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
		if _, err := checkKeys(ops); err != nil {
			return err
		}
	}
	return nil
}

func checkSize(t *Txn, operations int) error {
	width := max(len(t.Conds), len(t.Then), len(t.Else))
	if width > operations {
		return fmt.Errorf("write: %d operations: %w", width, ErrTooLarge)
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			if op.kind == opNest {
				if err := checkSize(op.txn, operations-width); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkKeys returns the keys that ops put. A Then and an Else exclude each other, so each may put the same key.
func checkKeys(ops []Op) (map[string]bool, error) {
	puts := make(map[string]bool)
	add := func(key string) error {
		if puts[key] {
			return fmt.Errorf("write %s: %w", key, ErrDuplicateKey)
		}
		puts[key] = true
		return nil
	}
	for _, op := range ops {
		switch op.kind {
		case opPut:
			if err := add(op.key); err != nil {
				return nil, err
			}
		case opNest:
			then, err := checkKeys(op.txn.Then)
			if err != nil {
				return nil, err
			}
			otherwise, err := checkKeys(op.txn.Else)
			if err != nil {
				return nil, err
			}
			maps.Copy(then, otherwise)
			for key := range then {
				if err := add(key); err != nil {
					return nil, err
				}
			}
		default: // deletions are compared below, reads do not matter
		}
	}
	for _, op := range ops {
		if op.kind != opDelete && op.kind != opDeletePrefix {
			continue
		}
		for key := range puts {
			if key == op.key || op.kind == opDeletePrefix && strings.HasPrefix(key, op.key) {
				return nil, fmt.Errorf("write and delete %s: %w", key, ErrDuplicateKey)
			}
		}
	}
	return puts, nil
}
