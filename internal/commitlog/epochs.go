package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// epochFileName is the name of a partition's epoch checkpoint (E-11, E-12: one file per replica).
const epochFileName = "leader-epoch-checkpoint"

// ErrBadEpoch is returned by Epochs.Assign, and by what calls it, when an epoch or its start offset is negative.
var ErrBadEpoch = errors.New("leader epoch and its start offset must not be negative")

// EpochEntry says that Start is the first offset that belongs to Epoch (E-10).
type EpochEntry struct {
	Epoch meta.Epoch
	Start int64
}

// Epochs is the lineage of a log: which leader epoch wrote which offsets. Both columns are strictly increasing. It is
// an immutable value: the methods that change it return another one, so a reader may keep and share what it was given.
// The zero value is the lineage of a log without epochs.
type Epochs []EpochEntry

// Assign says that epoch writes from start on (E-13). Nothing changes if epoch is the latest one and start is not below
// its start. Otherwise entries at the tail with an epoch not below epoch, or a start not below start, give way to the
// new one; removed holds them if one of them had data, which deserves a warning. It returns ErrBadEpoch for negative
// arguments.
func (e Epochs) Assign(epoch meta.Epoch, start int64) (assigned Epochs, removed []EpochEntry, err error) {
	if epoch < 0 || start < 0 {
		return e, nil, fmt.Errorf("assign epoch %d from offset %d: %w", epoch, start, ErrBadEpoch)
	}
	if last, found := e.Latest(); found && last.Epoch == epoch && start >= last.Start {
		return e, nil, nil
	}
	kept := len(e)
	for kept > 0 && (e[kept-1].Epoch >= epoch || e[kept-1].Start >= start) {
		kept--
	}
	if gone := e[kept:]; len(gone) > 1 || (len(gone) == 1 && gone[0].Start != start) {
		removed = slices.Clone(gone)
	}
	assigned = make(Epochs, kept, kept+1)
	copy(assigned, e)
	return append(assigned, EpochEntry{Epoch: epoch, Start: start}), removed, nil
}

// TruncateFromEnd removes the entries that start at end or above (E-15).
func (e Epochs) TruncateFromEnd(end int64) Epochs {
	return slices.Clip(e[:e.firstFrom(end)])
}

// TruncateFromStart removes the entries that end at or below start, the new log start; the epoch of the first offset
// that is left starts there (E-16): {0→0, 1→10, 2→20} becomes {1→15, 2→20} for 15.
func (e Epochs) TruncateFromStart(start int64) Epochs {
	next := e.firstAfter(start)
	if next == 0 || next == 1 && e[0].Start == start {
		return e
	}
	left := slices.Clone(e[next-1:])
	left[0].Start = start
	return left
}

// Latest is the entry of the highest epoch.
func (e Epochs) Latest() (EpochEntry, bool) {
	if len(e) == 0 {
		return EpochEntry{Epoch: meta.NoEpoch, Start: -1}, false
	}
	return e[len(e)-1], true
}

// LatestEpoch is the highest epoch, or meta.NoEpoch.
func (e Epochs) LatestEpoch() meta.Epoch {
	last, _ := e.Latest()
	return last.Epoch
}

// Earliest is the entry of the lowest epoch.
func (e Epochs) Earliest() (EpochEntry, bool) {
	if len(e) == 0 {
		return EpochEntry{Epoch: meta.NoEpoch, Start: -1}, false
	}
	return e[0], true
}

// Floor is the entry of the highest epoch that is not above epoch.
func (e Epochs) Floor(epoch meta.Epoch) (EpochEntry, bool) {
	if above := e.firstAbove(epoch); above > 0 {
		return e[above-1], true
	}
	return EpochEntry{Epoch: meta.NoEpoch, Start: -1}, false
}

// EndFor answers OffsetForLeaderEpoch (E-18, E-24): the highest known epoch not above requested, and its end in a log
// that ends at end. It is (meta.NoEpoch, −1), undefined, when requested is −1 or above all known epochs; for a request
// below the first known epoch it is that request and the start of the first known epoch.
func (e Epochs) EndFor(requested meta.Epoch, end int64) (meta.Epoch, int64) {
	if requested == meta.NoEpoch {
		return meta.NoEpoch, -1
	}
	if last, found := e.Latest(); found && last.Epoch == requested {
		return requested, end
	}
	above := e.firstAbove(requested)
	switch {
	case above == len(e):
		return meta.NoEpoch, -1
	case above == 0:
		return requested, e[0].Start
	default:
		return e[above-1].Epoch, e[above].Start
	}
}

// At is the epoch that wrote offset, or false below the first entry (E-19). An offset beyond the log end belongs to the
// latest epoch.
func (e Epochs) At(offset int64) (meta.Epoch, bool) {
	if next := e.firstAfter(offset); next > 0 {
		return e[next-1].Epoch, true
	}
	return meta.NoEpoch, false
}

// Range is the lineage of the offsets from start to end, as a remote segment carries it (E-20). A negative start stands
// for the log's beginning.
func (e Epochs) Range(start, end int64) Epochs {
	if start >= 0 {
		e = e.TruncateFromStart(start)
	}
	return e.TruncateFromEnd(end)
}

// Diverge is the follower's half of KIP-279 (E-29, E-44): given the leader's answer for the follower's latest epoch
// (the leader's highest epoch not above it, and that epoch's end there), where must a log that ends at end truncate to?
// If done is false, another round with the epoch that is then the latest is needed. leaderEnd −1 (undefined) truncates
// to the high watermark.
func (e Epochs) Diverge(leader meta.Epoch, leaderEnd, end, highWatermark int64) (to int64, done bool) {
	switch {
	case leaderEnd < 0:
		return min(highWatermark, end), true
	case leader == meta.NoEpoch:
		return min(leaderEnd, end), true
	}
	switch local, localEnd := e.EndFor(leader, end); local {
	case leader:
		// Below the first local epoch that is its start: nothing here has the leader's epoch, so nothing is kept.
		return min(localEnd, leaderEnd, end), true
	case meta.NoEpoch:
		return min(leaderEnd, end), true
	default:
		return min(localEnd, end), false
	}
}

// firstFrom is the index of the first entry that starts at offset or above.
func (e Epochs) firstFrom(offset int64) int {
	return sort.Search(len(e), func(i int) bool { return e[i].Start >= offset })
}

// firstAfter is the index of the first entry that starts above offset.
func (e Epochs) firstAfter(offset int64) int {
	return sort.Search(len(e), func(i int) bool { return e[i].Start > offset })
}

// firstAbove is the index of the first entry with an epoch above epoch.
func (e Epochs) firstAbove(epoch meta.Epoch) int {
	return sort.Search(len(e), func(i int) bool { return e[i].Epoch > epoch })
}

// epochCache is a log's lineage together with what its checkpoint file holds. It is not safe for concurrent use: the
// log's lock guards it. It does no I/O: whoever owns the log takes what is unsaved, writes it without the lock, and
// reports it with saved. An entry must be in the file before a recovery point above its start is published; below that
// point recovery does not read batches, above it their headers bring the entry back (D8).
type epochCache struct {
	Epochs
	file Epochs // what the checkpoint file holds
}

// newEpochCache starts from what the checkpoint file holds.
func newEpochCache(file Epochs) epochCache { return epochCache{Epochs: file, file: file} }

// assign is Epochs.Assign on the cache; removed is to be logged when it is not empty.
func (c *epochCache) assign(epoch meta.Epoch, start int64) (removed []EpochEntry, err error) {
	c.Epochs, removed, err = c.Assign(epoch, start)
	return removed, err
}

// truncateFromEnd is Epochs.TruncateFromEnd on the cache. Its file may be written late: loading truncates again (E-15).
func (c *epochCache) truncateFromEnd(end int64) { c.Epochs = c.TruncateFromEnd(end) }

// truncateFromStart is Epochs.TruncateFromStart on the cache.
func (c *epochCache) truncateFromStart(start int64) { c.Epochs = c.TruncateFromStart(start) }

// unsaved is the lineage that the checkpoint file lacks; false when the file is up to date.
func (c *epochCache) unsaved() (Epochs, bool) {
	return c.Epochs, !slices.Equal(c.Epochs, c.file)
}

// saved says that the checkpoint file now holds e.
func (c *epochCache) saved(e Epochs) { c.file = e }

// encodeEpochs is the text of the epoch checkpoint: version, count, then one "epoch start" line for each entry.
func encodeEpochs(e Epochs) []byte {
	lines := newCheckpointLines(len(e))
	for _, entry := range e {
		lines = strconv.AppendInt(lines, int64(entry.Epoch), 10)
		lines = append(lines, ' ')
		lines = strconv.AppendInt(lines, entry.Start, 10)
		lines = append(lines, '\n')
	}
	return lines
}

// decodeEpochs reads the text of an epoch checkpoint. Of two entries with one start, an empty epoch of an old file, the
// earlier is dropped (E-21). It returns ErrBadCheckpoint when the file is to be rebuilt by scanning the log (U-53).
func decodeEpochs(text []byte) (Epochs, error) {
	var epochs Epochs
	err := eachCheckpointLine(text, 2, func(fields [][]byte) error {
		epoch, err := parseNumber(fields[0], 32)
		if err != nil {
			return fmt.Errorf("epoch %q: %w", clip(fields[0]), err)
		}
		start, err := parseNumber(fields[1], 64)
		if err != nil {
			return fmt.Errorf("start offset %q: %w", clip(fields[1]), err)
		}
		entry := EpochEntry{Epoch: meta.Epoch(epoch), Start: start}
		if last, found := epochs.Latest(); found {
			if entry.Epoch <= last.Epoch || entry.Start < last.Start {
				return fmt.Errorf("epoch %d from %d follows epoch %d from %d: entries must ascend",
					entry.Epoch, entry.Start, last.Epoch, last.Start)
			}
			if entry.Start == last.Start {
				epochs = epochs[:len(epochs)-1]
			}
		}
		epochs = append(epochs, entry)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return epochs, nil
}

// clip shortens text from a file for an error message.
func clip(text []byte) []byte { return bytes.ToValidUTF8(text[:min(len(text), 32)], []byte("?")) }
