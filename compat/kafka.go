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

// Root is the top of the checkout that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "tidemark")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside a checkout of tidemark")
		}
	}
}

// Kafka runs the classes of Apache Kafka, whose jars Maven fetches.
type Kafka struct{ classpath, logging string }

// classpathVariable names the jars where Maven cannot be asked: in a network namespace without a way out.
const classpathVariable = "KAFKA_CLASSPATH"

// classpath asks Maven once per process.
var classpath = sync.OnceValues(func() (string, error) {
	if jars := os.Getenv(classpathVariable); jars != "" {
		return jars, nil
	}
	file, err := os.CreateTemp("", "kafka-classpath-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	root, err := Root()
	if err != nil {
		return "", err
	}
	mvn := exec.Command("mvn", "-q", "-B", "-f", filepath.Join(root, "compat", "kafka", "pom.xml"),
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
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return &Kafka{classpath: jars, logging: filepath.Join(root, "compat", "kafka", "log4j2.properties")}, nil
}

// Environ is the environment variable by which a process without a network finds the same jars.
func (k *Kafka) Environ() string { return classpathVariable + "=" + k.classpath }

// Classpath is the jars, for a compiler.
func (k *Kafka) Classpath() string { return k.classpath }

// WithClasses runs classes of this folder too.
func (k *Kafka) WithClasses(dir string) *Kafka {
	return &Kafka{classpath: dir + string(os.PathListSeparator) + k.classpath, logging: k.logging}
}

// Command prepares a run of a class, with a small heap and a fast start.
func (k *Kafka) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	return k.java(ctx, []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}, class, args...)
}

// LoadCommand prepares a run of one of Kafka's load generators, with the heap and the collector that Kafka's own scripts
// give them and every stage of the compiler.
func (k *Kafka) LoadCommand(ctx context.Context, class string, args ...string) *exec.Cmd {
	return k.java(ctx, []string{"-Xmx512m", "-XX:+UseG1GC"}, class, args...)
}

func (k *Kafka) java(ctx context.Context, flags []string, class string, args ...string) *exec.Cmd {
	all := append(flags, "-Dlog4j2.configurationFile="+k.logging, "-cp", k.classpath, class)
	return exec.CommandContext(ctx, "java", append(all, args...)...)
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
