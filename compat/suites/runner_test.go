package suites

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestFailedTestsRunAgainAlone holds the second chance to its rule: what failed, and nothing else, runs again by itself, once,
// and the result says so.
func TestFailedTestsRunAgainAlone(t *testing.T) {
	var runs [][]string
	s := Suite{Run: func(_ context.Context, s *Stage) ([]Result, error) {
		runs = append(runs, s.Only)
		switch s.Only[0] {
		case "broken":
			return []Result{{Test: "broken", Status: Failed, Detail: "still"}}, nil
		case "parent":
			return []Result{{Test: "parent/known", Status: Passed}, {Test: "parent/new", Status: Passed}, {Test: "parent/no", Status: Skipped}}, nil
		default:
			return []Result{{Test: s.Only[0], Status: Passed}}, nil
		}
	}}
	results := []Result{
		{Test: "broken", Status: Failed, Detail: "at first"},
		{Test: "fine", Status: Passed},
		{Test: "flaky", Status: Failed, Detail: "too slow"},
		{Test: "parent", Status: Failed, Detail: "its program ended"},
		{Test: "parent/known", Status: Passed},
	}
	got, err := again(t.Context(), s, &Stage{Log: io.Discard}, results)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b Result) int { return strings.Compare(a.Test, b.Test) })
	want := []Result{
		{Test: "broken", Status: Failed, Detail: "at first"},
		{Test: "fine", Status: Passed},
		{Test: "flaky", Status: Passed, Detail: "too slow", PassedAgain: true},
		{Test: "parent/known", Status: Passed, Detail: "its program ended", PassedAgain: true},
		{Test: "parent/new", Status: Passed, Detail: "its program ended", PassedAgain: true},
		{Test: "parent/no", Status: Skipped},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if want := [][]string{{"broken"}, {"flaky"}, {"parent"}}; !slices.EqualFunc(runs, want, slices.Equal) {
		t.Errorf("ran %q, want %q", runs, want)
	}
}

// TestStaleExceptions: once an API is served, no exception may say that it is not.
func TestStaleExceptions(t *testing.T) {
	exceptions := []Exception{
		{Suite: "s", Test: "Txn*", Reason: "not served yet: transactions", API: "AddPartitionsToTxn", Skip: true},
		{Suite: "s", Test: "Slow", Reason: "the other is slower"},
		{Suite: "other", Test: "Quota", Reason: "not served yet: quotas", API: "DescribeClientQuotas"},
	}
	if err := stale("s", exceptions, []string{"Produce", "DescribeClientQuotas"}); err != nil {
		t.Errorf("nothing of this suite is served that should not be: %v", err)
	}
	err := stale("s", exceptions, []string{"AddPartitionsToTxn"})
	if err == nil || !strings.Contains(err.Error(), "Txn*") || !strings.Contains(err.Error(), "AddPartitionsToTxn") {
		t.Errorf("got %v, want the test and the API", err)
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
