package main

import (
	"testing"
	"time"
)

func TestMoving(t *testing.T) {
	m := measurement{Seconds: 2, ServerCPU: 1}
	m.moved(1<<20, &row{unit: mibPerSecond, recordBytes: 1 << 10})
	if m.Value != 512 || m.Bytes != 1<<30 || m.cpuPerGiB() != 1 {
		t.Errorf("a GiB in 2 s with 1 s of processor time is %v MiB/s, %v CPU s/GiB", m.Value, m.cpuPerGiB())
	}
	m.moved(100, &row{unit: recordsPerSecond, recordBytes: 100})
	if m.Value != 50 {
		t.Errorf("100 records in 2 s are %v a second", m.Value)
	}
	if none := (&measurement{ServerCPU: 1}); none.cpuPerGiB() != 0 {
		t.Error("nothing was moved and it has a price")
	}
}

// TestIntended holds the moments of an even load: they do not drift, however uneven the rate.
func TestIntended(t *testing.T) {
	for _, c := range []struct {
		record, rate int
		want         time.Duration
	}{{0, 1000, 0}, {1, 1000, time.Millisecond}, {3_000_000, 1000, 3000 * time.Second}, {10_000, 3, 3333333333333 * time.Nanosecond}} {
		if got := intended(c.record, c.rate); got != c.want {
			t.Errorf("record %d at %d/s is due at %v, want %v", c.record, c.rate, got, c.want)
		}
	}
}

// TestLatenciesCountFromTheIntendedMoment is what keeps a stall from hiding: all records that it delays are late.
func TestLatenciesCountFromTheIntendedMoment(t *testing.T) {
	const rate, total = 1000, 30
	l := newLatencies(10*time.Millisecond, total)
	var kept [][]byte
	p := &pipe{send: func(value []byte) error { kept = append(kept, value); return nil }}
	measured := 0
	if err := sendEvenly(t.Context(), p, l, 8, rate, total, func() error { measured = len(kept); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, value := range kept { // all of them arrive at the end
		l.received(value)
	}
	if err := l.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := l.sorted()
	if measured != 10 || len(took) != total-10 {
		t.Fatalf("the measurement began after %d records and has %d", measured, len(took))
	}
	// The first of those measured was due 19 ms before the last was.
	if most, least := took[len(took)-1], took[0]; most-least < 18*time.Millisecond {
		t.Errorf("the latencies lie between %v and %v", least, most)
	}
}

func TestJavaFetchRate(t *testing.T) {
	out := "2026-11-30 20:00:00:000, 2026-11-30 20:00:05:000, 1536.0000, 307.2, 1572864, 314572.8, 400, 4600, 333.9, 341927.0\n"
	if got, err := javaFetchRate("WARNING: something\n" + out); err != nil || got != 333.9 {
		t.Errorf("the rate is %v, %v", got, err)
	}
	if _, err := javaFetchRate("nothing\n"); err == nil {
		t.Error("a rate is found where none is")
	}
}

func TestRdkafkaRate(t *testing.T) {
	out := "% 300000 messages (307200000 bytes) consumed in 293ms: 1023890 msgs/s (1048.576 MB/s)\n% Average application fetch latency: 3us\n"
	if got, err := rdkafkaRate(out); err != nil || got != 1000 {
		t.Errorf("the rate is %v, %v", got, err)
	}
	if _, err := rdkafkaRate("nothing\n"); err == nil {
		t.Error("a rate is found where none is")
	}
}

func TestGroupCommit(t *testing.T) {
	rate, rounds, err := groupCommit(t.Context(), t.TempDir(), 4, 2, 4096, 1)
	if err != nil || rate <= 0 || len(rounds) != 1 {
		t.Errorf("%v MiB/s in %d rounds, %v", rate, len(rounds), err)
	}
	seen := map[int]int{}
	for w := range 4 {
		seen[partitionOf(w, 7, 2)]++
	}
	if seen[0] != 2 || seen[1] != 2 {
		t.Errorf("four writers on two partitions write as %v", seen)
	}
}
