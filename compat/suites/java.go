package suites

import (
	"context"
	"path/filepath"

	"github.com/tidemark-io/tidemark/compat"
)

// javaClient are probes of ours with Apache Kafka's Java client: its own tests come without a way to hand them a broker.
func javaClient() Suite {
	return Suite{
		Name:   "java-client",
		Source: "Maven artifact org.apache.kafka:kafka-clients " + kafkaVersion + ": probes of ours",
		// What a group waits at its start would be most of the time that the probes take.
		Settings: []string{"group.initial.rebalance.delay.ms=0"},
		CI:       []string{"producer-idempotent", "producer-codec-zstd", "group-CooperativeStickyAssignor", "group-static-member-returns", "admin-topics"},
		Prepare:  prepareJava,
		Run:      runJava,
	}
}

// javaClasses is where the compiled probes are, below the directory of Prepare.
const javaClasses = "classes"

func prepareJava(ctx context.Context, dir string) error {
	if err := rememberKafka(ctx, dir); err != nil {
		return err
	}
	kafka, err := compat.OpenKafka()
	if err != nil {
		return err
	}
	pattern, err := probeFile("java", "*.java")
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	args := append([]string{"-d", filepath.Join(dir, javaClasses), "-cp", kafka.Classpath()}, sources...)
	return fetch(ctx, dir, nil, "javac", args...)
}

func runJava(ctx context.Context, s *Stage) ([]Result, error) {
	kafka, err := recallKafka(s.Dir)
	if err != nil {
		return nil, err
	}
	return runProbes(ctx, s, nil, kafka.WithClasses(filepath.Join(s.Dir, javaClasses)).Command(ctx, "Probes").Args...)
}
