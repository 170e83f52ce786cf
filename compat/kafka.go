package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Kafka runs the classes of Apache Kafka, whose jars Maven fetches.
type Kafka struct{ classpath string }

// classpath asks Maven once per process.
var classpath = sync.OnceValues(func() (string, error) {
	file, err := os.CreateTemp("", "kafka-classpath-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	mvn := exec.Command("mvn", "-q", "-B", "-f", filepath.Join("kafka", "pom.xml"),
		"org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath", "-Dmdep.outputFile="+file.Name())
	if out, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("resolve Apache Kafka with Maven: %w\n%s", err, out)
	}
	jars, err := os.ReadFile(file.Name())
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(jars)), nil
})

// OpenKafka resolves the jars.
func OpenKafka() (*Kafka, error) {
	jars, err := classpath()
	if err != nil {
		return nil, err
	}
	return &Kafka{classpath: jars}, nil
}

// Command prepares a run of a class, with a small heap and a fast start.
func (k *Kafka) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	logging, err := filepath.Abs(filepath.Join("kafka", "log4j2.properties"))
	if err != nil {
		logging = ""
	}
	flags := []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + logging, "-cp", k.classpath, class,
	}
	return exec.CommandContext(ctx, "java", append(flags, args...)...)
}

// Output is what a program printed.
type Output struct{ Stdout, Stderr string }

// Run runs a command with this input and gathers what it prints; a non-zero exit is an error that shows both.
func Run(cmd *exec.Cmd, input string) (Output, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	out := Output{stdout.String(), stderr.String()}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return out, fmt.Errorf("%s: %w\nstdout: %s\nstderr: %s", strings.Join(cmd.Args[len(cmd.Args)-min(4, len(cmd.Args)):], " "),
				err, out.Stdout, out.Stderr)
		}
		return out, err
	}
	return out, nil
}
