package server

import (
	"context"
	"net"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// startServer runs a Server on a loopback port until the test ends and returns its address. Fields of config that are
// unset get an empty cluster.
func startServer(t *testing.T, config Config) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config.Listeners = []Listener{{Net: listener, Name: "PLAINTEXT"}}
	if config.Image == nil {
		image := meta.NewImage("test-cluster")
		config.Image = func() *meta.Image { return image }
	}
	if config.WaitImage == nil {
		config.WaitImage = func(context.Context, int64) error { return nil }
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return listener.Addr().String()
}
