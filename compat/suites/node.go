package suites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// nodeVersion is the Node.js that runs the probes. It comes from npm too, so that the machine's own may be older.
const nodeVersion = "24.22.3"

// nodeProbes is a client from npm with a probe program of ours.
type nodeProbes struct {
	pins    string            // file of pinned packages below compat/probes/node, in the form of a package.json
	program string            // the probe program there
	env     []string          // beside the ordinary variables while packages are installed
	headers map[string]string // what is compiled wants these, each of a package of Debian's
}

// runtimeDir is where Node.js is, below the directory of Prepare.
func (p nodeProbes) runtimeDir(dir string) (string, error) {
	arch, ok := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("npm has no Node.js for linux on %s", runtime.GOARCH)
	}
	return filepath.Join(dir, "node", "node_modules", "node-linux-"+arch), nil
}

func (p nodeProbes) prepare(ctx context.Context, dir string) error {
	pins, err := probeFile("node", p.pins)
	if err != nil {
		return err
	}
	done, mark, err := prepared(dir, pins)
	if done || err != nil {
		return err
	}
	if p.headers != nil {
		if err := missingPackages(p.headers); err != nil {
			return err
		}
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is missing: install the packages nodejs and npm")
	}
	node, err := p.runtimeDir(dir)
	if err != nil {
		return err
	}
	install := []string{"install", "--no-audit", "--no-fund", "--no-package-lock", "--no-save"}
	if err := fetch(ctx, dir, nil, npm, append(install, "--prefix", filepath.Join(dir, "node"), filepath.Base(node)+"@"+nodeVersion)...); err != nil {
		return err
	}
	text, err := os.ReadFile(pins)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600); err != nil {
		return err
	}
	// What is compiled is compiled for the Node.js that will load it.
	env := append([]string{"PATH=" + filepath.Join(node, "bin") + ":" + os.Getenv("PATH"), "npm_config_nodedir=" + node}, p.env...)
	if err := fetch(ctx, dir, env, npm, install...); err != nil {
		return err
	}
	return mark()
}

func (p nodeProbes) run(ctx context.Context, s *Stage) ([]Result, error) {
	program, err := probeFile("node", p.program)
	if err != nil {
		return nil, err
	}
	node, err := p.runtimeDir(s.Dir)
	if err != nil {
		return nil, err
	}
	env := []string{"NODE_PATH=" + filepath.Join(s.Dir, "node_modules"), "NODE_NO_WARNINGS=1"}
	return runProbes(ctx, s, env, filepath.Join(node, "bin", "node"), program)
}

func kafkaJS() Suite {
	probes := nodeProbes{pins: "kafkajs.json", program: "kafkajs_probes.js"}
	return Suite{
		Name:     "kafkajs",
		Source:   "npm kafkajs 2.2.4: probes of ours",
		Settings: probeSettings(),
		Listen:   probeListen,
		CI: []string{"partitions_grow", "configs_of_topic", "offsets_by_time", "produce_gzip", "produce_snappy", "produce_lz4", "produce_zstd",
			"produce_idempotent", "record_parts", "message_at_limit", "missing_topic_not_created", "seek", "consumer_reconnects",
			"group_resumes_after_commit", "group_rebalances", "group_of_own_assigner"},
		Prepare: probes.prepare,
		Run:     probes.run,
	}
}

func platformaticKafka() Suite {
	probes := nodeProbes{pins: "platformatic-kafka.json", program: "platformatic_kafka_probes.js"}
	return Suite{
		Name:     "platformatic-kafka",
		Source:   "npm @platformatic/kafka 2.12.1: probes of ours",
		Settings: probeSettings(),
		Listen:   probeListen,
		Prepare:  probes.prepare,
		Run:      probes.run,
	}
}

// confluentKafkaJavaScript is compiled, with the librdkafka in its package, against the libraries of the system: what it would
// fetch itself comes from elsewhere than a package registry.
func confluentKafkaJavaScript() Suite {
	probes := nodeProbes{
		pins: "confluent-kafka-javascript.json", program: "confluent_kafka_javascript_probes.js",
		env:     []string{"CKJS_LINKING=dynamic"},
		headers: map[string]string{"openssl/ssl.h": "libssl-dev", "zlib.h": "zlib1g-dev", "zstd.h": "libzstd-dev"},
	}
	return Suite{
		Name:     "confluent-kafka-javascript",
		Source:   "npm @confluentinc/kafka-javascript 1.10.1: probes of ours",
		Settings: probeSettings(),
		Listen:   probeListen,
		Prepare:  probes.prepare,
		Run:      probes.run,
	}
}

// missingPackages names the packages without which what is compiled would lack a part.
func missingPackages(headers map[string]string) error {
	packages := map[string]string{"make": "make", "g++": "g++", "python3": "python3"}
	var missing []string
	for program, name := range packages {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, name)
		}
	}
	for header, name := range headers {
		if _, err := os.Stat(filepath.Join("/usr/include", header)); err != nil {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("install the packages %s", strings.Join(missing, ", "))
}
