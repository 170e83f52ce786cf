package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "put the kept series into the performance page")

// shown is the part of the page that shows a kept series.
var shown = regexp.MustCompile(`(?s)<!-- bench render (\S+) -->\n(.*?)<!-- end -->`)

// TestPageShowsAKeptSeries: the comparison in docs/performance.md is what the series that it names renders to, so no
// figure in it was ever typed.
func TestPageShowsAKeptSeries(t *testing.T) {
	page := filepath.Join("..", "docs", "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	match := shown.FindStringSubmatchIndex(string(text))
	if match == nil {
		t.Fatalf("%s has no `<!-- bench render FILE -->` … `<!-- end -->`", page)
	}
	name, part := string(text[match[2]:match[3]]), string(text[match[4]:match[5]])
	var out strings.Builder
	if err := render([]string{filepath.FromSlash(name)}, &out); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		all := string(text[:match[4]]) + out.String() + string(text[match[5]:])
		if err := os.WriteFile(page, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if part != out.String() {
		t.Errorf("%s does not show %s as it renders: run `go test ./... -run Page -rewrite` in bench/", page, name)
	}
}
