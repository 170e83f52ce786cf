package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// idlePoll is how long consume waits for records before it writes out what it holds and looks whether it is done.
const idlePoll = 200 * time.Millisecond

type consumeFlags struct {
	fromBeginning bool
	offset        int64
	exitAtEnd     bool
	count         int64
	partitions    []int32
	key           bool
	committed     bool
}

func newConsume(io streams, shared *clientFlags) *cobra.Command {
	var flags consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print the records of a topic, one a line",
		Long: `Print the value of each record, one a line. Without --from-beginning or --offset only records that arrive after
the start are printed.`,
		Args: exactArguments(1),

		ValidArgsFunction: completeTopics(shared, 1, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("offset") && flags.fromBeginning {
				return usageError{errors.New("--offset and --from-beginning exclude each other")}
			}
			if cmd.Flags().Changed("count") && flags.count < 1 {
				return usageError{fmt.Errorf("-n %d: want a positive number of records", flags.count)}
			}
			if cmd.Flags().Changed("offset") && flags.offset < 0 {
				return usageError{fmt.Errorf("--offset %d: want 0 or more; --from-beginning starts at the first record kept", flags.offset)}
			}
			return consume(cmd.Context(), io, shared, &flags, args[0])
		},
	}
	cmd.Flags().BoolVar(&flags.fromBeginning, "from-beginning", false, "start at the first record kept")
	cmd.Flags().Int64Var(&flags.offset, "offset", -1, "start at this `offset`")
	cmd.Flags().BoolVar(&flags.exitAtEnd, "exit-at-end", false, "stop at the end that the log has now")
	cmd.Flags().Int64VarP(&flags.count, "count", "n", 0, "stop after this `number` of records")
	cmd.Flags().Int32SliceVar(&flags.partitions, "partition", nil, "consume only these `partitions`")
	cmd.Flags().BoolVar(&flags.key, "key", false, "print the key and a tab before the value")
	cmd.Flags().BoolVar(&flags.committed, "committed", false, "skip records of open and aborted transactions")
	hideDefaults(cmd, "offset", "partition")
	return cmd
}

func consume(ctx context.Context, io streams, shared *clientFlags, flags *consumeFlags, topic string) error {
	admin, err := shared.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	spans, err := consumeSpans(ctx, admin, topic, flags)
	if err != nil {
		return err
	}
	c := consumer{flags: flags, spans: spans, json: shared.json(), out: bufio.NewWriterSize(io.out, 1<<18), topic: topic}
	if flags.exitAtEnd && c.done() {
		return nil
	}

	offsets := make(map[int32]kgo.Offset, len(spans))
	for partition, span := range spans {
		offsets[partition] = kgo.NewOffset().At(span.next)
	}
	opts := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchMaxWait(idlePoll),
		kgo.FetchMaxBytes(32 << 20),
		kgo.FetchMaxPartitionBytes(4 << 20),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	if flags.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := shared.client(ctx, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()

	var total int64
	if flags.exitAtEnd {
		for _, span := range spans {
			total += span.end - span.next
		}
	}
	if flags.count > 0 && (total == 0 || flags.count < total) {
		total = flags.count
	}
	bar := newProgress(io.err, io.out, "consumed", total)
	err = c.run(ctx, cl, bar)
	bar.finish()
	return errors.Join(err, c.out.Flush())
}

// span is what is left to consume of a partition: offsets in [next, end); end matters with --exit-at-end only.
type span struct{ next, end int64 }

// consumeSpans finds the partitions and where to begin and end in each.
func consumeSpans(ctx context.Context, admin *kadm.Client, topic string, flags *consumeFlags) (map[int32]*span, error) {
	details, err := admin.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("consume %s: %w", topic, err)
	}
	if err := details[topic].Err; err != nil {
		return nil, explained("consume "+topic, err, "")
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("consume %s: %w", topic, err)
	}
	list := admin.ListEndOffsets
	if flags.committed {
		list = admin.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("consume %s: %w", topic, err)
	}
	partitions := flags.partitions
	if len(partitions) == 0 {
		partitions = details[topic].Partitions.Numbers()
	}
	spans := make(map[int32]*span, len(partitions))
	for _, p := range partitions {
		start, startOK := starts.Lookup(topic, p)
		end, endOK := ends.Lookup(topic, p)
		if !startOK || !endOK {
			return nil, usageError{fmt.Errorf("consume %s: there is no partition %d; it has %d", topic, p, len(details[topic].Partitions))}
		}
		if err := firstOf(start.Err, end.Err); err != nil {
			return nil, explained(fmt.Sprintf("consume %s, partition %d", topic, p), err, "")
		}
		s := span{next: end.Offset, end: end.Offset}
		switch {
		case flags.fromBeginning:
			s.next = start.Offset
		case flags.offset >= 0:
			if flags.offset < start.Offset || flags.offset > end.Offset {
				return nil, usageError{fmt.Errorf("consume %s: partition %d has offsets %d to %d, not %d", topic, p,
					start.Offset, end.Offset, flags.offset)}
			}
			s.next = flags.offset
		}
		spans[p] = &s
	}
	return spans, nil
}

// consumer prints records until it is done.
type consumer struct {
	flags          *consumeFlags
	topic          string
	spans          map[int32]*span
	json           bool
	out            *bufio.Writer
	records, bytes int64
	line           []byte
}

// done tells whether every partition is consumed to its end, or the wanted number of records is printed.
func (c *consumer) done() bool {
	if c.flags.count > 0 && c.records >= c.flags.count {
		return true
	}
	if !c.flags.exitAtEnd {
		return false
	}
	for _, span := range c.spans {
		if span.next < span.end {
			return false
		}
	}
	return true
}

func (c *consumer) run(ctx context.Context, cl *kgo.Client, bar *progress) error {
	for !c.done() {
		pollCtx, cancel := context.WithTimeout(ctx, idlePoll)
		fetches := cl.PollRecords(pollCtx, 10_000)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.failure(fetches); err != nil {
			return err
		}
		before := c.records
		for _, record := range fetches.Records() {
			if c.done() {
				break
			}
			if err := c.take(record); err != nil {
				return err
			}
		}
		bar.update(c.records, c.records, c.bytes)
		if c.records != before {
			continue
		}
		if err := c.out.Flush(); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := c.passGaps(ctx, cl); err != nil {
			return err
		}
	}
	return nil
}

// failure is the first error of the fetches that is not the poll's own deadline.
func (c *consumer) failure(fetches kgo.Fetches) error {
	for _, failed := range fetches.Errors() {
		if errors.Is(failed.Err, context.DeadlineExceeded) || errors.Is(failed.Err, context.Canceled) {
			continue
		}
		return explained(fmt.Sprintf("consume %s, partition %d", c.topic, failed.Partition), failed.Err, "")
	}
	return nil
}

func (c *consumer) take(record *kgo.Record) error {
	span := c.spans[record.Partition]
	if c.flags.exitAtEnd && record.Offset >= span.end {
		span.next = max(span.next, span.end)
		return nil
	}
	span.next = record.Offset + 1
	if record.Attrs.IsControl() {
		return nil
	}
	c.records++
	c.bytes += int64(len(record.Key) + len(record.Value))
	return c.print(record)
}

func (c *consumer) print(record *kgo.Record) error {
	c.line = c.line[:0]
	if c.json {
		encoded, err := json.Marshal(jsonRecordOf(record))
		if err != nil {
			return fmt.Errorf("encode record %d: %w", record.Offset, err)
		}
		c.line = append(c.line, encoded...)
	} else {
		if c.flags.key {
			c.line = append(append(c.line, record.Key...), '\t')
		}
		c.line = append(c.line, record.Value...)
	}
	if _, err := c.out.Write(append(c.line, '\n')); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// jsonRecord is one line of `consume --format json`.
type jsonRecord struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"` // milliseconds since 1970
	Key       text         `json:"key"`
	Value     text         `json:"value"`
	Headers   []jsonHeader `json:"headers,omitempty"`
}

type jsonHeader struct {
	Key   string `json:"key"`
	Value text   `json:"value"`
}

func jsonRecordOf(record *kgo.Record) jsonRecord {
	out := jsonRecord{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset,
		Timestamp: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value,
	}
	for _, header := range record.Headers {
		out.Headers = append(out.Headers, jsonHeader{header.Key, header.Value})
	}
	return out
}

// passGaps moves partitions whose remaining offsets hold no record: compaction leaves a log's last batch empty, and an
// empty batch reaches no consumer. It asks the broker for the bytes at each position and looks at the batches alone.
func (c *consumer) passGaps(ctx context.Context, cl *kgo.Client) error {
	if !c.flags.exitAtEnd {
		return nil
	}
	partitions := make([]int32, 0, len(c.spans))
	for partition := range c.spans {
		partitions = append(partitions, partition)
	}
	slices.Sort(partitions)
	for _, partition := range partitions {
		span := c.spans[partition]
		if span.next >= span.end {
			continue
		}
		last, empty, err := lastEmptyOffset(ctx, cl, c.topic, partition, span.next)
		if err != nil {
			return err
		}
		if empty {
			span.next = last + 1
		}
	}
	return nil
}

// lastEmptyOffset fetches at an offset; if none of the batches there holds a record it returns their last offset.
func lastEmptyOffset(ctx context.Context, cl *kgo.Client, topic string, partition int32, offset int64) (int64, bool, error) {
	leader, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return 0, false, fmt.Errorf("consume %s: %w", topic, err)
	}
	request := kmsg.NewPtrFetchRequest()
	request.MaxBytes = 1 << 20
	request.SessionEpoch = -1
	wanted := kmsg.NewFetchRequestTopicPartition()
	wanted.Partition, wanted.FetchOffset, wanted.PartitionMaxBytes = partition, offset, 1<<20
	asked := kmsg.NewFetchRequestTopic()
	asked.Topic, asked.TopicID = topic, leader[topic].ID
	asked.Partitions = append(asked.Partitions, wanted)
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, cl.Broker(int(leader[topic].Partitions[partition].Leader)))
	if err != nil {
		return 0, false, fmt.Errorf("consume %s: %w", topic, err)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, false, explained("consume "+topic, err, "")
	}
	last := int64(-1)
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, false, explained("consume "+topic+", partition "+strconv.Itoa(int(partition)), err, "")
			}
			for rest := p.RecordBatches; len(rest) >= 61; {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(rest); err != nil {
					break
				}
				if batch.NumRecords != 0 {
					return 0, false, nil
				}
				last = batch.FirstOffset + int64(batch.LastOffsetDelta)
				rest = rest[min(len(rest), 12+int(batch.Length)):]
			}
		}
	}
	return last, last >= 0, nil
}
