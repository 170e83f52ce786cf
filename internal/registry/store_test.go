package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/tidemark-io/tidemark/internal/registry.blockForEver.OnWrite"))
}

// backends are the three implementations; every Store test runs over each of them.
var backends = []struct {
	name string
	open func(t testing.TB) Store
}{
	{"memory", func(t testing.TB) Store { return closed(t, NewMemory()) }},
	{"embedded", func(t testing.TB) Store { return startEmbedded(t, shortDir(t)).Store() }},
	{"external", func(t testing.TB) Store {
		e := startEmbedded(t, shortDir(t))
		store, err := Dial(t.Context(), DialConfig{Endpoints: []string{"unix://" + e.SocketPath()}})
		if err != nil {
			t.Fatal(err)
		}
		return closed(t, store)
	}},
}

func closed(t testing.TB, store Store) Store {
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return store
}

func startEmbedded(t testing.TB, dir string) *Embedded {
	t.Helper()
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: dir, BallastBytes: -1, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// shortDir is a folder whose path leaves room for a socket's.
func shortDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	if _, fits := socketPath(dir); !fits {
		t.Fatalf("the temporary folder %s is too deep for a unix socket: set TMPDIR", dir)
	}
	return dir
}

// testLogger fails nothing, but shows etcd's warnings with -v.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func overBackends(t *testing.T, test func(t *testing.T, s Store)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b.open(t))
		})
	}
}

func put(t testing.TB, s Store, pairs ...string) int64 {
	t.Helper()
	var txn Txn
	for i := 0; i < len(pairs); i += 2 {
		txn.Then = append(txn.Then, Put(pairs[i], []byte(pairs[i+1])))
	}
	return commit(t, s, txn).Revision
}

func commit(t testing.TB, s Store, txn Txn) TxnResult {
	t.Helper()
	result, err := s.Txn(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func list(t testing.TB, s Store, r Range) (out string) {
	t.Helper()
	page, err := s.Range(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Entries {
		out += fmt.Sprintf("%s=%s ", e.Key, e.Value)
	}
	if page.More {
		out += "..."
	}
	return strings.TrimSpace(out)
}

func TestStoreRange(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		first := put(t, s, "/a/1", "x", "/a/2", "y", "/a/10", "z", "/b", "w")
		second := put(t, s, "/a/2", "Y")
		commit(t, s, Txn{Then: []Op{Delete("/a/1")}})
		for _, c := range []struct {
			r    Range
			want string
		}{
			{Range{Prefix: "/a/"}, "/a/10=z /a/2=Y"},
			{Range{Prefix: "/a/", Limit: 1}, "/a/10=z ..."},
			{Range{Prefix: "/a/", Limit: 2}, "/a/10=z /a/2=Y"},
			{Range{Prefix: "/a/", After: "/a/10"}, "/a/2=Y"},
			{Range{Prefix: "/a/", Revision: first}, "/a/1=x /a/10=z /a/2=y"},
			{Range{Prefix: "/a/", Revision: second, After: "/a/1", Limit: 1}, "/a/10=z ..."},
			{Range{Prefix: ""}, "/a/10=z /a/2=Y /b=w"},
			{Range{Prefix: "/c"}, ""},
		} {
			if got := list(t, s, c.r); got != c.want {
				t.Errorf("%+v: got %q, want %q", c.r, got, c.want)
			}
		}
		page, err := s.Range(t.Context(), Range{Prefix: "/a/2"})
		if err != nil {
			t.Fatal(err)
		}
		if e := page.Entries[0]; e.Create != first || e.Mod != second || e.Version != 2 || page.Revision != second+1 {
			t.Errorf("got %+v at %d", e, page.Revision)
		}
	})
}

// D3: a conflict in one nested transaction does not undo the others, and its else-read shows what is there.
func TestStoreNested(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		seat := put(t, s, "/seat", "1")
		put(t, s, "/p/1", "old")
		put(t, s, "/p/1", "newer")
		change := func(key string, version int64) Op {
			return Nest(Txn{
				Conds: []Cond{HasVersion(key, version)},
				Then:  []Op{Put(key, []byte("mine"))},
				Else:  []Op{Get(key)},
			})
		}
		batch := Txn{
			Conds: []Cond{CreatedAt("/seat", seat)},
			Then:  []Op{change("/p/0", 0), change("/p/1", 1), change("/p/2", 0), change("/p/3", 4)},
		}
		result := commit(t, s, batch)
		var got []string
		for _, r := range result.Results {
			seen := "-"
			if !r.Txn.Succeeded {
				if seen = "absent"; r.Txn.Results[0].Entry != nil {
					seen = fmt.Sprintf("%s v%d", r.Txn.Results[0].Entry.Value, r.Txn.Results[0].Entry.Version)
				}
			}
			got = append(got, seen)
		}
		if want := []string{"-", "newer v2", "-", "absent"}; !result.Succeeded || !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := list(t, s, Range{Prefix: "/p/"}); got != "/p/0=mine /p/1=newer /p/2=mine" {
			t.Errorf("stored %s", got)
		}
		// The outer condition guards all of them.
		put(t, s, "/p/1", "x")
		commit(t, s, Txn{Then: []Op{Delete("/seat")}})
		put(t, s, "/seat", "2")
		if result := commit(t, s, batch); result.Succeeded || len(result.Results) != 0 {
			t.Errorf("a deposed writer wrote: %+v", result)
		}
	})
}

func TestStoreConditions(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		create := put(t, s, "/k", "1", "/p/1", "1")
		mod := put(t, s, "/k", "2")
		for _, c := range []struct {
			name string
			cond Cond
			want bool
		}{
			{"absent", Absent("/x"), true},
			{"not absent", Absent("/k"), false},
			{"exists", Exists("/k"), true},
			{"not exists", Exists("/x"), false},
			{"created", CreatedAt("/k", create), true},
			{"created later", CreatedAt("/k", mod), false},
			{"version", HasVersion("/k", 2), true},
			{"old version", HasVersion("/k", 1), false},
			{"no version", HasVersion("/x", 0), true},
			{"modified", ModifiedAt("/k", mod), true},
			{"modified before", ModifiedAt("/k", create), false},
			{"unchanged", UnchangedSince("/p/", create), true},
			{"unchanged prefix", UnchangedSince("/", create), false},
			{"nothing to change", UnchangedSince("/x", 1), true},
		} {
			if got := commit(t, s, Txn{Conds: []Cond{c.cond}}); got.Succeeded != c.want {
				t.Errorf("%s: %t", c.name, got.Succeeded)
			}
		}
	})
}

// The limits are etcd's, so that what passes on memory passes everywhere.
func TestStoreLimits(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		nest := func(n, inner int) Txn {
			var txn Txn
			for i := range n {
				var nested Txn
				for j := range inner {
					nested.Then = append(nested.Then, Put(fmt.Sprint("/n/", i, "/", j), nil))
				}
				txn.Then = append(txn.Then, Nest(nested))
			}
			return txn
		}
		if result := commit(t, s, nest(nestedMax, nestedOps)); len(result.Results) != nestedMax {
			t.Errorf("%d results", len(result.Results))
		}
		for name, c := range map[string]struct {
			txn  Txn
			want error
		}{
			"too many nested":     {nest(129, 1), ErrTooLarge},
			"too many in nested":  {nest(64, 65), ErrTooLarge},
			"put twice":           {Txn{Then: []Op{Put("/k", nil), Put("/k", nil)}}, ErrDuplicateKey},
			"put and delete":      {Txn{Then: []Op{Put("/k", nil), DeletePrefix("/")}}, ErrDuplicateKey},
			"twice in nested":     {Txn{Then: []Op{Put("/k", nil), Nest(Txn{Else: []Op{Put("/k", nil)}})}}, ErrDuplicateKey},
			"lease that is not":   {Txn{Then: []Op{PutLeased("/k", nil, 99)}}, ErrLeaseGone},
			"then and else agree": {Txn{Then: []Op{Nest(Txn{Then: []Op{Put("/k", nil)}, Else: []Op{Put("/k", nil)}})}}, nil},
		} {
			if _, err := s.Txn(t.Context(), c.txn); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestStoreDelete(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		put(t, s, "/t/a", "1", "/t/a/p/0", "1", "/t/b", "1")
		result := commit(t, s, Txn{Then: []Op{DeletePrefix("/t/a"), Delete("/none"), Get("/t/a")}})
		if r := result.Results; r[0].Deleted != 2 || r[1].Deleted != 0 || r[2].Entry != nil {
			t.Errorf("got %+v", r)
		}
		if got := list(t, s, Range{}); got != "/t/b=1" {
			t.Errorf("left %s", got)
		}
		put(t, s, "/t/a", "2")
		page, err := s.Range(t.Context(), Range{Prefix: "/t/a"})
		if err != nil || page.Entries[0].Version != 1 || page.Entries[0].Create != page.Revision {
			t.Errorf("a key that came back: %+v, %v", page, err)
		}
	})
}

var errEnough = errors.New("seen enough")

// Read, then watch from the next revision: nothing is lost and whole revisions come in order.
func TestStoreWatch(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		from := put(t, s, "/w/1", "a", "/v", "x") + 1
		put(t, s, "/w/1", "b", "/w/2", "c")
		put(t, s, "/v", "y")
		last := commit(t, s, Txn{Then: []Op{Delete("/w/1")}}).Revision
		var got []string
		err := s.Watch(t.Context(), "/w/", from, func(c Changes) error {
			for _, e := range c.Events {
				text := fmt.Sprintf("%s=%s v%d", e.Entry.Key, e.Entry.Value, e.Entry.Version)
				if e.Deleted {
					text = "-" + e.Entry.Key
				}
				got = append(got, text)
			}
			switch {
			case c.Revision == last:
				put(t, s, "/w/3", "live")
			case c.Revision > last:
				return errEnough
			}
			return nil
		})
		want := []string{"/w/1=b v2", "/w/2=c v1", "-/w/1", "/w/3=live v1"}
		if !errors.Is(err, errEnough) || !slices.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	})
}

func TestStoreWatchEnds(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			result <- s.Watch(ctx, "/", 2, func(Changes) error { cancel(); return nil })
		}()
		put(t, s, "/k", "1")
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		go func() {
			result <- s.Watch(t.Context(), "/", 2, func(Changes) error { return s.Close() })
		}()
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := s.Range(t.Context(), Range{}); !errors.Is(err, ErrClosed) {
			t.Errorf("a read after close: %v", err)
		}
		if _, err := s.Txn(t.Context(), Txn{Then: []Op{Put("/k", nil)}}); !errors.Is(err, ErrClosed) {
			t.Errorf("a write after close: %v", err)
		}
	})
}

func TestStoreCompaction(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		first := put(t, s, "/k", "1", "/gone", "1")
		commit(t, s, Txn{Then: []Op{Delete("/gone")}})
		last := put(t, s, "/k", "2")
		compact(t, s, last)
		if _, err := s.Range(t.Context(), Range{Prefix: "/", Revision: first}); !errors.Is(err, ErrCompacted) {
			t.Errorf("read: %v", err)
		}
		if err := s.Watch(t.Context(), "/", first, func(Changes) error { return errEnough }); !errors.Is(err, ErrCompacted) {
			t.Errorf("watch: %v", err)
		}
		if got := list(t, s, Range{Revision: last}); got != "/k=2" {
			t.Errorf("left %s", got)
		}
	})
}

func compact(t *testing.T, s Store, revision int64) {
	t.Helper()
	switch s := s.(type) {
	case *Memory:
		s.Compact(revision)
	case *etcdStore:
		if _, err := s.current.Load().client.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStoreLeases(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		lease, err := s.Grant(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, s, Txn{Then: []Op{PutLeased("/l/1", []byte("1"), lease), PutLeased("/l/2", []byte("1"), lease)}})
		put(t, s, "/l/2", "freed") // a put without a lease takes the key off it
		page, err := s.Range(t.Context(), Range{Prefix: "/l/1"})
		if err != nil || page.Entries[0].Lease != lease {
			t.Errorf("got %+v, %v", page, err)
		}
		if err := s.KeepAlive(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if err := s.Revoke(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if got := list(t, s, Range{Prefix: "/l/"}); got != "/l/2=freed" {
			t.Errorf("left %s", got)
		}
		for name, err := range map[string]error{
			"renew": s.KeepAlive(t.Context(), lease), "revoke": s.Revoke(t.Context(), lease),
		} {
			if !errors.Is(err, ErrLeaseGone) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A lease ends by itself, and its keys' deletion is an event like any other.
func TestStoreLeaseExpires(t *testing.T) {
	overBackends(t, func(t *testing.T, s Store) {
		lease, err := s.Grant(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		from := commit(t, s, Txn{Then: []Op{PutLeased("/l", []byte("1"), lease)}}).Revision + 1
		err = s.Watch(t.Context(), "/l", from, func(c Changes) error {
			if len(c.Events) != 1 || !c.Events[0].Deleted {
				t.Errorf("got %+v", c)
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			t.Error(err)
		}
	})
}

func BenchmarkEmbeddedStart(b *testing.B) {
	for _, restart := range []bool{false, true} {
		b.Run(fmt.Sprintf("restart=%t", restart), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "r")
			for i := 0; b.Loop(); i++ {
				if !restart {
					dir = filepath.Join(b.TempDir(), fmt.Sprint(i))
				}
				e, err := StartEmbedded(b.Context(), EmbeddedConfig{Dir: dir, BallastBytes: -1})
				if err != nil {
					b.Fatal(err)
				}
				put(b, e.Store(), "/k", "v")
				b.StopTimer()
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
