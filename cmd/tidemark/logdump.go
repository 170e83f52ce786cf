package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

func newLog(io streams, shared *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "log", Short: "Look into log directories, without a broker"}
	cmd.AddCommand(newLogDump(io, shared))
	return cmd
}

type dumpFlags struct{ records, verify bool }

func newLogDump(io streams, shared *clientFlags) *cobra.Command {
	var flags dumpFlags
	cmd := &cobra.Command{
		Use:   "dump (FILE | DIRECTORY)...",
		Short: "Show segments, indexes, snapshots and checkpoints, ours or Kafka's",
		Long: `Show the files of a log directory, whoever wrote them: segments (.log), offset, time and transaction indexes,
producer snapshots, leader epochs, offset checkpoints, partition.metadata and meta.properties. Of a directory, every such
file in it and below. Nothing is changed. With --verify nothing is shown but faults: checksums and records of segments, and
index entries that are not true; the exit code is 1 if there are any.`,
		Args: someArguments,
		RunE: func(_ *cobra.Command, args []string) error {
			names, err := expand(args)
			if err != nil {
				return err
			}
			d := dumper{fsys: vfs.NewDisk(vfs.Options{}), flags: flags, json: shared.json(), out: bufio.NewWriterSize(io.out, 1<<18)}
			d.decompressor = record.NewDecompressor(record.DefaultLimits)
			err = d.all(names, newProgress(io.err, io.out, "read", totalSize(names)), io.err)
			return errors.Join(err, d.out.Flush())
		},
	}
	cmd.Flags().BoolVar(&flags.records, "records", false, "show each record of a segment")
	cmd.Flags().BoolVar(&flags.verify, "verify", false, "check, and show faults only")
	return cmd
}

// expand puts the files that can be shown in the place of each directory, ordered by name.
func expand(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, usageError{err}
		}
		if !info.IsDir() {
			names = append(names, arg)
			continue
		}
		before := len(names)
		err = filepath.WalkDir(arg, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "registry":
				return fs.SkipDir // etcd's files
			case entry.Type().IsRegular() && (commitlog.KindOf(path) != commitlog.UnknownFile || isMeta(path)):
				names = append(names, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(names) == before {
			return nil, usageError{fmt.Errorf("%s: no file of a log directory in it", arg)}
		}
	}
	return names, nil
}

func isMeta(name string) bool { return filepath.Base(name) == "meta.properties" }

// dumper shows one file after the other.
type dumper struct {
	fsys         vfs.FS
	flags        dumpFlags
	json         bool
	out          *bufio.Writer
	decompressor *record.Decompressor
}

// all shows every file; a bad one does not keep the others from being shown.
func (d *dumper) all(names []string, bar *progress, stderr io.Writer) error {
	bad := 0
	var read int64
	for i, name := range names {
		if err := d.file(name); err != nil {
			bad++
			bar.finish()
			fmt.Fprintf(stderr, "%v\n", err)
		}
		read += totalSize([]string{name})
		bar.update(read, int64(i+1), read)
	}
	bar.finish()
	if bad > 0 {
		return fmt.Errorf("%d of %d files are bad", bad, len(names))
	}
	return nil
}

func (d *dumper) file(name string) error {
	kind := commitlog.KindOf(name)
	if isMeta(name) {
		return d.meta(name)
	}
	if d.flags.verify && kind == commitlog.SegmentFile {
		return d.verify(name)
	}
	if kind == commitlog.UnknownFile && d.flags.verify {
		return nil // a clean mark, a lock: nothing to check
	}
	if !d.json && !d.flags.verify && kind != commitlog.UnknownFile {
		fmt.Fprintf(d.out, "%s (%s)\n", name, kind)
	}
	show := d.show
	if d.flags.verify {
		show = func(string, any) error { return nil }
	}
	switch kind {
	case commitlog.SegmentFile:
		return d.segment(name)
	case commitlog.OffsetIndex:
		return each(name, commitlog.InspectOffsetIndex, d.fsys, func(e commitlog.OffsetEntry) error {
			return show(name, offsetLine{e.Offset, e.Position})
		})
	case commitlog.TimeIndex:
		return each(name, commitlog.InspectTimeIndex, d.fsys, func(e commitlog.TimeEntry) error {
			return show(name, timeLine{e.Timestamp, e.Offset})
		})
	case commitlog.TxnIndex:
		return each(name, commitlog.InspectTxnIndex, d.fsys, func(t commitlog.AbortedTxn) error {
			return show(name, txnLine{t.Producer, t.First, t.Last, t.LastStable})
		})
	case commitlog.SnapshotFile:
		return each(name, commitlog.InspectSnapshot, d.fsys, func(p commitlog.Producer) error {
			return show(name, producerLine{p.ID, p.Epoch, p.LastSequence, p.LastTimestamp, p.CoordinatorEpoch, p.TxnStart})
		})
	case commitlog.EpochFile:
		return each(name, inspectEpochs, d.fsys, func(e commitlog.EpochEntry) error {
			return show(name, epochLine{int32(e.Epoch), e.Start})
		})
	case commitlog.OffsetsFile:
		return d.offsets(name, show)
	case commitlog.PartitionFile:
		id, err := commitlog.InspectPartition(d.fsys, name)
		if err != nil {
			return err
		}
		return show(name, partitionLine{id.String()})
	default:
		return fmt.Errorf("%s: not a file of a log directory; want .log, .index, .timeindex, .txnindex, .snapshot, "+
			"a checkpoint, partition.metadata or meta.properties", name)
	}
}

// meta shows what a data directory says of itself.
func (d *dumper) meta(name string) error {
	properties, err := readProperties(name)
	if err != nil || d.flags.verify {
		return err
	}
	if !d.json {
		fmt.Fprintf(d.out, "%s (data directory)\n", name)
	}
	for _, p := range properties {
		if err := d.show(name, metaLine{p.key, p.value}); err != nil {
			return err
		}
	}
	return nil
}

func inspectEpochs(fsys vfs.FS, name string) ([]commitlog.EpochEntry, error) {
	return commitlog.InspectEpochs(fsys, name)
}

// each reads a file and shows each entry.
func each[E any](name string, read func(vfs.FS, string) ([]E, error), fsys vfs.FS, show func(E) error) error {
	entries, err := read(fsys, name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := show(entry); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) offsets(name string, show func(string, any) error) error {
	offsets, err := commitlog.InspectOffsets(d.fsys, name)
	if err != nil {
		return err
	}
	byName := func(a, b commitlog.PartitionName) int { return strings.Compare(a.String(), b.String()) }
	for _, p := range slices.SortedFunc(maps.Keys(offsets), byName) {
		if err := show(name, checkpointLine{p.Topic, p.Partition, offsets[p]}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) verify(name string) error {
	faults, err := commitlog.VerifySegment(d.fsys, name)
	if err == nil && len(faults) > 0 {
		err = errors.New(strings.Join(faults, "\n"))
	}
	return err
}

func (d *dumper) segment(name string) error {
	return commitlog.InspectSegment(d.fsys, name, func(position int64, b record.Batch) error {
		line := batchLine{
			First: b.BaseOffset(), Last: b.LastOffset(), Count: b.Count(), Position: position, Bytes: b.Size(),
			Codec: b.Codec().String(), LeaderEpoch: b.PartitionLeaderEpoch(), MaxTimestamp: b.MaxTimestamp(),
			LogAppendTime: b.LogAppendTime(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
			Sequence: b.BaseSequence(), Transactional: b.Transactional(), Control: b.Control(), CRC: fmt.Sprintf("%08x", b.CRC()),
		}
		if err := b.CheckCRC(); err != nil {
			line.Fault = err.Error()
		}
		if err := d.show(name, line); err != nil {
			return err
		}
		if !d.flags.records || line.Fault != "" {
			return nil
		}
		return d.records(name, b)
	})
}

func (d *dumper) records(name string, b record.Batch) error {
	records := b.Records(d.decompressor)
	for records.Next() {
		r := records.Record()
		line := recordLine{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		for header := range r.Headers() {
			line.Headers = append(line.Headers, jsonHeader{string(header.Key), header.Value})
		}
		if b.Control() {
			if control, err := r.ControlType(); err == nil {
				line.Marker = fmt.Sprint(control)
			}
		}
		if err := d.show(name, line); err != nil {
			return err
		}
	}
	if err := records.Err(); err != nil {
		return fmt.Errorf("%s: batch at offset %d: %w", name, b.BaseOffset(), err)
	}
	return nil
}

// show writes one line, JSON or text.
func (d *dumper) show(name string, line any) error {
	if !d.json {
		_, err := fmt.Fprintf(d.out, "  %v\n", line)
		return err
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		return err
	}
	file, err := json.Marshal(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(d.out, `{"file":%s,%s`+"\n", file, encoded[1:])
	return err
}

func totalSize(names []string) int64 {
	var total int64
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			total += info.Size()
		}
	}
	return total
}
