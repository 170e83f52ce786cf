package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The npm packages that ship librdkafka's source: this one the newest, with its tests but without its examples, and an
// older one with the examples.
const (
	LibrdkafkaPackage  = "@confluentinc/kafka-javascript@1.10.1" // librdkafka 2.15.1
	performancePackage = "node-rdkafka@3.6.1"                    // librdkafka 2.12.0
)

// Librdkafka is librdkafka's source tree with the library built in it.
type Librdkafka struct {
	Dir string // the top of the tree: src, src-cpp, tests, examples
}

// BuildLibrdkafka fetches librdkafka's source and builds the library and rdkafka_performance, which takes some minutes of
// processor time, or takes what an earlier call left in cacheDir. It wants npm, a C++ compiler, make, and the headers of
// zlib, OpenSSL and zstd, and says what is missing. Several processes may share cacheDir.
func BuildLibrdkafka(ctx context.Context, cacheDir string) (*Librdkafka, error) {
	_, version, _ := strings.Cut(LibrdkafkaPackage[1:], "@")
	built := &Librdkafka{Dir: filepath.Join(cacheDir, "librdkafka-"+version)}
	if _, err := os.Stat(built.Dir); err == nil {
		return built, nil
	}
	if err := checkLibrdkafkaNeeds(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(cacheDir, "librdkafka-building-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	building := &Librdkafka{Dir: filepath.Join(work, "source")}
	if err := building.fetch(ctx, work); err != nil {
		return nil, err
	}
	if err := building.build(ctx); err != nil {
		return nil, err
	}
	if err := os.Rename(building.Dir, built.Dir); err != nil && !errors.Is(err, os.ErrExist) { // another process was first
		return nil, err
	}
	return built, nil
}

// RdkafkaPerformance is the path of librdkafka's producer and consumer for measurements, built below cacheDir as
// BuildLibrdkafka does it.
func RdkafkaPerformance(ctx context.Context, cacheDir string) (path string, err error) {
	built, err := BuildLibrdkafka(ctx, cacheDir)
	if err != nil {
		return "", err
	}
	return filepath.Join(built.Dir, "examples", "rdkafka_performance"), nil
}

// checkLibrdkafkaNeeds names everything that is missing, by what Debian calls it. configure would leave out what it does
// not find, and then other tests would run here than elsewhere.
func checkLibrdkafkaNeeds(ctx context.Context) error {
	var missing []string
	for _, tool := range []struct{ command, debian string }{{"npm", "npm"}, {"g++", "g++"}, {"make", "make"}, {"python3", "python3"}} {
		if _, err := exec.LookPath(tool.command); err != nil {
			missing = append(missing, tool.debian)
		}
	}
	if _, err := exec.LookPath("g++"); err == nil {
		for _, header := range []struct{ name, debian string }{
			{"zlib.h", "zlib1g-dev"}, {"openssl/ssl.h", "libssl-dev"}, {"zstd.h", "libzstd-dev"}, {"rapidjson/schema.h", "rapidjson-dev"},
		} {
			if err := exec.CommandContext(ctx, "g++", "-E", "-include", header.name, "-x", "c++", os.DevNull, "-o", os.DevNull).Run(); err != nil {
				missing = append(missing, header.debian)
			}
		}
	}
	if missing != nil {
		return fmt.Errorf("building librdkafka wants more than is installed: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// fetch gets the source, and the one file of the examples that is wanted, by way of files in work.
func (l *Librdkafka) fetch(ctx context.Context, work string) error {
	if err := unpackNpm(ctx, LibrdkafkaPackage, "package/deps/librdkafka", filepath.Join(work, "newest")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(work, "newest", "package", "deps", "librdkafka"), l.Dir); err != nil {
		return err
	}
	const example = "package/deps/librdkafka/examples/rdkafka_performance.c"
	if err := unpackNpm(ctx, performancePackage, example, filepath.Join(work, "older")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.Dir, "examples"), 0o755); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, "older", filepath.FromSlash(example)), filepath.Join(l.Dir, "examples", filepath.Base(example)))
}

// unpackNpm puts one file or directory of an npm package below dest, under the name that it has in the package.
func unpackNpm(ctx context.Context, spec, name, dest string) error {
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return err
	}
	pack := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dest, spec)
	out, err := Run(pack, "")
	if err != nil {
		return fmt.Errorf("fetch %s: %w", spec, err)
	}
	tarball := filepath.Join(dest, strings.TrimSpace(out.Stdout))
	if _, err := Run(exec.CommandContext(ctx, "tar", "-xzf", tarball, "-C", dest, name), ""); err != nil {
		return fmt.Errorf("unpack %s: %w", spec, err)
	}
	return nil
}

// build leaves out what no test of a broker without SASL uses.
func (l *Librdkafka) build(ctx context.Context) error {
	jobs := fmt.Sprintf("-j%d", runtime.NumCPU())
	performance := []string{"-O2", "-Isrc", "-o", "examples/rdkafka_performance", "examples/rdkafka_performance.c", "src/librdkafka.a",
		"-lm", "-lzstd", "-lssl", "-lcrypto", "-lz", "-ldl", "-lpthread", "-lrt"}
	for _, step := range []*exec.Cmd{
		exec.CommandContext(ctx, "./configure", "--disable-gssapi", "--disable-curl", "--disable-lz4-ext", "--disable-debug-symbols"),
		exec.CommandContext(ctx, "make", jobs, "libs"),
		exec.CommandContext(ctx, "gcc", performance...),
	} {
		step.Dir = l.Dir
		if _, err := Run(step, ""); err != nil {
			return fmt.Errorf("build librdkafka: %w", err)
		}
	}
	return nil
}
