package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsClient is nats.go in this process. A topic is a stream with a subject for each partition.
type natsClient struct{}

// natsPending is how many messages may wait for their acknowledgement, about what NATS's own tool takes for its best figures.
const natsPending = 4096

func natsConnect(addr string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(addr) // several addresses are separated by commas
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending))
	return conn, js, err
}

func subject(topic string, partition int) string { return fmt.Sprintf("%s.%d", topic, partition) }

func (natsClient) create(ctx context.Context, addr string, t topic) error {
	conn, js, err := natsConnect(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: t.name, Subjects: []string{t.name + ".*"}, Storage: jetstream.FileStorage, Replicas: max(t.replicas, 1),
	})
	return err
}

func (natsClient) produce(ctx context.Context, addr string, l load) (*generator, error) {
	conn, js, err := natsConnect(addr)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, l.topic.name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var failed error
	var running sync.WaitGroup
	running.Go(func() {
		values := payloads(l.recordBytes)
		for sent := 0; ctx.Err() == nil && failed == nil; sent++ {
			_, failed = js.PublishAsync(subject(l.topic.name, sent%l.topic.partitions), values[sent%len(values)],
				jetstream.WithStallWait(10*time.Second))
		}
	})
	return &generator{
		count: func(ctx context.Context) (int64, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return int64(info.State.Msgs), nil
		},
		stop: func() error {
			cancel()
			running.Wait()
			conn.Close()
			return failed
		},
	}, nil
}

// natsPipe sends into a stream and receives from it in order, for the latency rows.
func natsPipe(ctx context.Context, addr, topic string, _ pipeOptions, received func([]byte)) (*pipe, error) {
	sender, js, err := natsConnect(addr)
	if err != nil {
		return nil, err
	}
	receiver, readJS, err := natsConnect(addr)
	if err != nil {
		sender.Close()
		return nil, err
	}
	closeBoth := func() { sender.Close(); receiver.Close() }
	consumer, err := readJS.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
	if err != nil {
		closeBoth()
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { received(m.Data()) })
	if err != nil {
		closeBoth()
		return nil, err
	}
	return &pipe{
		send: func(value []byte) error {
			_, err := js.PublishAsync(subject(topic, 0), value, jetstream.WithStallWait(10*time.Second))
			return err
		},
		close: func() error {
			consuming.Stop()
			closeBoth()
			return nil
		},
	}, errors.Join(ctx.Err())
}
