package internal

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tidemark-io/tidemark/"

// helper marks packages that any floor may import, and that import no package of this module but other helpers.
const helper = -1

// testOnly marks packages that only tests import; they may import every floor.
const testOnly = 99

// floors is the table of ARCHITECTURE.md: a package imports packages of lower floors and helpers only, so packages on
// one floor do not know each other. A package that is not listed fails the test.
var floors = map[string]int{
	"internal/meta":        0,
	"internal/record":      0,
	"internal/wire":        0,
	"internal/blob":        0,
	"internal/vfs":         helper,
	"internal/invariant":   helper,
	"internal/keystore":    helper,
	"internal/registry":    1,
	"internal/commitlog":   1,
	"internal/coordinator": 1,
	"internal/auth":        1,
	"internal/replica":     2,
	"internal/tier":        2,
	"internal/controller":  2,
	"internal/groups":      3,
	"internal/txn":         3,
	"internal/deletion":    3,
	"internal/server":      4,
	"internal/console":     4,
	"internal/broker":      5,
	"cmd/tidemark":         6,
	"internal/sim":         testOnly,
	"internal/yardstick":   testOnly,
}

// restricted lists packages of other modules that only some packages may import, each with the reason.
var restricted = []struct {
	prefix  string
	allowed []string
	reason  string
}{
	{"go.etcd.io/", []string{"internal/registry"}, "only registry talks to etcd"},
	{
		"github.com/twmb/franz-go",
		[]string{"internal/wire", "internal/server", "internal/groups", "internal/txn", "cmd/tidemark"},
		"below the coordinators the protocol is unknown",
	},
	{"github.com/minio/minio-go", []string{"internal/blob"}, "only blob talks to the object store"},
	{"math/rand", nil, "use math/rand/v2 with a seeded source"},
	{"log", nil, "use log/slog"},
}

// TestFloors parses the imports of every Go file itself: `go list` inside a test is cached and goes stale.
func TestFloors(t *testing.T) {
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file.path))
		if pkg == "internal" {
			continue
		}
		floor, known := floorOf(pkg)
		if !known {
			t.Errorf("%s: package %s has no floor; add it to the table here and in ARCHITECTURE.md", file.path, pkg)
			continue
		}
		isTest := strings.HasSuffix(file.path, "_test.go")
		for _, imported := range file.imports {
			if own, found := strings.CutPrefix(imported, module); found {
				checkFloor(t, file.path, pkg, own, floor, isTest)
				continue
			}
			if !isTest {
				checkRestricted(t, file.path, pkg, imported)
			}
		}
	}
}

// floorOf finds the floor of a package; a subfolder stands on its parent's floor.
func floorOf(pkg string) (int, bool) {
	for p := pkg; p != "." && p != "/"; p = filepath.ToSlash(filepath.Dir(p)) {
		if floor, found := floors[p]; found {
			return floor, true
		}
	}
	return 0, false
}

func checkFloor(t *testing.T, path, pkg, imported string, floor int, isTest bool) {
	t.Helper()
	target, known := floorOf(imported)
	switch {
	case !known:
		t.Errorf("%s imports %s, which has no floor", path, imported)
	case imported == pkg || strings.HasPrefix(imported, pkg+"/") || strings.HasPrefix(pkg, imported+"/"):
	case isTest && target == testOnly:
	case floor == testOnly || target == helper:
	case floor == helper || target >= floor:
		t.Errorf("%s (floor %d) imports %s (floor %d): imports only go down", path, floor, imported, target)
	case pkg == "internal/server" && imported == "internal/commitlog":
		t.Errorf("%s imports commitlog: the server knows replicas, never logs", path)
	}
}

func checkRestricted(t *testing.T, path, pkg, imported string) {
	t.Helper()
	for _, rule := range restricted {
		matches := imported == rule.prefix || strings.HasPrefix(imported, strings.TrimSuffix(rule.prefix, "/")+"/")
		if rule.prefix == "log" || rule.prefix == "math/rand" {
			matches = imported == rule.prefix
		}
		if !matches {
			continue
		}
		permitted := false
		for _, allowed := range rule.allowed {
			permitted = permitted || pkg == allowed || strings.HasPrefix(pkg, allowed+"/")
		}
		if !permitted {
			t.Errorf("%s imports %s: %s", path, imported, rule.reason)
		}
	}
}

type goFile struct {
	path    string // slash-separated, from the module's root
	imports []string
}

// goFiles parses the imports of every Go file under cmd and internal.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	for _, top := range []string{"cmd", "internal"} {
		root := filepath.Join("..", top)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case path == root && errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go"):
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			file := goFile{path: filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))}
			for _, spec := range parsed.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				file.imports = append(file.imports, name)
			}
			files = append(files, file)
			return nil
		})
		if err != nil {
			t.Fatalf("walk %s: %v", root, err)
		}
	}
	if len(files) == 0 {
		t.Fatal("no Go files found: the test runs in the wrong folder")
	}
	return files
}
