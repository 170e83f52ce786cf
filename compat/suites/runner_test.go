package suites

import (
	"context"
	"io"
	"slices"
	"testing"
)

// TestFailedTestsRunOnceMore holds the retry to its rule: what failed, and nothing else, runs once more on the same broker.
func TestFailedTestsRunOnceMore(t *testing.T) {
	var runs [][]string
	s := Suite{Run: func(_ context.Context, s *Stage) ([]Result, error) {
		runs = append(runs, s.Only)
		return []Result{{Test: "flaky", Status: Passed}, {Test: "broken", Status: Failed, Detail: "still"}}, nil
	}}
	results := []Result{
		{Test: "broken", Status: Failed, Detail: "at first"},
		{Test: "fine", Status: Passed},
		{Test: "flaky", Status: Failed},
	}
	if err := again(t.Context(), s, &Stage{Log: io.Discard}, results); err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Test: "broken", Status: Failed, Detail: "at first"},
		{Test: "fine", Status: Passed},
		{Test: "flaky", Status: Passed, Detail: secondRun},
	}
	if !slices.Equal(results, want) {
		t.Errorf("got %+v, want %+v", results, want)
	}
	if len(runs) != 1 || !slices.Equal(runs[0], []string{"broken", "flaky"}) {
		t.Errorf("ran %q, want the two that failed, once", runs)
	}
}

// TestNothingRunsAgainWhenAllPassed: an empty list of tests would mean all of them.
func TestNothingRunsAgainWhenAllPassed(t *testing.T) {
	s := Suite{Run: func(context.Context, *Stage) ([]Result, error) {
		t.Error("the suite ran again")
		return nil, nil
	}}
	if err := again(t.Context(), s, &Stage{Log: io.Discard}, []Result{{Test: "fine", Status: Passed}}); err != nil {
		t.Fatal(err)
	}
}

func TestDifferences(t *testing.T) {
	tidemark := &Run{Results: []Result{
		{Test: "Both", Status: Passed},
		{Test: "Ours", Status: Failed},
		{Test: "Txn*", Status: Skipped},
	}}
	kafka := &Run{Results: []Result{
		{Test: "Both", Status: Passed},
		{Test: "Ours", Status: Passed},
		{Test: "Theirs", Status: Failed},
		{Test: "Txn/abort", Status: Passed},
	}}
	got := Differences(tidemark, kafka)
	want := []Difference{{"Ours", Failed, Passed}, {"Theirs", "", Failed}, {"Txn/abort", Skipped, Passed}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	reasons := []Exception{{Suite: "s", Test: "Txn*"}, {Suite: "other", Test: "Ours"}}
	if left := Unexplained("s", got, reasons); !slices.Equal(left, want[:2]) {
		t.Errorf("unexplained are %+v, want %+v", left, want[:2])
	}
	if got := Differences(tidemark, nil); got != nil {
		t.Errorf("without a baseline there are differences: %+v", got)
	}
}
