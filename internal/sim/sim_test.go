package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this one history and show its trace")
	seedsFlag = flag.Int("seeds", 300, "number of histories")
	fromFlag  = flag.Uint64("from", 1, "seed of the first of them")
)

// steps is how many events a history has before it recovers.
const steps = 3500

// optionsOf are the options of a seed's history.
func optionsOf(seed uint64) Options {
	o := Options{Seed: seed, Brokers: 3 + int(seed%3), Flush: seed%4 == 3, Toggles: seed%16 == 6, Unclean: seed%16 == 10}
	o.MinISR = 2 + int(seed/3%2)*(o.Brokers/5)
	if seed/5%2 == 0 && o.MinISR == 2 {
		o.Replicas = 3
	}
	return o
}

// TestHistories: I1 to I7 and I15 after every event of seeded histories, I16 at the end.
func TestHistories(t *testing.T) {
	if *seedFlag != 0 {
		w, err := History(optionsOf(*seedFlag), steps)
		t.Logf("%+v\n%s", optionsOf(*seedFlag), w.Trace())
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var sum tally
	for seed := *fromFlag; seed < *fromFlag+uint64(*seedsFlag); seed++ {
		w, err := History(optionsOf(seed), steps)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n(go test ./internal/sim -run TestHistories -args -seed=%d)", seed, err, w.Trace(), seed)
		}
		sum.add(w)
	}
	t.Log(sum.String())
	sum.check(t)
}

// tally is what a number of histories held: a simulation that does nothing breaks nothing.
type tally struct {
	histories, events, eventsMin, faultsMin, faultsMax int
	acked, shown, lost, controllers, topics            int
	faults                                             [faultKinds]int
}

func (s *tally) add(w *World) {
	faults := 0
	for kind, n := range w.faults {
		s.faults[kind] += n
		faults += n
	}
	if s.histories == 0 {
		s.eventsMin, s.faultsMin = w.count, faults
	}
	s.histories++
	s.events += w.count
	s.eventsMin, s.faultsMin, s.faultsMax = min(s.eventsMin, w.count), min(s.faultsMin, faults), max(s.faultsMax, faults)
	s.acked += len(w.acked)
	s.shown += len(w.read)
	s.lost += w.lost
	s.controllers += int(w.registry.seat.epoch)
	s.topics += w.registry.lives
}

func (s *tally) String() string {
	text := fmt.Sprintf("%d histories, %d events (at least %d each), %d to %d faults each; %d records acknowledged, %d shown, %d given up by unclean elections; %d controllers, %d topics;",
		s.histories, s.events, s.eventsMin, s.faultsMin, s.faultsMax, s.acked, s.shown, s.lost, s.controllers, s.topics)
	for kind, n := range s.faults {
		text += fmt.Sprintf(" %s %d,", faultKind(kind), n)
	}
	return strings.TrimSuffix(text, ",")
}

func (s *tally) check(t *testing.T) {
	t.Helper()
	if s.acked < 20*s.histories || s.shown < 20*s.histories || s.controllers < 2*s.histories {
		t.Errorf("nothing much was tested: %s", s)
	}
	if s.eventsMin < 2000 || s.faultsMin < 5 {
		t.Errorf("histories are too short: %s", s)
	}
	for kind, n := range s.faults {
		if n == 0 && s.histories >= 300 {
			t.Errorf("no %s in %d histories", faultKind(kind), s.histories)
		}
	}
}
