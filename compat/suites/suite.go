package suites

import (
	"context"
	"io"
	"time"
)

// Suite is one body of tests of somebody else, or probes of ours with a client of somebody else.
type Suite struct {
	// Name is what `make compat SUITE=name` says, and how the files of results begin.
	Name string
	// Source is the registry, the package and its version: "Go module github.com/twmb/franz-go v1.22.3".
	Source string
	// Settings are what the suite assumes of a broker beside the defaults, `key=value` by Kafka's names, the same for both
	// brokers.
	Settings []string
	// Listen is the host:port that the broker listens on and advertises; "" takes a free port.
	Listen string
	// Skip names tests that run against no broker, each with the reason. A name that ends in * stands for every name that
	// begins so; it is then one line of the results.
	Skip map[string]string
	// CI names the tests of the subset that runs with every change; none if nil.
	CI []string
	// Prepare fetches and builds with the network at hand. dir is kept between runs: what is there already stays.
	Prepare func(ctx context.Context, dir string) error
	// Run runs the tests against the broker and returns a result for each. It has loopback only. An error means that the
	// suite did not run; a test that fails is a Result.
	Run func(ctx context.Context, s *Stage) ([]Result, error)
}

// Stage is a broker under test, and a prepared suite beside it.
type Stage struct {
	Dir     string            // what Prepare filled
	Addr    string            // host:port of the broker
	Peer    Peer              // which broker it is
	Only    []string          // run these tests alone; nil is all of them
	Skip    map[string]string // tests to leave out: the Skip of the suite, and more on tidemark
	Log     io.Writer         // takes whatever the suite prints
	Timeout time.Duration     // how long Run may take as a whole
}

// Peer is a kind of broker.
type Peer string

// The brokers that suites run against.
const (
	Tidemark Peer = "tidemark"
	Kafka    Peer = "kafka"
)

// Status is how a test ended.
type Status string

// The ways in which a test ends.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is one test of a suite.
type Result struct {
	Test   string `json:"test"`
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"` // the last lines of a failure, or the reason to skip
	// PassedAgain says that the test failed in the run of the whole suite, as Detail has it, and passed when it was run
	// again alone.
	PassedAgain bool          `json:"passed_again,omitempty"`
	Took        time.Duration `json:"-"` // not kept: it would differ from run to run
}

// All lists the suites in the order in which they run.
func All() []Suite {
	return []Suite{
		franzGo(),
		franzGoChaos(),
		sarama(),
		kafkaGo(),
		kafkaPython(),
		aioKafka(),
		confluentKafkaPython(),
		kafkaJS(),
		platformaticKafka(),
		confluentKafkaJavaScript(),
		librdkafka(),
		librdkafkaNoAutoCreate(),
		kafkaTools(),
		javaClient(),
	}
}
