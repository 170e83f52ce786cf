package sim

import (
	"flag"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this one history and show its trace")
	seedsFlag = flag.Int("seeds", 300, "number of histories")
)

// steps is how many events a history has before it recovers.
const steps = 2500

// optionsOf are the options of a seed's history.
func optionsOf(seed uint64) Options {
	brokers := 3 + int(seed%3)
	return Options{Seed: seed, Brokers: brokers, MinISR: 2 + int(seed/3%2)*(brokers/5), Flush: seed%4 == 3}
}

// TestHistories: I1, I2, I3, I5, I6 after every event of seeded histories, I16 at the end.
func TestHistories(t *testing.T) {
	if *seedFlag != 0 {
		w, err := History(optionsOf(*seedFlag), steps)
		t.Logf("%+v\n%s", optionsOf(*seedFlag), w.Trace())
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var acked, events int
	for seed := uint64(1); seed <= uint64(*seedsFlag); seed++ {
		w, err := History(optionsOf(seed), steps)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n(go test ./internal/sim -run TestHistories -args -seed=%d)", seed, err, w.Trace(), seed)
		}
		acked += len(w.acked)
		events += w.count
	}
	t.Logf("%d histories, %d events, %d records acknowledged", *seedsFlag, events, acked)
	if acked < 20**seedsFlag {
		t.Errorf("%d records were acknowledged in %d histories: nothing much was tested", acked, *seedsFlag)
	}
}
