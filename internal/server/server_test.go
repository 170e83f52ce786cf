package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// started is a Server that runs until its test ends.
type started struct {
	*Server
	dial func() net.Conn
	stop func() // and check what must be true at the end; the test's end does it too
}

// start runs a Server on a loopback port until the test ends. Fields of config that are unset get an empty cluster.
// handlers replace or add to the dispatch table.
func start(t testing.TB, config Config, handlers ...handler) *started {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return run(t, config, listener, func() net.Conn {
		socket, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return socket
	}, handlers...)
}

// startInMemory is start over net.Pipe, for tests in a synctest bubble.
func startInMemory(t testing.TB, config Config, handlers ...handler) *started {
	t.Helper()
	listener := &pipeListener{dialled: make(chan net.Conn), closed: make(chan struct{})}
	return run(t, config, listener, func() net.Conn {
		ours, theirs := net.Pipe()
		listener.dialled <- theirs
		return ours
	}, handlers...)
}

func run(t testing.TB, config Config, listener net.Listener, dial func() net.Conn, handlers ...handler) *started {
	t.Helper()
	return runOn(t, config, Listener{Net: listener, Name: "PLAINTEXT"}, dial, handlers...)
}

func runOn(t testing.TB, config Config, listener Listener, dial func() net.Conn, handlers ...handler) *started {
	t.Helper()
	config.Listeners = []Listener{listener}
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
	if _, timed := t.(*testing.B); !timed {
		s.pool.Poison()
	}
	for _, h := range handlers {
		s.handlers[slotOf(h.key)] = h
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if used := s.budget.inUse(); used != 0 {
			t.Errorf("%d bytes of the budget are still taken after the end", used)
		}
		if n := s.metrics.panics.Load(); n != 0 {
			t.Errorf("%d handlers panicked", n)
		}
	})
	t.Cleanup(stop)
	return &started{s, func() net.Conn {
		socket := dial()
		t.Cleanup(func() { _ = socket.Close() })
		return socket
	}, stop}
}

// pipeListener accepts what is put into it.
type pipeListener struct {
	dialled chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case socket := <-l.dialled:
		return socket, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }

// logLines is a slog handler that keeps the messages' reasons.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.Key + "=" + a.Value.String()
		return true
	})
	l.mu.Lock()
	l.lines = append(l.lines, line)
	l.mu.Unlock()
	return nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

func newLogger(lines *logLines) *slog.Logger { return slog.New(lines) }
