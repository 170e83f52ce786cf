package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		peers string
		o     options
		want  string
	}{
		{"A B", options{}, "A B A"},
		{"A B C", options{}, "A B C A"},
		{"A B", options{full: true, repeats: 2}, "A B B A"},
		{"A B C", options{full: true, repeats: 3}, "A B C C B A A B C"},
	} {
		if got := strings.Join(order(strings.Fields(c.peers), &c.o), " "); got != c.want {
			t.Errorf("%s with %+v is %s, want %s", c.peers, c.o, got, c.want)
		}
	}
}

// TestPlanned: what `make bench` runs takes less than half an hour.
func TestPlanned(t *testing.T) {
	o, err := parseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := chooseRows(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := planned(rows, o); got > 30*time.Minute {
		t.Errorf("the matrix is planned to take %s", got)
	}
	if o.warmUp != 1500*time.Millisecond || o.during != 4*time.Second {
		t.Errorf("a run warms up for %s and measures %s", o.warmUp, o.during)
	}
	full, err := parseOptions([]string{"-full"})
	if err != nil {
		t.Fatal(err)
	}
	if full.warmUp != 20*time.Second || full.during != time.Minute || full.repeats < 5 {
		t.Errorf("the full protocol is %+v", full)
	}
	r := findRow("B-P2")
	if got, want := r.nulls(o), 1; got != want {
		t.Errorf("B-P2 has %d null runs", got)
	}
	if got, want := r.nulls(full), 2; got != want {
		t.Errorf("B-P2 has %d null runs in full", got)
	}
}

func TestChooseRows(t *testing.T) {
	ids := func(rows []row) (out []string) {
		for _, r := range rows {
			out = append(out, r.id)
		}
		return out
	}
	rows, err := chooseRows(&options{rows: "B-S1,B-P9,B-P8/lz4,B-P9/1x1"})
	if want := []string{"B-S1", "B-S1/rf3", "B-P9/1x1", "B-P9/16x1", "B-P9/1x16", "B-P9/16x16", "B-P8/lz4"}; err != nil || !slices.Equal(ids(rows), want) {
		t.Errorf("chose %v, %v", ids(rows), err)
	}
	if _, err := chooseRows(&options{rows: "B-P"}); err == nil {
		t.Error("a row that is not there was chosen")
	}
	if rows, err := chooseRows(&options{full: true}); err != nil || len(rows) != len(matrix) {
		t.Errorf("chose %v, %v", ids(rows), err)
	}
	if rows, err := chooseRows(&options{}); err != nil || slices.ContainsFunc(rows, func(r row) bool { return r.onlyFull }) {
		t.Errorf("a short series has %v, %v", ids(rows), err)
	}
	if rows, err := chooseRows(&options{rows: "B-F1/10000"}); err != nil || len(rows) != 1 {
		t.Errorf("chose %v, %v", ids(rows), err)
	}
}

func TestChoosePeers(t *testing.T) {
	rows, err := choosePeers([]row{{peers: besideBoth}, {peers: beside}}, natsName)
	if err != nil || !slices.Equal(rows[0].peers, []string{natsName}) || len(rows[1].peers) != 0 {
		t.Errorf("chose %v, %v", rows, err)
	}
	if len(besideBoth) != 2 || len(beside) != 1 {
		t.Error("the matrix was changed")
	}
	if rows, err := choosePeers([]row{{peers: beside}}, "none"); err != nil || len(rows[0].peers) != 0 {
		t.Errorf("chose %v, %v", rows, err)
	}
	if _, err := choosePeers(nil, "redpanda"); err == nil {
		t.Error("a peer that is not there was chosen")
	}
}

// TestMatrix: the rows that are wanted are there, each of them once, and each can be judged.
func TestMatrix(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range matrix {
		if seen[r.id] || r.run == nil || r.unit == "" || len(r.aims) == 0 {
			t.Errorf("row %s is there twice or lacks something", r.id)
		}
		seen[r.id] = true
		for _, peer := range r.peers {
			if overheads[peer] == 0 || r.trio() && trioOverheads[peer] == 0 {
				t.Errorf("row %s: peer %s is not known", r.id, peer)
			}
		}
	}
	for _, id := range strings.Fields("B-P1 B-P2 B-P3 B-P8 B-P9 B-L1 B-C1 B-C2 B-C3 B-S1 B-S3 B-R1 B-R2 B-M1 B-P4 B-P5 B-P6 B-L2 B-L3 B-F1 B-F2 B-F3 B-F4 B-R3 B-S2") {
		if rows, err := chooseRows(&options{rows: id}); err != nil || len(rows) == 0 {
			t.Errorf("row %s: %v", id, err)
		}
	}
}
