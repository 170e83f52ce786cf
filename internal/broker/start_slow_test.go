package broker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/console"
)

// A start that goes on says what it waits for: nobody has to guess, or to know of /startupz (U-78).
func TestSlowStartIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := &Broker{phases: console.NewPhases(time.Now), logger: slog.New(slog.NewTextHandler(&out, nil))}
		b.phases.Begin("data directory", "look at the lock").End()
		b.phases.Begin("registry", "look at the others").Detail("waiting for broker 2")
		ctx, cancel := context.WithTimeout(t.Context(), 2*slowStart+time.Second)
		defer cancel()
		b.reportSlowStart(ctx)
		const want = `msg="the start goes on" phase=registry ms=20000 detail="waiting for broker 2" hint="look at the others"`
		if strings.Count(out.String(), "the start goes on") != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("logged %q, want twice, the last with %s", out.String(), want)
		}
	})
}
