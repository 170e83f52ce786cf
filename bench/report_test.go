package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runs(values ...float64) []measurement {
	var out []measurement
	for _, v := range values {
		out = append(out, measurement{Value: v})
	}
	return out
}

func TestJudge(t *testing.T) {
	more := row{id: "B-P1", peers: besideBoth, aims: []aim{ofNull(0.85), ofPeer(kafkaName, 1), ofPeer(natsName, 6)}}
	less := row{id: "B-R1", less: true, peers: beside, aims: []aim{valueAtMost(300), timeOfPeer(kafkaName, 0.2)}}
	for name, c := range map[string]struct {
		of      row
		runs    map[string][]measurement
		failed  string
		verdict string
		missed  string
	}{
		"all met":       {more, map[string][]measurement{ours: runs(90, 110), kafkaName: runs(50), natsName: runs(10), nullName: runs(110)}, "", verdictOK, ""},
		"an aim missed": {more, map[string][]measurement{ours: runs(80), kafkaName: runs(50), natsName: runs(10), nullName: runs(100)}, "", verdictShort, "of null ≥ 0.85, is 0.8"},
		"a peer better": {more, map[string][]measurement{ours: runs(100), kafkaName: runs(120), natsName: runs(10), nullName: runs(100)}, "", verdictLost,
			"of kafka ≥ 1, is 0.833; kafka is better: 120 against 100"},
		"not measured": {more, map[string][]measurement{ours: runs(100), kafkaName: runs(50)}, "", verdictOK, ""},
		"less, met":    {less, map[string][]measurement{ours: runs(200), kafkaName: runs(2000)}, "", verdictOK, ""},
		"less, missed": {less, map[string][]measurement{ours: runs(400), kafkaName: runs(2100)}, "", verdictShort, "value ≤ 300, is 400"},
		"less, lost":   {less, map[string][]measurement{ours: runs(250), kafkaName: runs(200)}, "", verdictLost, "of kafka ≤ 0.2, is 1.25; kafka is better: 200 against 250"},
		"failed":       {more, nil, "it ended", verdictFailed, "it ended"},
	} {
		r := rowResult{ID: c.of.id, Runs: c.runs, Failed: map[string]string{ours: c.failed}}
		verdict, missed := r.judge(&c.of, &report{})
		if verdict != c.verdict || strings.Join(missed, "; ") != c.missed {
			t.Errorf("%s: %s, %q; want %s, %q", name, verdict, missed, c.verdict, c.missed)
		}
	}
}

func TestAimsOfSeveralLimits(t *testing.T) {
	all := &report{Limits: []limits{{PageCacheWrite: 900}, {PageCacheWrite: 1100}}}
	r := rowResult{ID: "B-P3", Runs: map[string][]measurement{ours: runs(600), nullName: runs(700)}}
	for name, c := range map[string]struct {
		aim  aim
		want float64
		met  bool
	}{
		"the client is the limit":      {valueOrNull(1000, 0.8), 600.0 / 700 / 0.8, true},
		"neither":                      {valueOrNull(1000, 0.95), 600.0 / 700 / 0.95, false},
		"the value is enough":          {valueOrNull(500, 0.95), 1.2, true},
		"null is less than page cache": {ofNullOrPageCache(0.7), 600.0 / 700, true},
	} {
		got, ok := c.aim.reached(&r, all)
		if !ok || got != c.want || c.aim.met(got) != c.met {
			t.Errorf("%s: %v, measured %v, met %v; want %v, met %v", name, got, ok, c.aim.met(got), c.want, c.met)
		}
	}
	r.Runs[ours][0].Raw = 2000
	if got, ok := ofRawOrNull(0.7).reached(&r, all); !ok || got != 600.0/700 {
		t.Errorf("of the lesser of raw and null: %v, %v", got, ok)
	}
	r.Runs[ours] = []measurement{{Value: 60, Raw: 100, P99: 9, Extra: map[string]float64{rawRoundP99: 3}}, {Value: 100, Raw: 125, P99: 20, Extra: map[string]float64{rawRoundP99: 4}}}
	if got, ok := ofRaw(0.8).reached(&r, all); !ok || got != 0.7 {
		t.Errorf("each run is held against its own raw limit: %v, %v", got, ok)
	}
	if got, ok := p99OfRawRound(3).reached(&r, all); !ok || got != 4 {
		t.Errorf("the p99 is %v rounds, %v", got, ok)
	}
}

func TestCause(t *testing.T) {
	of := &row{}
	run := func(server, client, others float64) rowResult {
		return rowResult{Runs: map[string][]measurement{ours: {{Value: 90, Seconds: 10, ServerCPU: server, ClientCPU: client, OthersCPU: others}}}}
	}
	busy, waiting, client, limit := run(8, 4, 7), run(1, 1, 1), run(4, 15, 0), run(5, 9, 0)
	limit.Runs[nullName] = runs(92)
	for want, r := range map[string]rowResult{
		"others took a good part": busy, "it waited": waiting, "most of it the client": client, "the client is the limit": limit,
	} {
		if got := r.cause(of, 2); !strings.Contains(got, want) {
			t.Errorf("cause is %q, want %q in it", got, want)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "-", 0.123: "0.12", 1.26: "1.3", 99.6: "100", 1234567: "1,234,567", 999: "999", 12345: "12,345"} {
		if got := figure(v); got != want {
			t.Errorf("%v is printed as %s, want %s", v, got, want)
		}
	}
	if got := span([]float64{2, 4}); got != "3.0 [2.0–4.0]" {
		t.Errorf("two values are printed as %s", got)
	}
}

func TestUnsteady(t *testing.T) {
	r := report{Full: true, Rows: []rowResult{{ID: "B-P1", Runs: map[string][]measurement{nullName: runs(100, 105)}}}}
	if err := r.unsteady(); err != nil {
		t.Errorf("a null run that moved by 5 %%: %v", err)
	}
	r.Rows[0].Runs[nullName] = runs(100, 120)
	if err := r.unsteady(); !errors.Is(err, errUnsteady) || !strings.Contains(err.Error(), "B-P1") {
		t.Errorf("a null run that moved by 20 %%: %v", err)
	}
	r.Full = false
	if err := r.unsteady(); err != nil {
		t.Errorf("a short series is printed as it is: %v", err)
	}
}

// TestPrint: a series is printed whole, also what went wrong, and is the same after it was kept.
func TestPrint(t *testing.T) {
	r := &report{
		Commit: "abc", Processors: 2, Congestion: "reno", WarmUp: 4, During: 8, Limits: []limits{{PageCacheWrite: 1000, Sync: []syncLimit{{KiB: 4, Rate: 2}}}},
		Rows: []rowResult{
			{ID: "B-P1", Unit: recordsPerSecond, Runs: map[string][]measurement{
				ours:      {{Value: 1000, Seconds: 8, Bytes: 1 << 30, ServerCPU: 1.5, ClientCPU: 9, PeakMiB: 50}, {Value: 1200, Seconds: 8, Bytes: 1 << 30, ServerCPU: 1.7, PeakMiB: 52}},
				kafkaName: {{Value: 1500, Seconds: 8, Bytes: 1 << 30, ServerCPU: 4, PeakMiB: 900}}, nullName: runs(1600),
			}},
			{ID: "B-L1/1k", Unit: milliseconds, Runs: map[string][]measurement{ours: {{Value: 1, P50: 0.3, P99: 1, P999: 3}}}},
			{ID: "B-R2", Unit: milliseconds, Runs: map[string][]measurement{ours: {{Value: 100, Extra: map[string]float64{scannedMiBPerSecond: 2000}}}}},
			{ID: "B-S3", Failed: map[string]string{ours: "no port is free"}},
			{ID: "B-F2", Runs: map[string][]measurement{ours: runs(90)}, Failed: map[string]string{kafkaName: "did not start\nat all"}},
		},
	}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{
		"1,100 [1,000–1,200]", "**lost**", "kafka is better: 1500 against 1100", "**failed**", "no port is free", "B-F2, kafka failed: did not start at all", "| B-L1/1k ", "2,000", "page-cache write", "| B-P1            | 1.6 ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	dir := t.TempDir()
	path, err := r.write(dir)
	if err != nil {
		t.Fatal(err)
	}
	var again strings.Builder
	if err := render([]string{path}, &again); err != nil {
		t.Fatal(err)
	}
	if again.String() != out.String() {
		t.Errorf("after it was kept it is\n%s", again.String())
	}
	part := &report{Commit: "abc", Took: 5, Limits: []limits{{}}, Rows: []rowResult{{ID: "B-P2"}, {ID: "B-P1", Took: 7}}}
	joined := part.joined(r)
	var ids []string
	for _, one := range joined.Rows {
		ids = append(ids, one.ID)
	}
	if got := strings.Join(ids, " "); got != "B-P1 B-P2 B-L1/1k B-S3 B-R2 B-F2" || joined.Rows[0].Took != 7 || len(joined.Limits) != 2 {
		t.Errorf("two parts make %s, the newer of them %+v", got, joined.Rows[0])
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := render([]string{filepath.Join(dir, "bad.json")}, &again); err == nil || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("a file that is none: %v", err)
	}
}
