package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const code = `package p

import "time"

type shop struct{ left int }

func (s *shop) sell(n int, d time.Duration, fine bool) (ok bool, err error) {
	if n <= 0 || !fine {
		return false, errNone
	}
	defer cancel()
	s.left -= n
	for i := range n {
		if fine {
			continue
		}
		d = d*2 + time.Duration(i)
	}
	return true, nil
}
`

// Every mutant is a change that a person could have made, and the file with all of them
// compiles.
func TestAFileIsPlantedWithEveryMutant(t *testing.T) {
	const rest = "package p\nvar errNone error\nfunc cancel() {}\nfunc mutant__(int) bool { return false }\n"
	fset := token.NewFileSet()
	parse := func(name, source string) *ast.File {
		f, err := parser.ParseFile(fset, name, source, 0)
		if err != nil {
			t.Fatalf("%v in\n%s", err, source)
		}
		return f
	}
	clock := types.NewPackage("time", "time")
	duration := types.NewTypeName(token.NoPos, clock, "Duration", nil)
	types.NewNamed(duration, types.Typ[types.Int64], nil)
	clock.Scope().Insert(duration)
	clock.MarkComplete()
	check := types.Config{Importer: only{clock}}
	file, info := parse("p.go", code), &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	pkg, err := check.Check("p", fset, []*ast.File{file, parse("rest.go", rest)}, info)
	if err != nil {
		t.Fatal(err)
	}
	p := &planter{fset: fset, info: info, pkg: pkg, name: "p.go", source: []byte(code), file: file}
	planted := string(p.plant())
	if _, err := check.Check("p", fset, []*ast.File{parse("planted.go", planted), parse("rest.go", rest)}, nil); err != nil {
		t.Errorf("%v in\n%s", err, planted)
	}
	got := make([]string, 0, len(p.mutants))
	for i, m := range p.mutants {
		if m.File != "p.go" || m.Func != "shop.sell" || m.id != i+1 || strings.Count(planted, fmt.Sprintf("mutant__(%d)", m.id)) != 1 {
			t.Errorf("%+v is not in its place in\n%s", m, planted)
		}
		got = append(got, m.Change)
	}
	want := []string{
		"s.left -= n →", "n <= 0 || !fine → n <= 0 && !fine", "n <= 0 → n < 0", "n <= 0 → n > 0", "!fine → fine",
		"return false → return !false", "errNone → nil", "d = d*2 + time.Duration(i) →", "fine → !fine", "continue →",
		"d*2 + time.Duration(i) → d*2 - time.Duration(i)", "d*2 → d/2", "return true → return !true",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the mutants are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

type only struct{ pkg *types.Package }

func (o only) Import(string) (*types.Package, error) { return o.pkg, nil }

func TestEverySurvivorIsInTheCodeAndHasItsReason(t *testing.T) {
	list := reasons()
	if !strings.HasSuffix(survivors, "\n") || strings.Count(survivors, "\n\t") == 0 {
		t.Fatal("the list is cut off")
	}
	for line := range strings.Lines(survivors) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "\t") {
			continue
		}
		if list[line] == "" {
			t.Errorf("%q has no reason", line)
		}
		file, rest, _ := strings.Cut(line, " ")
		_, change, _ := strings.Cut(rest, ": ")
		from, _, ok := strings.Cut(change, " →")
		from = strings.TrimPrefix(from, "return ") // it may be one of several results
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil || !ok || !strings.Contains(strings.Join(strings.Fields(string(content)), " "), strings.TrimSuffix(from, "...")) {
			t.Errorf("%s does not have %q any more (%v)", file, from, err)
		}
	}
}
