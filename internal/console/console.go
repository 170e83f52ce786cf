package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Limits of the HTTP servers. Clients are operators, probes and scrapers: few and quick.
const (
	headerBytesMax   = 16 << 10
	headerTimeout    = 5 * time.Second
	writeTimeout     = 60 * time.Second // a scrape of many partitions
	profileTimeout   = 5 * time.Minute  // profiles run for as long as they are asked to
	idleTimeout      = 2 * time.Minute
	scrapesMax       = 4
	shutdownPatience = time.Second
)

// Config is what a Console shows.
type Config struct {
	// Listeners take the admin requests. The Console closes them when Run ends.
	Listeners []net.Listener
	// Profiles, if not nil, takes requests for /debug/pprof and nothing else. It should be on a loopback address: a
	// profile shows memory.
	Profiles net.Listener
	// Phases is the progress of the start.
	Phases *Phases
	// Live tells what makes a restart of the process the right remedy; nil, or a nil result, means that nothing does.
	Live func() error
	// Ready tells the state of what clients need, part by part. It is asked once the start is over.
	Ready func() []Check
	// Gatherer holds the metrics.
	Gatherer prometheus.Gatherer
	// Logger receives what goes wrong in the HTTP servers.
	Logger *slog.Logger
}

// Check is one part of what makes a broker ready.
type Check struct {
	Name string
	// Err says what is wrong, and if it can be said, what to do; nil means that the part works.
	Err error
	// Degraded marks a fault that does not take the broker out of service, such as a full disk that refuses produce while
	// consumers are served.
	Degraded bool
}

// Console answers operators. Make one with New, run it once.
type Console struct {
	config Config
}

// New checks the configuration. It starts nothing.
func New(config Config) (*Console, error) {
	if config.Phases == nil || config.Gatherer == nil {
		return nil, errors.New("console config: Phases and Gatherer must be set")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Console{config: config}, nil
}

// Run serves until ctx ends, then closes the listeners and waits for the requests that are being answered, for a second
// at most.
func (c *Console) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range c.config.Listeners {
		group.Go(func() error { return c.serve(ctx, l, c.Handler(), writeTimeout) })
	}
	if c.config.Profiles != nil {
		group.Go(func() error { return c.serve(ctx, c.config.Profiles, profiles(), profileTimeout) })
	}
	group.Go(func() error { <-ctx.Done(); return nil })
	return group.Wait()
}

func (c *Console) serve(ctx context.Context, l net.Listener, handler http.Handler, timeout time.Duration) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      timeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(c.config.Logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownPatience)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close() // whoever is still being answered is cut off
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve admin requests on %s: %w", l.Addr(), err)
}

// Handler answers the admin requests.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /livez", c.livez)
	mux.HandleFunc("GET /startupz", c.startupz)
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.config.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            metricsLog{c.config.Logger},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesMax,
	}))
	return mux
}

func (c *Console) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, "tidemark\n\n"+
		"/livez     200 while the process works; recovery is alive\n"+
		"/startupz  200 when the start is over; the phases of the start with their timers\n"+
		"/readyz    200 when clients can be served; what is wrong otherwise\n"+
		"/metrics   for Prometheus\n\n"+
		"Health is text; add ?format=json, or send Accept: application/json.\n")
}

// profiles serves what net/http/pprof offers, on a mux of its own.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// metricsLog hears what went wrong with an answer of metrics. A client that has gone away is no news.
type metricsLog struct{ logger *slog.Logger }

// Println implements promhttp.Logger.
func (l metricsLog) Println(what ...any) {
	level := slog.LevelWarn
	for _, part := range what {
		if err, ok := part.(error); ok && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
			level = slog.LevelDebug
		}
	}
	l.logger.Log(context.Background(), level, "metrics were not answered whole", slog.String("why", strings.TrimSpace(fmt.Sprintln(what...))))
}
