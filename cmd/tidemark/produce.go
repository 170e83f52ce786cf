package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lineBytesMax bounds one record of `produce`: the broker would refuse much less.
const lineBytesMax = 64 << 20

// deliveryTimeout is how long a record may stay unacknowledged, as delivery.timeout.ms of Kafka's producers.
const deliveryTimeout = 2 * time.Minute

type produceFlags struct {
	key         string
	partition   int32
	acks        string
	compression string
	headers     []string
}

func newProduce(io streams, shared *clientFlags) *cobra.Command {
	var flags produceFlags
	cmd := &cobra.Command{
		Use:   "produce TOPIC [FILE...]",
		Short: "Produce each line of the files, or of stdin, as a record",
		Long: `Produce each line of the files, or of stdin, as one record. The topic is created if the broker allows it.
A last line without a newline counts. With --key the part of a line before the first separator is the key.`,
		Args: someArguments,

		ValidArgsFunction: completeTopics(shared, 1, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("partition") && flags.partition < 0 {
				return usageError{fmt.Errorf("--partition %d: want 0 or more", flags.partition)}
			}
			return produce(cmd.Context(), io, shared, &flags, args[0], args[1:])
		},
	}
	cmd.Flags().StringVar(&flags.key, "key", "", "`separator` between key and value in a line (default: no keys)")
	cmd.Flags().Int32Var(&flags.partition, "partition", -1, "produce to this `partition` only")
	cmd.Flags().StringVar(&flags.acks, "acks", "all", "wait for `acks`: 0, 1 or all")
	cmd.Flags().StringVar(&flags.compression, "compression", "none", "`codec`: none, gzip, snappy, lz4 or zstd")
	cmd.Flags().StringArrayVar(&flags.headers, "header", nil, "`name=value` added to every record (repeatable)")
	hideDefaults(cmd, "partition")
	completeWords(cmd, "acks", "0", "1", "all")
	completeWords(cmd, "compression", "none", "gzip", "snappy", "lz4", "zstd")
	return cmd
}

func (f *produceFlags) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(5),
		kgo.MaxBufferedRecords(200_000),
		kgo.MaxBufferedBytes(64 << 20),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
	}
	switch f.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usageError{fmt.Errorf("--acks %q: want 0, 1 or all", f.acks)}
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, known := codecs[f.compression]
	if !known {
		return nil, usageError{fmt.Errorf("--compression %q: want none, gzip, snappy, lz4 or zstd", f.compression)}
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	if f.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

func (f *produceFlags) recordHeaders() ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, h := range f.headers {
		name, value, found := strings.Cut(h, "=")
		if !found || name == "" {
			return nil, usageError{fmt.Errorf("--header %q: want name=value", h)}
		}
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return headers, nil
}

func produce(ctx context.Context, io streams, shared *clientFlags, flags *produceFlags, topic string, files []string) error {
	opts, err := flags.options()
	if err != nil {
		return err
	}
	headers, err := flags.recordHeaders()
	if err != nil {
		return err
	}
	input, total, err := openInputs(io.in, files)
	if err != nil {
		return err
	}
	defer input.Close()
	target, err := describeTarget(ctx, shared, flags, topic)
	if err != nil {
		return err
	}
	var trouble connectTrouble
	cl, err := shared.client(ctx, append(opts, kgo.ProducerBatchMaxBytes(target.batchBytesMax), kgo.WithHooks(&trouble))...)
	if err != nil {
		return err
	}
	defer cl.Close()

	p := producer{flags: flags, topic: topic, headers: headers, client: cl, target: target}
	started := time.Now()
	bar := newProgress(io.err, io.out, "produced", total)
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { watchStall(watching, io.err, topic, cl.BufferedProduceRecords, p.produced.Load, &trouble) })
	readErr := p.lines(ctx, input, bar)
	flushErr := cl.Flush(ctx)
	unwatch()
	watch.Wait()
	bar.finish()
	if err := firstOf(p.failure(), readErr, flushErr); err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w; %s produced", err, counted(p.produced.Load(), "record was", "records were"))
		}
		return err
	}
	return p.report(io, shared, time.Since(started))
}

// target is what must be known of a topic before something is produced to it.
type target struct {
	batchBytesMax int32
	key           string // the topic's setting that batchBytesMax comes from; empty if it is assumed
}

// describeTarget asks for the largest batch that the topic takes, so that a line which the topic allows is not refused by
// this client. A topic that does not exist yet, or may not be described, gets what producers assume.
func describeTarget(ctx context.Context, shared *clientFlags, flags *produceFlags, topic string) (target, error) {
	assumed := target{batchBytesMax: 1_000_000}
	admin, err := shared.admin(ctx)
	if err != nil {
		return assumed, err
	}
	defer admin.Close()
	details, err := admin.ListTopicsWithInternal(ctx, topic)
	if err != nil || details[topic].Err != nil {
		return assumed, nil //nolint:nilerr // producing tells what is wrong, or makes the topic
	}
	if count := len(details[topic].Partitions); int(flags.partition) >= count {
		return assumed, usageError{fmt.Errorf("produce to %s: there is no partition %d; it has %d", topic, flags.partition, count)}
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil || len(configs) != 1 {
		return assumed, nil //nolint:nilerr // as above
	}
	return targetOf(configs[0].Configs, assumed), nil
}

// targetOf is the tighter of the two settings that bound a batch: a batch may be no larger than the topic allows, nor than
// a segment.
func targetOf(configs []kadm.Config, assumed target) target {
	tightest := assumed
	for _, c := range configs {
		if c.Key != "max.message.bytes" && c.Key != "segment.bytes" {
			continue
		}
		n, err := strconv.ParseInt(deref(c.Value), 10, 32)
		if limit := int32(min(max(n, 1<<10), lineBytesMax)); err == nil && (tightest.key == "" || limit < tightest.batchBytesMax) {
			tightest = target{limit, c.Key}
		}
	}
	return tightest
}

// producer sends lines and remembers the first failure.
type producer struct {
	target         target
	produced       atomic.Int64 // acknowledged
	flags          *produceFlags
	topic          string
	headers        []kgo.RecordHeader
	client         *kgo.Client
	records, bytes int64

	mu struct {
		sync.Mutex
		err error
	}
}

func (p *producer) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

// lines produces until the input ends, the context does, or a record fails.
func (p *producer) lines(ctx context.Context, input io.Reader, bar *progress) error {
	reader := bufio.NewReaderSize(input, 1<<20)
	for p.failure() == nil && ctx.Err() == nil {
		line, err := readLine(reader)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read line %d: %w", p.records+1, err)
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		p.records++
		p.send(ctx, bytes.TrimSuffix(line, []byte("\n")), p.records)
		p.bytes += int64(len(line))
		bar.update(p.bytes, p.records, p.bytes)
	}
	return ctx.Err()
}

// readLine returns a copy of the next line with its newline; at the end of input also io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > lineBytesMax {
			return nil, fmt.Errorf("the line is longer than %d bytes", lineBytesMax)
		}
	}
}

func (p *producer) send(ctx context.Context, line []byte, number int64) {
	record := &kgo.Record{Topic: p.topic, Value: line, Headers: p.headers, Partition: max(p.flags.partition, 0)}
	if p.flags.key != "" {
		if key, value, found := bytes.Cut(line, []byte(p.flags.key)); found {
			record.Key, record.Value = key, value
		}
	}
	p.client.Produce(ctx, record, func(r *kgo.Record, err error) {
		if err == nil {
			p.produced.Add(1)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.err == nil {
			p.mu.err = p.explain(r, number, err)
		}
	})
}

// explain says which line failed, and what to do about one that is too large.
func (p *producer) explain(r *kgo.Record, number int64, err error) error {
	doing := fmt.Sprintf("produce to %s: line %d", p.topic, number)
	if !errors.Is(err, kerr.MessageTooLarge) {
		return explained(doing, err, "")
	}
	key, limit := "max.message.bytes", "the topic allows"
	if p.target.key != "" {
		key = p.target.key
		limit = fmt.Sprintf("%s=%d of the topic allows", key, p.target.batchBytesMax)
	}
	return fmt.Errorf("%s of %d bytes is more than %s (MESSAGE_TOO_LARGE); raise it with `tidemark topic alter %s --set %s=BYTES`",
		doing, len(r.Key)+len(r.Value), limit, p.topic, key)
}

func (p *producer) report(io streams, shared *clientFlags, took time.Duration) error {
	if shared.json() {
		return printJSON(io.out, struct {
			Topic   string `json:"topic"`
			Records int64  `json:"records"`
			Bytes   int64  `json:"bytes"`
			Millis  int64  `json:"ms"`
		}{p.topic, p.records, p.bytes, took.Milliseconds()})
	}
	rate := int64(float64(p.bytes) / max(took.Seconds(), 0.001))
	_, err := fmt.Fprintf(io.err, "produced %s, %s in %s (%s/s)\n", counted(p.records, "record", "records"), bytesText(p.bytes),
		took.Round(time.Millisecond), bytesText(rate))
	return err
}

// openInputs joins the files, or stdin if there are none; total is their size, 0 if it is not known.
func openInputs(stdin io.Reader, files []string) (io.ReadCloser, int64, error) {
	if len(files) == 0 {
		return io.NopCloser(stdin), 0, nil
	}
	var total int64
	var all joined
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, 0, errors.Join(usageError{err}, all.Close())
		}
		all.files = append(all.files, file)
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
	}
	readers := make([]io.Reader, len(all.files))
	for i, file := range all.files {
		readers[i] = file
	}
	all.Reader = io.MultiReader(readers...)
	return &all, total, nil
}

type joined struct {
	io.Reader
	files []*os.File
}

// Close closes every file.
func (j *joined) Close() error {
	var errs []error
	for _, file := range j.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
