package suites

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Run is what one suite did on one broker: a file of results.
type Run struct {
	Suite    string   `json:"suite"`
	Source   string   `json:"source"`
	Peer     Peer     `json:"peer"`
	Settings []string `json:"settings,omitempty"`
	Results  []Result `json:"results"` // by name
}

// Count says how many tests ended this way.
func (r *Run) Count(status Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// Again names the tests that passed only when they were run again alone.
func (r *Run) Again() []string {
	var tests []string
	for _, result := range r.Results {
		if result.PassedAgain {
			tests = append(tests, result.Test)
		}
	}
	return tests
}

// Status is how a test ended; "" says that it did not run. One line of what was skipped may stand for many tests.
func (r *Run) Status(test string) Status {
	if i := slices.IndexFunc(r.Results, func(r Result) bool { return covers(r.Test, test) }); i >= 0 {
		return r.Results[i].Status
	}
	return ""
}

// Path is the file of a suite's results on a broker, below the directory of results.
func Path(dir, suite string, peer Peer) string {
	return filepath.Join(dir, suite+"."+string(peer)+".json")
}

// Save writes the run into the directory of results.
func (r *Run) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return writeJSON(Path(dir, r.Suite, r.Peer), r)
}

// writeJSON writes a value for people to read and to compare.
func writeJSON(path string, value any) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return errors.Join(encoder.Encode(value), file.Close())
}

// Load reads a run; nil says that the suite has not run on this broker.
func Load(path string) (*Run, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	run := new(Run)
	if err := json.Unmarshal(text, run); err != nil {
		return nil, fmt.Errorf("read results %s: %w", path, err)
	}
	return run, nil
}
