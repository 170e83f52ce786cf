package registry

import (
	"context"
	"errors"
	"time"
)

// Limits of one transaction. External etcd has a default limit of 128 operations, which a nested transaction shares
// with the one around it: so at most 64 nested ones of at most 64 operations each (D3).
const (
	nestedMax   = 64
	nestedOps   = 64
	flatOps     = 100       // operations of a transaction without nested ones
	txnBytesMax = 1_000_000 // of keys and values, below etcd's default limit of 1.5 MiB
	pageEntries = 10_000    // entries of one page of a long read
	inFlightMax = 16        // transactions of one call under way: one more would wait for the disk all the same
)

var (
	// ErrCompacted is returned by Watch and Range when the wanted revision was compacted away: read again, then watch.
	ErrCompacted = errors.New("registry revision is compacted")

	// ErrLeaseGone is returned by KeepAlive, Revoke and a Txn that puts under a lease when the lease has expired or was
	// revoked.
	ErrLeaseGone = errors.New("registry lease is gone")

	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("registry is closed")

	// ErrFailed is returned by every method after the embedded member met an error that it cannot survive, such as a full
	// disk. It comes back only in a new process (D3).
	ErrFailed = errors.New("embedded registry has failed")

	// ErrUnavailable is returned when no majority of the registry answered in time. The outcome of a write is unknown.
	ErrUnavailable = errors.New("registry is unavailable")

	// ErrFull is returned by writes when the store's quota is exhausted.
	ErrFull = errors.New("registry has no space left")

	// ErrTooLarge is returned by Txn when it has more operations or bytes than a store accepts.
	ErrTooLarge = errors.New("registry transaction is too large")

	// ErrDuplicateKey is returned by Txn when it would write a key twice.
	ErrDuplicateKey = errors.New("registry transaction writes a key twice")
)

// Store is a key-value store with revisions, as etcd is one: each transaction that writes raises the revision of the
// whole store by one. Reads and transactions are linearizable. Methods may be called concurrently.
type Store interface {
	// Range reads one page of the keys that a prefix has, in order of keys.
	Range(ctx context.Context, r Range) (Page, error)

	// Txn does t.Then if all of t.Conds hold, else t.Else, atomically. On an error that is not one of this package's
	// refusals the outcome is unknown.
	Txn(ctx context.Context, t Txn) (TxnResult, error)

	// Watch calls handle with every change of keys with the prefix, from the revision on, whole revisions at a time and
	// in order, until ctx ends, handle fails, or ErrCompacted. It always returns an error; the values that it hands out
	// belong to handle.
	Watch(ctx context.Context, prefix string, from int64, handle func(Changes) error) error

	// Grant makes a lease that ends ttl after its last renewal; a store may round it up.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)

	// KeepAlive renews a lease once. Only ErrLeaseGone says that it is over.
	KeepAlive(ctx context.Context, lease Lease) error

	// Revoke ends a lease now and deletes its keys.
	Revoke(ctx context.Context, lease Lease) error

	// Close ends all calls. It does not end leases.
	Close() error
}

// Lease identifies a lease; NoLease stands for a key that stays.
type Lease int64

// NoLease is the lease of a key that stays until it is deleted.
const NoLease Lease = 0

// Entry is a key and its value.
type Entry struct {
	Key     string
	Value   []byte
	Create  int64 // revision that created the key
	Mod     int64 // revision of its last change
	Version int64 // 1 when created, one more with each change
	Lease   Lease
}

// Range asks for one page.
type Range struct {
	Prefix   string
	After    string // only keys above it; empty for all
	Limit    int    // entries, 0 for all
	Revision int64  // as of this revision, 0 for now
}

// Page answers Range.
type Page struct {
	Entries  []Entry
	Revision int64 // the store's revision when it was read, or the wanted one
	More     bool  // there are keys after the last entry
}

// Changes is what Watch hands out.
type Changes struct {
	Events   []Event
	Revision int64 // everything up to this revision was handed out
}

// Event is one change of one key.
type Event struct {
	Deleted bool  // then Entry has no value, and Mod is the revision of the deletion
	Entry   Entry // the new state
}

// Txn is a transaction.
type Txn struct {
	Conds []Cond
	Then  []Op
	Else  []Op
}

// Cond is one condition of a transaction; make it with Absent, Exists, CreatedAt, HasVersion, ModifiedAt,
// ModifiedBefore or UnchangedSince.
type Cond struct {
	key    string
	prefix bool
	target condTarget
	value  int64
}

type condTarget uint8

const (
	createIs condTarget = iota
	createAbove
	versionIs
	modIs
	modBelow
)

// Absent holds if there is no such key.
func Absent(key string) Cond { return Cond{key: key, target: createIs} }

// Exists holds if there is such a key.
func Exists(key string) Cond { return Cond{key: key, target: createAbove} }

// CreatedAt holds if the key was created by that revision and not deleted since; 0 is Absent.
func CreatedAt(key string, revision int64) Cond {
	return Cond{key: key, target: createIs, value: revision}
}

// HasVersion holds if the key has that version; 0 is Absent.
func HasVersion(key string, version int64) Cond {
	return Cond{key: key, target: versionIs, value: version}
}

// ModifiedAt holds if that revision changed the key last; 0 is Absent.
func ModifiedAt(key string, revision int64) Cond {
	return Cond{key: key, target: modIs, value: revision}
}

// ModifiedBefore holds if the key was last changed before that revision, or is absent.
func ModifiedBefore(key string, revision int64) Cond {
	return Cond{key: key, target: modBelow, value: revision}
}

// UnchangedSince holds if no present key with the prefix was changed after the revision. It does not see deletions.
func UnchangedSince(prefix string, revision int64) Cond {
	return Cond{key: prefix, prefix: true, target: modBelow, value: revision + 1}
}

// Op is one operation of a transaction; make it with Put, Delete, DeletePrefix, Get or Nest.
type Op struct {
	kind  opKind
	key   string
	value []byte
	lease Lease
	txn   *Txn
}

type opKind uint8

const (
	opPut opKind = iota + 1
	opDelete
	opDeletePrefix
	opGet
	opNest
)

// Put sets a key. The value must not change until the transaction has returned.
func Put(key string, value []byte) Op { return Op{kind: opPut, key: key, value: value} }

// PutLeased sets a key that goes with its lease.
func PutLeased(key string, value []byte, lease Lease) Op {
	return Op{kind: opPut, key: key, value: value, lease: lease}
}

// Delete removes a key, if there is one.
func Delete(key string) Op { return Op{kind: opDelete, key: key} }

// DeletePrefix removes all keys with the prefix.
func DeletePrefix(prefix string) Op { return Op{kind: opDeletePrefix, key: prefix} }

// Get reads a key as the operations before it left it.
func Get(key string) Op { return Op{kind: opGet, key: key} }

// Nest does a transaction inside the other one: its conditions decide about its own operations only.
func Nest(t Txn) Op { return Op{kind: opNest, txn: &t} }

// TxnResult answers Txn.
type TxnResult struct {
	Succeeded bool  // Then was done, not Else
	Revision  int64 // the store's revision after it
	Results   []OpResult
}

// OpResult answers one operation.
type OpResult struct {
	Entry   *Entry     // Get: nil when there is no such key
	Deleted int64      // Delete, DeletePrefix: keys removed
	Txn     *TxnResult // Nest
}
