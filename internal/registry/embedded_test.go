package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
)

// What was written is there after a restart, with its leases.
func TestEmbeddedRestart(t *testing.T) {
	dir := shortDir(t)
	e := startEmbedded(t, dir)
	c := NewCluster(e.Store(), "1.0", nil)
	create(t, c, newTopic(1, "a", 200))
	me := register(t, c, 1, 1)
	before := snapshot(t, c)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = startEmbedded(t, dir)
	c = NewCluster(e.Store(), "1.0", nil)
	after := snapshot(t, c)
	if after.Revision != before.Revision || len(after.Topics[topicID(1)].Partitions) != 200 || after.Brokers[1].Registration != me.Epoch {
		t.Errorf("revision %d, then %d", before.Revision, after.Revision)
	}
	if err := e.Store().KeepAlive(t.Context(), me.Lease); err != nil {
		t.Error(err)
	}
}

// The registry is nobody else's business: no TCP port, and a socket in a folder that only its owner may enter.
func TestEmbeddedSocket(t *testing.T) {
	dir := shortDir(t)
	e := startEmbedded(t, dir)
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	info, err = os.Stat(e.SocketPath())
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("socket: %v", err)
	}
	if n := len(e.etcd.Peers) + len(e.etcd.Clients); n != 1 {
		t.Errorf("%d listeners", n)
	}
}

// A data directory that is too deep for a socket works without one, and says so.
func TestEmbeddedDeepDirectory(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", socketPathMax))
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: dir, BallastBytes: -1, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	put(t, e.Store(), "/k", "v")
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if e.SocketPath() != "" || !strings.Contains(out.String(), "registry socket is off") {
		t.Errorf("socket %q, log %s", e.SocketPath(), &out)
	}
}

// D3: when etcd meets an error that it cannot survive, it neither ends the process nor goes on.
func TestEmbeddedFailure(t *testing.T) {
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: shortDir(t), BallastBytes: -1, FreeBytes: func(string) (uint64, error) { return 3 << 20, nil }})
	if err != nil {
		t.Fatal(err)
	}
	watch := make(chan error)
	go func() { watch <- e.Store().Watch(t.Context(), "/", 2, func(Changes) error { return nil }) }()
	run := make(chan error)
	go func() { run <- e.Run(t.Context()) }()
	go e.etcd.GetLogger().Fatal("failed to save Raft hard state and entries", zap.Error(errors.New("no space left on device")))
	<-e.Failed()
	want := "registry: embedded registry has failed: failed to save Raft hard state and entries: no space left on device (free disk space: 3 MiB)"
	if err := <-run; !errors.Is(err, ErrFailed) || err.Error() != want {
		t.Errorf("run: %v", err)
	}
	if err := <-watch; !errors.Is(err, ErrFailed) {
		t.Errorf("watch: %v", err)
	}
	if _, err := e.Store().Txn(t.Context(), Txn{Then: []Op{Put("/k", nil)}}); !errors.Is(err, ErrFailed) {
		t.Errorf("write: %v", err)
	}
	if _, err := e.Store().Range(t.Context(), Range{}); !errors.Is(err, ErrFailed) {
		t.Errorf("read: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A folder that cannot be used is an error that names it, at once.
func TestEmbeddedStartFails(t *testing.T) {
	dir := shortDir(t)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

// Damaged files are an error that names the folder, neither a crash nor a hang. What etcd started until then stays until
// the process ends, so the start happens in a child.
func TestEmbeddedDamaged(t *testing.T) {
	if dir := os.Getenv("TIDEMARK_TEST_DAMAGED"); dir != "" {
		_, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: dir, BallastBytes: -1})
		fmt.Println(err)
		os.Exit(0)
	}
	const log = "member/wal/0000000000000000-0000000000000000.wal"
	garbage := func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("garbage "), 1000), 0o600) }
	for name, damage := range map[string]struct {
		file string
		do   func(path string) error
	}{
		"log":      {log, garbage},
		"database": {"member/snap/db", garbage},
		"lost log": {log, func(path string) error { return os.Truncate(path, 100) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			if err := startEmbedded(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage.do(filepath.Join(dir, damage.file)); err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEmbeddedDamaged$")
			child.Env = append(os.Environ(), "TIDEMARK_TEST_DAMAGED="+dir)
			out, err := child.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "start registry in "+dir) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A first start that was cut off after the log was made and before anything was decided is made anew.
func TestEmbeddedStartCutOff(t *testing.T) {
	dir := shortDir(t)
	if err := startEmbedded(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "member/wal/0000000000000000-0000000000000000.wal"), 100); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "member/snap/db")); err != nil {
		t.Fatal(err)
	}
	if err := startEmbedded(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDialFails(t *testing.T) {
	if _, err := Dial(t.Context(), DialConfig{}); err == nil {
		t.Error("no endpoints")
	}
	socket := "unix://" + filepath.Join(t.TempDir(), "none")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, DialConfig{Endpoints: []string{socket}}); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("got %v", err)
	}
}

// U-72, U-73: the ballast is given back to a full disk before etcd opens, and comes back when there is room.
func TestBallast(t *testing.T) {
	dir := shortDir(t)
	var free atomic.Uint64
	config := EmbeddedConfig{Dir: dir, BallastBytes: 1 << 20, FreeBytes: func(string) (uint64, error) { return free.Load(), nil }}
	path := filepath.Join(dir, ballastName)
	exists := func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for i, step := range []struct {
		atStart, later uint64
		open, kept     bool // the file is there when etcd opens, and after the first upkeep
	}{
		{0, 0, false, false},
		{1 << 40, 1 << 40, false, true},
		{1 << 40, 1 << 40, true, true},
		{ballastRelease - 1, ballastReserve, false, false},
		{0, 1 << 40, false, true},
		{ballastRelease, 0, true, true}, // while running it stays: the next start may need it
	} {
		free.Store(step.atStart)
		e, err := StartEmbedded(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if exists() != step.open {
			t.Errorf("step %d: at start %t", i, exists())
		}
		free.Store(step.later)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
		if exists() != step.kept {
			t.Errorf("step %d: after upkeep %t", i, exists())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Segments that an earlier process began to preallocate are space that a full disk wants back.
func TestUnfinishedSegmentsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, "member", "wal")
	if err := os.MkdirAll(wal, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.tmp", "1.tmp", "0.wal"} {
		if err := os.WriteFile(filepath.Join(wal, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTorn(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(wal)
	if err != nil || len(left) != 1 || left[0].Name() != "0.wal" {
		t.Errorf("left %v, %v", left, err)
	}
}

// etcd's lines from warn up become slog's, with their fields; the rest is silent.
func TestEtcdLogger(t *testing.T) {
	var out bytes.Buffer
	quiet := new(atomic.Bool)
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	logger := newZapLogger(slog.New(handler), quiet, func(string) {}).With(zap.String("member", "m"))
	logger.Info("starting")
	logger.Warn("slow", zap.Duration("took", time.Second), zap.Error(fmt.Errorf("boom")))
	logger.Warn("simple token is not cryptographically signed")
	logger.Error("broken", zap.Int("n", 3))
	quiet.Store(true)
	logger.Error("closing")
	want := "level=WARN msg=\"registry: slow\" component=etcd member=m took=1s error=boom\n" +
		"level=ERROR msg=\"registry: broken\" component=etcd member=m n=3\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
