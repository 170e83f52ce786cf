package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// impure names the packages that a machine may not import: whatever decides does no I/O, takes no lock, starts no
// goroutine, reads no clock and draws no randomness that it is not given.
var impure = map[string]bool{
	"context": true, "io": true, "log": true, "log/slog": true, "math/rand": true, "math/rand/v2": true,
	"net": true, "os": true, "sync": true, "sync/atomic": true,
}

// TestMachinesArePure checks every file named machine*.go.
func TestMachinesArePure(t *testing.T) {
	for _, file := range goFiles(t) {
		base := filepath.Base(file.path)
		if !strings.HasPrefix(base, "machine") || strings.HasSuffix(base, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join("..", file.path), nil, 0)
		if err != nil {
			t.Fatalf("parse %s: %v", file.path, err)
		}
		for _, fault := range impurities(parsed) {
			t.Errorf("%s: %s", set.Position(fault.at), fault.what)
		}
	}
}

// TestPurityGateBites proves that the gate sees what it is there to see.
func TestPurityGateBites(t *testing.T) {
	const source = `package p
import ("os"; "time")
func f(c chan int) { go f(c); c <- 1; <-c; _ = time.Now(); _ = os.Args; select {} }`
	parsed, err := parser.ParseFile(token.NewFileSet(), "machine_bad.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(impurities(parsed)); got != 7 {
		t.Fatalf("the gate sees %d faults in the bad machine, want 7", got)
	}
}

type impurity struct {
	at   token.Pos
	what string
}

func impurities(file *ast.File) []impurity {
	var faults []impurity
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil && impure[name] {
			faults = append(faults, impurity{spec.Pos(), "a machine imports " + name})
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			faults = append(faults, impurity{n.Pos(), "a machine starts a goroutine"})
		case *ast.ChanType:
			faults = append(faults, impurity{n.Pos(), "a machine holds a channel"})
		case *ast.SendStmt:
			faults = append(faults, impurity{n.Pos(), "a machine sends on a channel"})
		case *ast.SelectStmt:
			faults = append(faults, impurity{n.Pos(), "a machine waits"})
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				faults = append(faults, impurity{n.Pos(), "a machine receives from a channel"})
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && readsClock[n.Sel.Name] {
				faults = append(faults, impurity{n.Pos(), "a machine reads the clock: pass now"})
			}
		}
		return true
	})
	return faults
}

var readsClock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "NewTimer": true, "NewTicker": true,
	"Tick": true, "Sleep": true,
}
