package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TakenError is returned by Register when a live broker of the same id has another data directory (U-65).
type TakenError struct {
	Broker meta.BrokerID
	Holder Registration
}

// Error names the holder and what to do.
func (e *TakenError) Error() string {
	where := "an unknown address"
	if len(e.Holder.Endpoints) > 0 {
		where = fmt.Sprintf("%s:%d", e.Holder.Endpoints[0].Host, e.Holder.Endpoints[0].Port)
	}
	if e.Holder.Host != "" {
		where += " on host " + e.Holder.Host
	}
	directory := "none"
	if len(e.Holder.Directories) > 0 {
		directory = e.Holder.Directories[0].String()
	}
	return fmt.Sprintf("broker id %d is taken by the broker at %s with data directory id %s: give this one another node.id", e.Broker, where, directory)
}

// Registered is a broker's registration.
type Registered struct {
	Lease Lease
	Epoch int64 // the registration epoch
}

// Register registers a broker, fenced, under a new lease of the given length (D6). A registration of the same data
// directory, left by an earlier life, is taken over by ending its lease; one of another directory is a *TakenError. A
// cluster with a feature level that this build does not have is a *FeatureError. The broker's record, which outlives the
// lease, is written in the same transaction if it says something else.
func (c *Cluster) Register(ctx context.Context, id meta.BrokerID, r Registration, ttl time.Duration) (Registered, error) {
	lease, err := c.store.Grant(ctx, ttl)
	if err != nil {
		return Registered{}, fmt.Errorf("register broker %d: %w", id, err)
	}
	r.Features, r.Version = c.newest(), c.version
	for range conflictRetries {
		levels, err := c.Features(ctx)
		if err == nil {
			err = c.check(id, levels)
		}
		if err != nil {
			return Registered{}, errors.Join(err, ignoreGone(c.store.Revoke(ctx, lease)))
		}
		record, known, err := c.brokerRecord(ctx, id)
		if err != nil {
			return Registered{}, fmt.Errorf("register broker %d: %w", id, err)
		}
		then := []Op{PutLeased(registrationKey(id), encode(r), lease)}
		if record.Rack != r.Rack || !slices.Equal(record.Endpoints, r.Endpoints) {
			record.Rack, record.Endpoints = r.Rack, r.Endpoints
			then = append(then, Put(brokerRecordKey(id), encode(record)))
		}
		result, err := c.store.Txn(ctx, Txn{
			Conds: []Cond{
				Absent(registrationKey(id)), ModifiedAt(featuresKey, levels.Revision), ModifiedAt(brokerRecordKey(id), known),
			},
			Then: then,
			Else: []Op{Get(registrationKey(id))},
		})
		if err != nil {
			return Registered{}, fmt.Errorf("register broker %d: %w", id, err)
		}
		if result.Succeeded {
			return Registered{Lease: lease, Epoch: result.Revision}, nil
		}
		holder := result.Results[0].Entry
		if holder == nil {
			continue
		}
		held, err := decode[Registration](*holder)
		if err == nil && !sharesDirectory(held, r) {
			err = &TakenError{Broker: id, Holder: held}
		}
		if err != nil {
			return Registered{}, errors.Join(err, ignoreGone(c.store.Revoke(ctx, lease)))
		}
		c.logger.Debug("broker takes over its earlier registration", slog.Any("broker", id), slog.Any("registration", holder.Create))
		if err := ignoreGone(c.store.Revoke(ctx, holder.Lease)); err != nil {
			return Registered{}, fmt.Errorf("take over the registration of broker %d: %w", id, err)
		}
	}
	return Registered{}, fmt.Errorf("register broker %d: %w", id, ErrConflict)
}

func sharesDirectory(a, b Registration) bool {
	return slices.ContainsFunc(a.Directories, func(d meta.DirectoryID) bool { return slices.Contains(b.Directories, d) })
}

func ignoreGone(err error) error {
	if errors.Is(err, ErrLeaseGone) {
		return nil
	}
	return err
}

// Unregister ends a registration at once: the broker's keys, and the controller's seat if it holds it, go together.
func (c *Cluster) Unregister(ctx context.Context, r Registered) error {
	if err := ignoreGone(c.store.Revoke(ctx, r.Lease)); err != nil {
		return fmt.Errorf("unregister broker: %w", err)
	}
	return nil
}

// Leave says that a registered broker is about to stop, so that the controller gives what it leads to others. The
// registration stays. ErrLeaseGone: it is over.
func (c *Cluster) Leave(ctx context.Context, id meta.BrokerID, r Registered) error {
	key := registrationKey(id)
	entry, err := c.get(ctx, key)
	if err != nil {
		return fmt.Errorf("leave as broker %d: %w", id, err)
	}
	if entry.Create != r.Epoch {
		return fmt.Errorf("leave as broker %d: the registration is over: %w", id, ErrLeaseGone)
	}
	registration, err := decode[Registration](entry)
	if err != nil {
		return err
	}
	registration.Leaving = true
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{CreatedAt(key, r.Epoch)}, Then: []Op{PutLeased(key, encode(registration), r.Lease)},
	})
	if err != nil {
		return fmt.Errorf("leave as broker %d: %w", id, err)
	}
	if !result.Succeeded {
		return fmt.Errorf("leave as broker %d: the registration is over: %w", id, ErrLeaseGone)
	}
	return nil
}

// BrokerEpoch is the last epoch of a broker, 0 when it was never unfenced. The mark of a clean shutdown names it.
func (c *Cluster) BrokerEpoch(ctx context.Context, id meta.BrokerID) (int64, error) {
	entry, err := c.get(ctx, brokerEpochKey(id))
	if err != nil {
		return 0, fmt.Errorf("read epoch of broker %d: %w", id, err)
	}
	return entry.Mod, nil
}

// MarkUnclean records that a broker's disk has failed it (D9). The mark outlives the broker; Unfence takes it off, once
// the broker has registered as unclean after it and its partitions were swept.
func (c *Cluster) MarkUnclean(ctx context.Context, id meta.BrokerID) error {
	key, err := brokerRecordKey(id), error(nil)
	for range conflictRetries {
		var record brokerRecord
		var known int64
		if record, known, err = c.brokerRecord(ctx, id); err != nil {
			break
		}
		// Written even if it stands: it is the later one that counts for Unfence.
		record.Unclean, record.Unregistered = true, false
		var result TxnResult
		result, err = c.store.Txn(ctx, Txn{Conds: []Cond{ModifiedAt(key, known)}, Then: []Op{Put(key, encode(record))}})
		if err != nil {
			break
		}
		if result.Succeeded {
			return nil
		}
		err = ErrConflict
	}
	return fmt.Errorf("record an I/O error of broker %d: %w", id, err)
}

// brokerRecord reads a broker's record and the revision that changed it last; the zero record and 0 when there is none.
func (c *Cluster) brokerRecord(ctx context.Context, id meta.BrokerID) (brokerRecord, int64, error) {
	entry, err := c.get(ctx, brokerRecordKey(id))
	if err != nil || entry.Mod == 0 {
		return brokerRecord{}, 0, err
	}
	record, err := decode[brokerRecord](entry)
	return record, entry.Mod, err
}

// Forget takes a broker out of the cluster that an operator says does not come back: what waits for it waits no longer
// (D11). It must not be registered: ErrConflict. ErrUnknownBroker: there was none, or it is forgotten already. If it does
// come back it is swept as after an unclean stop, for what it held may have been given to others: that is all that is left on
// record.
func (c *Cluster) Forget(ctx context.Context, id meta.BrokerID) error {
	result, err := c.store.Txn(ctx, Txn{Then: []Op{Get(brokerEpochKey(id)), Get(registrationKey(id)), Get(brokerRecordKey(id))}})
	if err != nil {
		return fmt.Errorf("unregister broker %d: %w", id, err)
	}
	known, registered, record := result.Results[0].Entry, result.Results[1].Entry, result.Results[2].Entry
	if record != nil {
		if value, err := decode[brokerRecord](*record); err != nil || value.Unregistered {
			return fmt.Errorf("unregister broker %d: %w", id, errors.Join(err, ErrUnknownBroker))
		}
	}
	switch {
	case registered != nil:
		return fmt.Errorf("unregister broker %d: it is running: %w", id, ErrConflict)
	case known == nil:
		return fmt.Errorf("unregister broker %d: %w", id, ErrUnknownBroker)
	}
	result, err = c.store.Txn(ctx, Txn{
		Conds: []Cond{Absent(registrationKey(id))},
		Then:  []Op{Put(brokerRecordKey(id), encode(brokerRecord{Unclean: true, Unregistered: true}))},
	})
	if err == nil && !result.Succeeded {
		err = ErrConflict
	}
	if err != nil {
		return fmt.Errorf("unregister broker %d: %w", id, err)
	}
	return c.confirmFor(ctx, id)
}

// confirmFor takes a broker out of every deletion that waits for it.
func (c *Cluster) confirmFor(ctx context.Context, id meta.BrokerID) error {
	var waiting []Entry
	if _, err := c.pages(ctx, deletedPrefix, func(entry Entry) { waiting = append(waiting, entry) }); err != nil {
		return fmt.Errorf("unregister broker %d: %w", id, err)
	}
	for _, entry := range waiting {
		for range conflictRetries {
			tombstone, err := decode[Tombstone](entry)
			if err != nil || entry.Mod == 0 || !slices.Contains(tombstone.Unconfirmed, id) {
				break // confirmed meanwhile, or unreadable, which the state's reader reports
			}
			result, err := c.store.Txn(ctx, Txn{
				Conds: []Cond{ModifiedAt(entry.Key, entry.Mod)}, Then: []Op{confirmed(entry.Key, tombstone, id)}, Else: []Op{Get(entry.Key)},
			})
			if err != nil {
				return fmt.Errorf("unregister broker %d: %w", id, err)
			}
			if result.Succeeded || result.Results[0].Entry == nil {
				break
			}
			entry = *result.Results[0].Entry
		}
	}
	return nil
}

// Unclean tells whether MarkUnclean's mark on a broker stands.
func (c *Cluster) Unclean(ctx context.Context, id meta.BrokerID) (bool, error) {
	record, _, err := c.brokerRecord(ctx, id)
	return record.Unclean, err
}

// Unfence makes a registered broker live, under its own lease. It returns the broker epoch. ErrDeposed: the caller has
// lost the seat; ErrConflict: the registration is another one, or already live.
func (c *Cluster) Unfence(ctx context.Context, seat Seat, broker BrokerState) (epoch int64, err error) {
	id := broker.ID
	value := encode(liveValue{Registration: broker.Registration})
	then := []Op{PutLeased(liveKey(id), value, broker.lease), Put(brokerEpochKey(id), value)}
	if record := broker.record; !broker.Info.Clean && (record.Unclean || record.Unregistered) {
		// The registration may have written the record, in its own revision. A mark that is later stays.
		key := brokerRecordKey(id)
		record.Unclean, record.Unregistered = false, false
		then = append(then, Nest(Txn{
			Conds: []Cond{ModifiedAt(key, broker.recorded), ModifiedBefore(key, broker.Registration+1)}, Then: []Op{Put(key, encode(record))},
		}))
	}
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{seat.cond(), CreatedAt(registrationKey(id), broker.Registration), Absent(liveKey(id))},
		Then:  then,
		Else:  []Op{Get(controllerKey)},
	})
	if errors.Is(err, ErrLeaseGone) {
		err = ErrConflict
	}
	if err != nil {
		return 0, fmt.Errorf("unfence broker %d: %w", id, err)
	}
	if !result.Succeeded {
		return 0, fmt.Errorf("unfence broker %d: %w", id, seat.lost(result.Results[0].Entry))
	}
	return result.Revision, nil
}

// Fence takes a broker's live key away: it leads nothing until the controller unfences it again.
func (c *Cluster) Fence(ctx context.Context, seat Seat, broker BrokerState) error {
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{seat.cond(), CreatedAt(liveKey(broker.ID), broker.Live)},
		Then:  []Op{Delete(liveKey(broker.ID))},
		Else:  []Op{Get(controllerKey)},
	})
	if err != nil {
		return fmt.Errorf("fence broker %d: %w", broker.ID, err)
	}
	if !result.Succeeded {
		return fmt.Errorf("fence broker %d: %w", broker.ID, seat.lost(result.Results[0].Entry))
	}
	return nil
}

// Seat is a term of the controller.
type Seat struct {
	Broker   meta.BrokerID
	Epoch    int64 // the controller epoch
	Revision int64 // create revision of the seat's key: the condition of every write of the controller
}

func (s Seat) cond() Cond { return CreatedAt(controllerKey, s.Revision) }

// lost says why a guarded write did not happen, given what is under the controller's key.
func (s Seat) lost(entry *Entry) error {
	if entry == nil || entry.Create != s.Revision {
		return ErrDeposed
	}
	return ErrConflict
}

// Elect takes the controller's seat for a registered broker if it is free. When it is not, won is false and the seat is
// the present holder's.
func (c *Cluster) Elect(ctx context.Context, id meta.BrokerID, r Registered) (seat Seat, won bool, err error) {
	for range conflictRetries {
		read, err := c.store.Txn(ctx, Txn{Then: []Op{Get(controllerKey), Get(controllerEpochKey), Get(registrationKey(id))}})
		if err != nil {
			return Seat{}, false, fmt.Errorf("elect controller: %w", err)
		}
		holder, last, mine := read.Results[0].Entry, read.Results[1].Entry, read.Results[2].Entry
		if mine == nil || mine.Create != r.Epoch {
			return Seat{}, false, fmt.Errorf("elect controller: the registration is over: %w", ErrLeaseGone)
		}
		if holder != nil {
			value, err := decode[controllerValue](*holder)
			return Seat{Broker: value.Broker, Epoch: value.Epoch, Revision: holder.Create}, false, err
		}
		var epoch, mod int64
		if last != nil {
			value, err := decode[controllerValue](*last)
			if err != nil {
				return Seat{}, false, err
			}
			epoch, mod = value.Epoch, last.Mod
		}
		value := encode(controllerValue{Broker: id, Epoch: epoch + 1})
		result, err := c.store.Txn(ctx, Txn{
			Conds: []Cond{Absent(controllerKey), ModifiedAt(controllerEpochKey, mod), CreatedAt(registrationKey(id), r.Epoch)},
			Then:  []Op{PutLeased(controllerKey, value, r.Lease), Put(controllerEpochKey, value)},
		})
		if err != nil {
			return Seat{}, false, fmt.Errorf("elect controller: %w", err)
		}
		if result.Succeeded {
			return Seat{Broker: id, Epoch: epoch + 1, Revision: result.Revision}, true, nil
		}
	}
	return Seat{}, false, fmt.Errorf("elect controller: %w", ErrConflict)
}

// AwaitVacancy returns when the holder that Elect named has left the controller's seat.
func (c *Cluster) AwaitVacancy(ctx context.Context, holder Seat) error {
	page, err := c.store.Range(ctx, Range{Prefix: controllerKey, Limit: 1})
	if err != nil {
		return fmt.Errorf("watch the controller's seat: %w", err)
	}
	if len(page.Entries) == 0 || page.Entries[0].Key != controllerKey || page.Entries[0].Create != holder.Revision {
		return nil
	}
	vacant := errors.New("vacant")
	err = c.store.Watch(ctx, controllerKey, page.Revision+1, func(changes Changes) error {
		for _, event := range changes.Events {
			if event.Deleted && event.Entry.Key == controllerKey {
				return vacant
			}
		}
		return nil
	})
	if errors.Is(err, vacant) || errors.Is(err, ErrCompacted) {
		return nil
	}
	return fmt.Errorf("watch the controller's seat: %w", err)
}
