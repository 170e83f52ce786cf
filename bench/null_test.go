package main

import (
	"context"
	"net"
	"testing"
)

// TestNullBroker: a client produces to it and reads as many records as it sent, or more, from what it keeps.
func TestNullBroker(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newNullBroker(listener.Addr()).serve(ctx, listener) }()
	addr := listener.Addr().String()
	of := topic{name: benchTopic, partitions: 3}
	if err := fillEvenly(ctx, addr, of, 50, 100); err != nil {
		t.Fatal(err)
	}
	records, err := endOffsets(ctx, addr, of.name)
	if err != nil || records != 150 {
		t.Fatalf("it has %d records, %v; want 150", records, err)
	}
	c := &franzConsumer{addr: addr, topic: of.name}
	if err := c.read(ctx, records); err != nil {
		t.Fatal(err)
	}
	if got := c.records.Load(); got < records {
		t.Errorf("%d of %d records were read", got, records)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
