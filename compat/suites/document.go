package suites

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Document makes docs/compatibility.md from the results below dir and the exceptions.
func Document(dir string, exceptions []Exception) (string, error) {
	var table, rest strings.Builder
	for _, s := range All() {
		tidemark, err := Load(Path(dir, s.Name, Tidemark))
		if err != nil {
			return "", err
		}
		kafka, err := Load(Path(dir, s.Name, Kafka))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", s.Name, s.Source, counts(tidemark), counts(kafka))
		sections := differing(s.Name, Differences(tidemark, kafka), exceptions) + shared(tidemark, kafka) + passedAgain(tidemark, kafka)
		if sections != "" {
			fmt.Fprintf(&rest, "\n## %s\n%s", s.Name, sections)
		}
	}
	return `# Compatibility

<!-- Made by "make compat" from compat/results and compat/suites/exceptions.json. Do not edit. -->

Other people's test suites, run on a lone tidemark broker and on a lone Apache Kafka 4.4 broker with the same settings. Each
number is of one run of the whole suite by the runner. A test that failed in it was run again at once, alone, on the same
broker, because tests have limits of time that a busy machine makes them miss; one that passed then counts as passed, is
counted in brackets too, and is named below the table. "make compat" repeats all of it, "make compat SUITE=name" one line.

| suite | source | tidemark: passed, failed, skipped | Apache Kafka: passed, failed, skipped |
|---|---|---|---|
` + table.String() + rest.String(), nil
}

func counts(run *Run) string {
	if run == nil {
		return "not run"
	}
	passed := fmt.Sprint(run.Count(Passed))
	if again := len(run.Again()); again > 0 {
		passed += fmt.Sprintf(" (%d again)", again)
	}
	return fmt.Sprintf("%s, %d, %d", passed, run.Count(Failed), run.Count(Skipped))
}

// passedAgain lists the tests that passed only when they were run again alone.
func passedAgain(tidemark, kafka *Run) string {
	var out strings.Builder
	for _, on := range []struct {
		name string
		run  *Run
	}{{"tidemark", tidemark}, {"Apache Kafka", kafka}} {
		if on.run == nil || len(on.run.Again()) == 0 {
			continue
		}
		var tests []string
		for _, test := range on.run.Again() {
			tests = append(tests, code(test))
		}
		fmt.Fprintf(&out, "\nFailed first and passed again alone, on %s: %s.\n", on.name, strings.Join(tests, ", "))
	}
	return out.String()
}

// differing lists the tests that end differently, those with one explanation in one line.
func differing(suite string, differences []Difference, exceptions []Exception) string {
	var out strings.Builder
	for _, e := range exceptions {
		if e.Suite != suite {
			continue
		}
		how := map[string]int{}
		for _, d := range differences {
			if covers(e.Test, d.Test) {
				how[orAbsent(d.Tidemark)+" | "+orAbsent(d.Kafka)]++
			}
		}
		for _, statuses := range slices.Sorted(maps.Keys(how)) {
			fmt.Fprintf(&out, "| %s | %d | %s | %s |\n", code(e.Test), how[statuses], statuses, cell(e.Reason))
		}
	}
	for _, d := range Unexplained(suite, differences, exceptions) {
		fmt.Fprintf(&out, "| %s | 1 | %s | %s | **not explained** |\n", code(d.Test), orAbsent(d.Tidemark), orAbsent(d.Kafka))
	}
	if out.Len() == 0 {
		return ""
	}
	return "\nDifferent on the two:\n\n| test | tests | tidemark | Kafka | why |\n|---|---|---|---|---|\n" + out.String()
}

// shared lists what fails on both, and what is skipped on both for what reasons.
func shared(tidemark, kafka *Run) string {
	if tidemark == nil || kafka == nil {
		return ""
	}
	var failed []string
	skipped := map[string][]string{}
	for _, r := range tidemark.Results {
		switch {
		case r.Status != kafka.Status(r.Test) || r.Status == Passed:
		case r.Status == Failed:
			failed = append(failed, code(r.Test))
		default:
			skipped[cell(r.Detail)] = append(skipped[cell(r.Detail)], code(r.Test))
		}
	}
	var out strings.Builder
	if failed != nil {
		fmt.Fprintf(&out, "\nFailed on both: %s.\n", strings.Join(failed, ", "))
	}
	if len(skipped) > 0 {
		out.WriteString("\nSkipped on both:\n\n| tests | why |\n|---|---|\n")
		for _, reason := range slices.Sorted(maps.Keys(skipped)) {
			fmt.Fprintf(&out, "| %s | %s |\n", strings.Join(skipped[reason], ", "), reason)
		}
	}
	return out.String()
}

func orAbsent(s Status) string {
	if s == "" {
		return "did not run"
	}
	return string(s)
}

// code is text in code font, in one line of a table.
func code(text string) string { return "`" + cell(text) + "`" }

// cell is text as it can stand in a table: its last line, if it has several.
func cell(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.ReplaceAll(lines[len(lines)-1], "|", `\|`)
}
