package suites

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// librdkafkaTest is a test in the list of librdkafka's test.c. Several may have the same number, and run together.
type librdkafkaTest struct {
	name     string // with its number in front: "0031_get_offsets_mock"
	flags    string // as the source has them: "TEST_F_LOCAL"
	scenario string // the settings of a broker that it is for
}

func (t librdkafkaTest) number() string { return t.name[:4] }

var (
	librdkafkaEntry    = regexp.MustCompile(`^(\d{4}_\w+),\s*([^,)]*)`)
	librdkafkaScenario = regexp.MustCompile(`\.scenario\s*=\s*"([^"]*)"`)
	librdkafkaKnown    = regexp.MustCompile(`\bTEST_F_KNOWN_ISSUE\b`)
)

// off is why a test does not run in a scenario; "" says that it does.
func (t librdkafkaTest) off(scenario string) string {
	switch {
	case strings.Contains(t.flags, "TEST_F_LOCAL"), strings.HasSuffix(t.name, "_mock"):
		return "not of a broker: runs alone, or on librdkafka's mock cluster"
	case strings.Contains(t.flags, "TEST_F_MANUAL"):
		return "librdkafka runs it by hand only"
	case strings.Contains(t.name, "_share_consumer_"):
		return "share groups are not served yet"
	case librdkafkaKnown.MatchString(t.flags):
		return "a known issue of librdkafka, which leaves it out too"
	case !strings.Contains(t.scenario, scenario):
		return "runs with other settings, scenario " + t.scenario
	}
	return ""
}

// parseLibrdkafkaTests reads the list of tests out of test.c.
func parseLibrdkafkaTests(source string) ([]librdkafkaTest, error) {
	_, list, found := strings.Cut(source, "struct test tests[]")
	list, _, ends := strings.Cut(list, "{NULL}")
	if !found || !ends {
		return nil, errors.New("test.c has no list of tests")
	}
	var tests []librdkafkaTest
	for _, entry := range strings.Split(list, "_TEST(")[1:] {
		match := librdkafkaEntry.FindStringSubmatch(entry)
		if match == nil {
			return nil, fmt.Errorf("an entry in the list of test.c is not understood: %.60q", entry)
		}
		test := librdkafkaTest{name: match[1], flags: match[2], scenario: "default"}
		if scenario := librdkafkaScenario.FindStringSubmatch(entry); scenario != nil {
			test.scenario = scenario[1]
		}
		tests = append(tests, test)
	}
	return tests, nil
}

// librdkafkaApart are tests that end at the first subtest that fails, and have many: each subtest runs in a process of its
// own.
var librdkafkaApart = map[string]struct{ file, root string }{
	"0081_admin":                 {"0081-admin.c", "do_test_apis"},
	"0113_cooperative_rebalance": {"0113-cooperative_rebalance.cpp", "main_0113_cooperative_rebalance"},
	"0137_barrier_batch_consume": {"0137-barrier_batch_consume.c", "main_0137_barrier_batch_consume"},
}

var (
	cFunction = regexp.MustCompile(`(?m)^(?:static )?(?:\w+ )?(\w+)\(`)
	cSubtest  = regexp.MustCompile(`\bSUB_TEST(?:_QUICK)?\(`)
	cCall     = regexp.MustCompile(`\b(\w+)\(`)
)

// librdkafkaSubtests finds the functions that root calls and that are subtests, in the order of the calls.
func librdkafkaSubtests(source, root string) []string {
	bodies := map[string]string{}
	for _, at := range cFunction.FindAllStringSubmatchIndex(source, -1) {
		body, _, _ := strings.Cut(source[at[1]:], "\n}")
		bodies[source[at[2]:at[3]]] = body
	}
	var out []string
	for _, call := range cCall.FindAllStringSubmatch(bodies[root], -1) {
		if cSubtest.MatchString(bodies[call[1]]) && !slices.Contains(out, call[1]) {
			out = append(out, call[1])
		}
	}
	return out
}

// librdkafkaProcess is one run of the test program.
type librdkafkaProcess struct {
	number  string   // of its tests
	subtest string   // the one function of subtests that it is for; "" is all of them
	tests   []string // the names of its results
}

// librdkafkaLong are the numbers that take longest. They start first, or they would run alone in the end.
var librdkafkaLong = []string{"0077", "0089", "0113", "0102", "0026", "0033", "0045", "0076", "0137", "0091"}

// planLibrdkafka says what to run in a scenario, in this order, and what is left out. only limits it to names that begin
// with one of its elements, nil is no limit; skip are names that do not run. dir has the source of the tests.
func planLibrdkafka(dir, scenario string, only []string, skip map[string]string) (plan []librdkafkaProcess, left []Result, err error) {
	source, err := os.ReadFile(filepath.Join(dir, "test.c"))
	if err != nil {
		return nil, nil, err
	}
	tests, err := parseLibrdkafkaTests(string(source))
	if err != nil {
		return nil, nil, err
	}
	wanted := func(name string) bool {
		return !skipped(skip, name) && (only == nil || slices.ContainsFunc(only, func(o string) bool { return strings.HasPrefix(name, o) }))
	}
	for _, t := range tests {
		reason := t.off(scenario)
		at := slices.IndexFunc(plan, func(p librdkafkaProcess) bool { return p.number == t.number() && p.subtest == "" })
		switch apart, ok := librdkafkaApart[t.name]; {
		case skipped(skip, t.name):
		case reason != "":
			left = append(left, Result{Test: t.name, Status: Skipped, Detail: reason})
		case ok:
			source, err := os.ReadFile(filepath.Join(dir, apart.file))
			if err != nil {
				return nil, nil, err
			}
			for _, subtest := range librdkafkaSubtests(string(source), apart.root) {
				if name := t.name + "/" + subtest; wanted(name) {
					plan = append(plan, librdkafkaProcess{number: t.number(), subtest: subtest, tests: []string{name}})
				}
			}
		case !wanted(t.name):
		case at >= 0:
			plan[at].tests = append(plan[at].tests, t.name)
		default:
			plan = append(plan, librdkafkaProcess{number: t.number(), tests: []string{t.name}})
		}
	}
	slices.SortStableFunc(plan, func(a, b librdkafkaProcess) int { return cmp.Compare(librdkafkaRank(a), librdkafkaRank(b)) })
	return plan, left, nil
}

func librdkafkaRank(p librdkafkaProcess) int {
	if i := slices.Index(librdkafkaLong, p.number); i >= 0 {
		return i
	}
	return len(librdkafkaLong)
}
