package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// place is `package/file.go:Function` or `package/file.go` in a document.
var place = regexp.MustCompile("`((?:cmd/)?[a-z]+(?:/[a-z_]+)*/[a-z_0-9]+\\.go)(?::([A-Za-z]+))?`")

// TestArchitectureNamesWhatExists keeps ARCHITECTURE.md true: every place in the source that it names is there.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	places := place.FindAllStringSubmatch(string(text), -1)
	if len(places) < 20 {
		t.Fatalf("found %d places: the pattern no longer fits the document", len(places))
	}
	for _, p := range places {
		file, function := p[1], p[2]
		path := filepath.Join("..", file)
		if !strings.HasPrefix(file, "cmd/") && !strings.HasPrefix(file, "internal/") {
			path = filepath.Join("..", "internal", file)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if function != "" && !declares(parsed, function) {
			t.Errorf("%s declares no function %s", file, function)
		}
	}
}

func declares(file *ast.File, function string) bool {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function {
			return true
		}
	}
	return false
}

// link is a relative link of a Markdown document.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestDocumentsLinkToWhatExists checks the relative links of every document.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join("..", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join("..", "docs"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			documents = append(documents, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), match[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", document, match[1])
			}
		}
	}
	if links == 0 {
		t.Fatal("no links found: the pattern no longer fits the documents")
	}
}

// named is a test that a document names.
var named = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestDocumentsNameTestsThatExist keeps the record of bugs honest: each of them is still held by a test.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "correctness.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, root := range []string{".", filepath.Join("..", "cmd"), filepath.Join("..", "compat")} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			sources.Write(source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := named.FindAllStringSubmatch(string(text), -1)
	if len(tests) == 0 {
		t.Fatal("no tests found: the pattern no longer fits the document")
	}
	for _, test := range tests {
		if !strings.Contains(sources.String(), "\nfunc "+test[1]+"(") {
			t.Errorf("docs/correctness.md names %s, which is not there", test[1])
		}
	}
}
