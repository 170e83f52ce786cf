package commitlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Names of the checkpoint files of a data directory, Kafka's own.
const (
	recoveryPointFileName = "recovery-point-offset-checkpoint"
	logStartFileName      = "log-start-offset-checkpoint"
	highWatermarkFileName = "replication-offset-checkpoint"
	cleanerFileName       = "cleaner-offset-checkpoint"
)

// checkpointVersion is the only version of Kafka's checkpoint files.
const checkpointVersion = 0

// checkpointBytesMax bounds what is read of a checkpoint file: 64 MiB are half a million partitions with long names.
const checkpointBytesMax = 64 << 20

// ErrBadCheckpoint is returned when a checkpoint file does not parse: wrong version, wrong count, a malformed line. What
// it held is to be rebuilt.
var ErrBadCheckpoint = errors.New("malformed checkpoint file")

// PartitionName names a partition as the checkpoint files of a data directory do: by its topic's name.
type PartitionName struct {
	Topic     string
	Partition int32
}

// String is the name of the partition's directory.
func (p PartitionName) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Partition)) }

// encodeOffsets is the text of an offset checkpoint: version, count, then one "topic partition offset" line for each
// entry, sorted so that equal content has equal bytes.
func encodeOffsets(offsets map[PartitionName]int64) []byte {
	names := make([]PartitionName, 0, len(offsets))
	for name := range offsets {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b PartitionName) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	lines := newCheckpointLines(len(names))
	for _, name := range names {
		lines = append(lines, name.Topic...)
		lines = append(lines, ' ')
		lines = strconv.AppendInt(lines, int64(name.Partition), 10)
		lines = append(lines, ' ')
		lines = strconv.AppendInt(lines, offsets[name], 10)
		lines = append(lines, '\n')
	}
	return lines
}

// decodeOffsets reads the text of an offset checkpoint. It returns ErrBadCheckpoint when the file is not to be believed;
// a partition that is named twice is an error too.
func decodeOffsets(text []byte) (map[PartitionName]int64, error) {
	offsets := map[PartitionName]int64{}
	err := eachCheckpointLine(text, 3, func(fields [][]byte) error {
		partition, err := parseNumber(fields[1], 32)
		if err != nil {
			return fmt.Errorf("partition %q: %w", clip(fields[1]), err)
		}
		offset, err := parseNumber(fields[2], 64)
		if err != nil {
			return fmt.Errorf("offset %q: %w", clip(fields[2]), err)
		}
		name := PartitionName{Topic: string(fields[0]), Partition: int32(partition)}
		if _, twice := offsets[name]; twice {
			return fmt.Errorf("partition %s is named twice", clip([]byte(name.String())))
		}
		offsets[name] = offset
		return nil
	})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// newCheckpointLines starts the text of a checkpoint file of count entries.
func newCheckpointLines(count int) []byte {
	lines := make([]byte, 0, 16+32*count)
	lines = strconv.AppendInt(lines, checkpointVersion, 10)
	lines = append(lines, '\n')
	lines = strconv.AppendInt(lines, int64(count), 10)
	return append(lines, '\n')
}

// eachCheckpointLine checks the frame of a checkpoint file (version, count, as many lines as the count says) and hands
// the fields of each entry to entry. All errors are ErrBadCheckpoint, with the line's number.
func eachCheckpointLine(text []byte, fieldCount int, entry func(fields [][]byte) error) error {
	number := 0
	next := func() (line []byte, found bool) {
		if len(text) == 0 {
			return nil, false
		}
		number++
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		return bytes.TrimSuffix(line, []byte{'\r'}), true
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: line %d: %w", ErrBadCheckpoint, max(number, 1), fmt.Errorf(format, args...))
	}

	line, _ := next()
	if version, err := parseNumber(line, 32); err != nil || version != checkpointVersion {
		return bad("version %q, want %d", clip(line), checkpointVersion)
	}
	line, _ = next()
	count, err := parseNumber(line, 32)
	if err != nil {
		return bad("count %q: %w", clip(line), err)
	}
	for range count {
		line, found := next()
		if !found {
			return bad("%d entries announced, the file ends after %d lines", count, number)
		}
		fields := bytes.Fields(line)
		if len(fields) != fieldCount {
			return bad("%d fields, want %d", len(fields), fieldCount)
		}
		if err := entry(fields); err != nil {
			return bad("%w", err)
		}
	}
	if line, found := next(); found {
		return bad("%q after the %d announced entries", clip(line), count)
	}
	return nil
}

// errNotANumber is the reason inside ErrBadCheckpoint when a field should be a decimal number that is not negative.
var errNotANumber = errors.New("not a decimal number from 0 on that fits its type")

// parseNumber reads a decimal number that is not negative and fits in bits, without sign or blanks.
func parseNumber(text []byte, bits int) (int64, error) {
	if len(text) == 0 || text[0] < '0' || text[0] > '9' {
		return 0, errNotANumber
	}
	number, err := strconv.ParseInt(string(text), 10, bits)
	if err != nil {
		return 0, errNotANumber
	}
	return number, nil
}
