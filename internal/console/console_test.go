package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that the test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestStart proves that a start shows its phases with timers and hints while it runs, and that recovery is alive but not
// ready. U-78 U-79
func TestStart(t *testing.T) {
	c := &clock{time.Unix(100, 0)}
	phases := NewPhases(c.now)
	console, err := New(Config{Phases: phases, Gatherer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	h := console.Handler()
	registry := phases.Begin("registry", "look at the registry folder")
	c.t = c.t.Add(50 * time.Millisecond)
	registry.End()
	logs := phases.Begin("logs", "an unclean stop makes it read every segment")
	logs.Detail("412 of 1000 partitions")
	c.t = c.t.Add(2 * time.Second)

	if code, body := get(t, h, "/livez"); code != 200 || body != "alive\n" {
		t.Errorf("livez while recovering: %d %q", code, body)
	}
	if code, body := get(t, h, "/readyz"); code != 503 || body != "starting\n" {
		t.Errorf("readyz while recovering: %d %q", code, body)
	}
	want := "starting 2050 ms\n" +
		"done          50.0 ms  registry\n" +
		"running     2000.0 ms  logs (412 of 1000 partitions): an unclean stop makes it read every segment\n"
	if code, body := get(t, h, "/startupz"); code != 503 || body != want {
		t.Errorf("startupz while recovering: %d\n%s\nwant\n%s", code, body, want)
	}

	logs.End()
	phases.Finish(nil)
	phases.Finish(errors.New("too late to count"))
	var status StartStatus
	code, body := get(t, h, "/startupz?format=json")
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != 200 || status.State != "started" || len(status.Phases) != 2 {
		t.Errorf("startupz afterwards: %d %s (%v)", code, body, err)
	}
	if status.Phases[1].Hint != "" {
		t.Error("a phase that is done still gives a hint")
	}
	if code, _ := get(t, h, "/readyz"); code != 200 {
		t.Errorf("readyz afterwards: %d", code)
	}
}

func TestFailedStart(t *testing.T) {
	phases := NewPhases(time.Now)
	console, _ := New(Config{Phases: phases, Gatherer: prometheus.NewRegistry()})
	phases.Begin("registry", "")
	phases.Finish(errors.New("the directory is locked by process 12"))
	code, body := get(t, console.Handler(), "/startupz")
	if code != 503 || !strings.HasPrefix(body, "failed ") || !strings.Contains(body, "process 12") {
		t.Errorf("%d %s", code, body)
	}
}

func TestReadiness(t *testing.T) {
	full := Check{Name: "disk", Err: errors.New("12 MiB free"), Degraded: true}
	gone := Check{Name: "registry", Err: errors.New("no member answers")}
	for _, test := range []struct {
		name   string
		checks []Check
		code   int
		text   string
	}{
		{"all well", []Check{{Name: "disk"}}, 200, "ready\nok    disk\n"},
		{"a full disk serves consumers", []Check{full}, 200, "degraded\nfault disk: 12 MiB free\n"}, // U-72
		{"worst counts", []Check{gone, full}, 503, "not ready\nfault registry: no member answers\nfault disk: 12 MiB free\n"},
		{"in any order", []Check{full, gone}, 503, "not ready\nfault disk: 12 MiB free\nfault registry: no member answers\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			phases := NewPhases(time.Now)
			phases.Finish(nil)
			console, _ := New(Config{Phases: phases, Gatherer: prometheus.NewRegistry(), Ready: func() []Check { return test.checks }})
			if code, body := get(t, console.Handler(), "/readyz"); code != test.code || body != test.text {
				t.Errorf("%d %q, want %d %q", code, body, test.code, test.text)
			}
		})
	}
}

func TestLivenessNamesTheFault(t *testing.T) {
	console, _ := New(Config{
		Phases: NewPhases(time.Now), Gatherer: prometheus.NewRegistry(),
		Live: func() error { return errors.New("the registry stopped: disk full") },
	})
	code, body := get(t, console.Handler(), "/livez?format=json")
	if code != 503 || !strings.Contains(body, `"the registry stopped: disk full"`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestRun proves that the console serves on real listeners, keeps profiles off the admin port, and stops without leaving
// a goroutine.
func TestRun(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kafka_server_brokerstate"}, func() float64 { return 3 }))
	admin, profiles := listen(), listen()
	console, err := New(Config{Listeners: []net.Listener{admin}, Profiles: profiles, Phases: NewPhases(time.Now), Gatherer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- console.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, test := range []struct {
		address, path string
		code          int
		contains      string
	}{
		{admin.Addr().String(), "/", 200, "/readyz"},
		{admin.Addr().String(), "/metrics", 200, "kafka_server_brokerstate 3"},
		{admin.Addr().String(), "/debug/pprof/", 404, ""},
		{admin.Addr().String(), "/nowhere", 404, ""},
		{profiles.Addr().String(), "/debug/pprof/", 200, "goroutine"},
		{profiles.Addr().String(), "/metrics", 404, ""},
	} {
		response, err := client.Get("http://" + test.address + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != test.code || !strings.Contains(string(body), test.contains) {
			t.Errorf("%s: %d %.100s", test.path, response.StatusCode, body)
		}
	}
	response, err := client.Post("http://"+admin.Addr().String()+"/livez", "text/plain", nil)
	if err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("post: %v %v", response, err)
	}
	if err == nil {
		_ = response.Body.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Fatal("an empty configuration was taken")
	}
}

// A scraper that hangs up is no warning; metrics that cannot be told are one, in a message that stays the same.
func TestMetricsLog(t *testing.T) {
	var out strings.Builder
	log := metricsLog{slog.New(slog.NewTextHandler(&out, nil))}
	log.Println("error encoding and sending metric family:", &net.OpError{Op: "write", Err: syscall.EPIPE})
	if out.Len() > 0 {
		t.Errorf("logged %q", out.String())
	}
	log.Println("error gathering metrics:", errors.New("two of one name"))
	if want := `level=WARN msg="metrics were not answered whole" why="error gathering metrics: two of one name"`; !strings.Contains(out.String(), want) {
		t.Errorf("logged %q, want %q", out.String(), want)
	}
}
