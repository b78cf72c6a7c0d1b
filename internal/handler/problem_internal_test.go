package handler

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/api/apitest"
)

// Whatever problem this package can answer with is described with its status, and
// no other one is.
func TestEveryProblemIsDescribed(t *testing.T) {
	contract, err := apitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	described, made := contract.Problems(), madeHere(t)
	for _, known := range problems() {
		made[known.slug] = known.status
	}
	for kind, status := range made {
		if got, ok := described[kind]; !ok || got != status {
			t.Errorf("the problem %s with status %d is described with status %d", kind, status, got)
		}
	}
	for kind := range described {
		if _, ok := made[kind]; !ok {
			t.Errorf("the problem %s is described, and no code makes it", kind)
		}
	}
}

// madeHere is the status of every kind that this package's source calls newProblem
// with.
func madeHere(t *testing.T) map[string]int {
	t.Helper()
	made := make(map[string]int)
	files := token.NewFileSet()
	parsed, err := parser.ParseDir(files, ".", func(f os.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0) //nolint:staticcheck // one package, and no build tags
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed["handler"], func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "newProblem" {
			return true
		}
		kind, literal := call.Args[1].(*ast.BasicLit)
		status, named := call.Args[0].(*ast.SelectorExpr)
		if !literal || !named { // problemOf makes those of the table
			return true
		}
		slug, err := strconv.Unquote(kind.Value)
		if err != nil {
			t.Fatal(err)
		}
		made[slug] = statusNamed(t, status.Sel.Name)
		return true
	})
	return made
}

// statusNamed is the number behind a constant of net/http.
func statusNamed(t *testing.T, name string) int {
	t.Helper()
	for status := 400; status < 600; status++ {
		if "Status"+strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	t.Fatalf("http.%s is no status", name)
	return 0
}

// Clients that are rejected together do not return together.
func TestRetryAfterHasJitter(t *testing.T) {
	seen := make(map[string]int)
	for range 200 {
		seen[retryAfter()]++
		seen["of a rate: "+tooOften("it asks", 1500*time.Millisecond).retryAfter]++
	}
	for _, want := range []string{"1", "2", "3", "of a rate: 2", "of a rate: 3", "of a rate: 4"} {
		if seen[want] == 0 {
			t.Errorf("of 200 none is %s: %v", want, seen)
		}
	}
	if len(seen) != 6 {
		t.Errorf("Retry-After is %v, want 1 to 3, and 2 to 4 for a wait of 1.5 s", seen)
	}
}
