package suites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Exception explains why tests end differently on the two brokers.
type Exception struct {
	Suite  string `json:"suite"`
	Test   string `json:"test"` // a name that ends in * stands for every name that begins so
	Reason string `json:"reason"`
	// Skip keeps the tests from running on tidemark: without what is not served yet they do not fail but wait for ever.
	Skip bool `json:"skip,omitempty"`
	// API is the API, by Kafka's name, that the reason says is not served; "" if it is about something else. A broker that
	// serves it makes the exception stale.
	API string `json:"api,omitempty"`
	// Chance says that the tests end one way or the other by chance, so that the two brokers may also agree.
	Chance bool `json:"chance,omitempty"`
}

// LoadExceptions reads exceptions.json.
func LoadExceptions(path string) ([]Exception, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Exception
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("read exceptions %s: %w", path, err)
	}
	return out, nil
}

// Difference is a test that does not end on tidemark as it does on Kafka.
type Difference struct {
	Test            string
	Tidemark, Kafka Status // "" says that the test did not run: its parent ended before
}

// Differences compares two runs of a suite. Without both there is none.
func Differences(tidemark, kafka *Run) []Difference {
	if tidemark == nil || kafka == nil {
		return nil
	}
	var tests []string
	for _, r := range append(slices.Clone(tidemark.Results), kafka.Results...) {
		if !strings.HasSuffix(r.Test, "*") {
			tests = append(tests, r.Test)
		}
	}
	slices.Sort(tests)
	var out []Difference
	for _, test := range slices.Compact(tests) {
		if d := (Difference{test, tidemark.Status(test), kafka.Status(test)}); d.Tidemark != d.Kafka {
			out = append(out, d)
		}
	}
	return out
}

// Unexplained are the differences that no exception covers.
func Unexplained(suite string, differences []Difference, exceptions []Exception) []Difference {
	return slices.DeleteFunc(slices.Clone(differences), func(d Difference) bool {
		return slices.ContainsFunc(exceptions, func(e Exception) bool { return e.Suite == suite && covers(e.Test, d.Test) })
	})
}

// Problems is what is wrong with the results below dir and the exceptions beside each other: differences without a reason,
// and reasons without a difference, which have to go.
func Problems(dir string, exceptions []Exception) error {
	var problems []error
	used := make([]bool, len(exceptions))
	for _, s := range All() {
		tidemark, err := Load(Path(dir, s.Name, Tidemark))
		if err != nil {
			return err
		}
		kafka, err := Load(Path(dir, s.Name, Kafka))
		if err != nil {
			return err
		}
		differences := Differences(tidemark, kafka)
		for _, d := range Unexplained(s.Name, differences, exceptions) {
			problems = append(problems, fmt.Errorf("%s %s: %s on tidemark, %s on Kafka, and no reason", s.Name, d.Test, orAbsent(d.Tidemark), orAbsent(d.Kafka)))
		}
		for i, e := range exceptions {
			covered := func(d Difference) bool { return covers(e.Test, d.Test) }
			used[i] = used[i] || e.Suite == s.Name && slices.ContainsFunc(differences, covered)
		}
	}
	for i, e := range exceptions {
		if e.Reason == "" || !used[i] && !e.Chance {
			problems = append(problems, fmt.Errorf("the exception for %s %s explains no difference, or not why", e.Suite, e.Test))
		}
		if strings.HasPrefix(e.Reason, "not served") != (e.API != "") {
			problems = append(problems, fmt.Errorf("the exception for %s %s names the API %q, and its reason is %q", e.Suite, e.Test, e.API, e.Reason))
		}
	}
	return errors.Join(problems...)
}

// stale is an error if an exception of the suite says of an API that it is not served, and it is.
func stale(suite string, exceptions []Exception, served []string) error {
	var problems []error
	for _, e := range exceptions {
		if e.Suite == suite && slices.Contains(served, e.API) {
			problems = append(problems, fmt.Errorf("the broker serves %s now: take the exception for %s out of exceptions.json", e.API, e.Test))
		}
	}
	return errors.Join(problems...)
}

// servedAPIs asks a broker which APIs it serves, and returns their names.
func servedAPIs(ctx context.Context, addr string) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	response, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask which APIs are served: %w", err)
	}
	var names []string
	for _, key := range response.ApiKeys {
		names = append(names, kmsg.NameForKey(key.ApiKey))
	}
	return names, nil
}
