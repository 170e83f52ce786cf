package suites

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pythonProbes is a client from PyPI with a probe program of ours.
type pythonProbes struct {
	pins    string // file of pinned packages below compat/probes/python
	program string // the probe program there
}

func (p pythonProbes) python(dir string) string { return filepath.Join(dir, "venv", "bin", "python") }

// prepare makes a virtual environment with the pinned packages; then runs more, if given.
func (p pythonProbes) prepare(more func(ctx context.Context, dir string) error) func(ctx context.Context, dir string) error {
	return func(ctx context.Context, dir string) error {
		pins, err := probeFile("python", p.pins)
		if err != nil {
			return err
		}
		done, mark, err := prepared(dir, pins)
		if done || err != nil {
			return err
		}
		if _, err := exec.LookPath("python3"); err != nil {
			return errors.New("python3 is missing: install the packages python3 and python3-venv")
		}
		if err := fetch(ctx, dir, nil, "python3", "-m", "venv", "--clear", "venv"); err != nil {
			return fmt.Errorf("make a virtual environment (it wants the package python3-venv): %w", err)
		}
		if err := fetch(ctx, dir, nil, p.python(dir), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", pins); err != nil {
			return err
		}
		if more != nil {
			if err := more(ctx, dir); err != nil {
				return err
			}
		}
		return mark()
	}
}

func (p pythonProbes) run(ctx context.Context, s *Stage) ([]Result, error) {
	program, err := probeFile("python", p.program)
	if err != nil {
		return nil, err
	}
	return runProbes(ctx, s, []string{"PYTHONDONTWRITEBYTECODE=1"}, p.python(s.Dir), "-W", "ignore", program)
}

const (
	kafkaPythonVersion = "3.0.12"
	// kafkaPythonBroker is the newest broker that this version of the client knows by name, and takes ours for.
	kafkaPythonBroker = "4.3"
)

// kafkaPython is kafka-python's own integration tests and probes for what they leave out. The tests' names have "::".
func kafkaPython() Suite {
	probes := pythonProbes{pins: "kafka-python.txt", program: "kafka_python_probes.py"}
	return Suite{
		Name:   "kafka-python",
		Source: "PyPI kafka-python " + kafkaPythonVersion + ": its integration tests, and probes of ours",
		// The tests place replicas on broker 0.
		Settings: probeSettings("node.id=0"),
		Listen:   probeListen,
		Skip: map[string]string{
			"test_sasl_integration::*": "starts brokers of its own",
			"test_ssl_integration::*":  "starts brokers of its own",
		},
		CI: []string{"configs_of_topic", "offsets_listed", "record_parts", "produce_gzip", "produce_snappy", "produce_lz4", "produce_zstd",
			"message_at_limit", "order_with_many_in_flight", "seek", "consumer_reconnects", "group_resumes_after_commit", "group_rebalances",
			"group_offsets_managed", "test_admin_integration::test_delete_records",
			"test_producer_integration::test_idempotent_producer"},
		Prepare: probes.prepare(func(ctx context.Context, dir string) error { return kafkaPythonTests(ctx, dir, probes.python(dir)) }),
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			own, ours := *s, *s
			if s.Only != nil {
				isOwn := func(test string) bool { return strings.Contains(test, "::") }
				own.Only = slices.DeleteFunc(slices.Clone(s.Only), func(test string) bool { return !isOwn(test) })
				ours.Only = slices.DeleteFunc(slices.Clone(s.Only), isOwn)
			}
			var results []Result
			if s.Only == nil || len(own.Only) > 0 {
				r, err := runKafkaPythonTests(ctx, &own, probes.python(s.Dir))
				if err != nil {
					return nil, err
				}
				results = append(results, r...)
			}
			if s.Only == nil || len(ours.Only) > 0 {
				r, err := probes.run(ctx, &ours)
				if err != nil {
					return nil, err
				}
				results = append(results, r...)
			}
			return results, nil
		},
	}
}

// kafkaPythonSource is where the source package is unpacked.
func kafkaPythonSource(dir string) string {
	return filepath.Join(dir, "kafka_python-"+kafkaPythonVersion)
}

// kafkaPythonTests unpacks the tests, which only the source package has, and adds the two files that it lacks.
func kafkaPythonTests(ctx context.Context, dir, python string) error {
	if err := fetch(ctx, dir, nil, python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:",
		"-d", ".", "kafka-python=="+kafkaPythonVersion); err != nil {
		return err
	}
	source := kafkaPythonSource(dir)
	if err := os.RemoveAll(source); err != nil {
		return err
	}
	if err := fetch(ctx, dir, nil, "tar", "-xzf", filepath.Base(source)+".tar.gz"); err != nil {
		return err
	}
	// The client under test is the installed one.
	if err := os.RemoveAll(filepath.Join(source, "kafka")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(source, "test", "__init__.py"), nil, 0o600); err != nil {
		return err
	}
	path, err := probeFile("python", "kafka_python_service.py")
	if err != nil {
		return err
	}
	service, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(source, "test", "service.py"), service, 0o600)
}

func runKafkaPythonTests(ctx context.Context, s *Stage, python string) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	report, err := os.CreateTemp("", "compat-junit-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(report.Name())
	defer report.Close()
	source := kafkaPythonSource(s.Dir)
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "log_level=WARNING", "-o", "junit_family=xunit2",
		"--timeout=60", "--timeout-method=signal", "--tb=short", "--junitxml=" + report.Name()}
	if s.Only == nil {
		for _, part := range []string{"admin", "consumer", "producer"} {
			args = append(args, "test/integration/test_"+part+"_integration.py")
		}
	}
	for _, test := range s.Only {
		file, rest, _ := strings.Cut(test, "::")
		args = append(args, "test/integration/"+file+".py::"+rest)
	}
	cmd := command(ctx, python, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, s.Log, s.Log
	cmd.Env = append(os.Environ(), "KAFKA_URI=kafka://"+s.Addr, "KAFKA_VERSION="+kafkaPythonBroker, "KAFKA_ROOT="+source, "PYTHONDONTWRITEBYTECODE=1")
	runErr := cmd.Run() // non-zero if a test failed
	text, err := os.ReadFile(report.Name())
	if err != nil {
		return nil, err
	}
	results, err := parseJUnit(text)
	if err != nil {
		return nil, fmt.Errorf("read pytest's report: %w", errors.Join(err, runErr))
	}
	return results, nil
}

// parseJUnit reads pytest's report. A test is called file::name, or file::Class::name.
func parseJUnit(text []byte) ([]Result, error) {
	type outcome struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Class   string   `xml:"classname,attr"`
				Name    string   `xml:"name,attr"`
				Seconds float64  `xml:"time,attr"`
				Failure *outcome `xml:"failure"`
				Error   *outcome `xml:"error"`
				Skipped *outcome `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	var results []Result
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			r := Result{Status: Passed, Took: time.Duration(c.Seconds * float64(time.Second))}
			r.Test = strings.ReplaceAll(strings.TrimPrefix(c.Class, "test.integration."), ".", "::") + "::" + c.Name
			switch {
			case c.Failure != nil:
				r.Status, r.Detail = Failed, withoutPaths(detail(strings.Split(c.Failure.Text, "\n")))
			case c.Error != nil:
				r.Status, r.Detail = Failed, withoutPaths(detail(strings.Split(c.Error.Text, "\n")))
			case c.Skipped != nil:
				r.Status, r.Detail = Skipped, c.Skipped.Message
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return nil, errors.New("it has no test")
	}
	return results, nil
}

func aioKafka() Suite {
	probes := pythonProbes{pins: "aiokafka.txt", program: "aiokafka_probes.py"}
	return Suite{
		Name:     "aiokafka",
		Source:   "PyPI aiokafka 0.14.0: probes of ours",
		Settings: probeSettings(),
		Listen:   probeListen,
		Prepare:  probes.prepare(nil),
		Run:      probes.run,
	}
}

func confluentKafkaPython() Suite {
	probes := pythonProbes{pins: "confluent-kafka-python.txt", program: "confluent_kafka_python_probes.py"}
	return Suite{
		Name:     "confluent-kafka-python",
		Source:   "PyPI confluent-kafka 2.16.1: probes of ours",
		Settings: probeSettings(),
		Listen:   probeListen,
		Prepare:  probes.prepare(nil),
		Run:      probes.run,
	}
}
