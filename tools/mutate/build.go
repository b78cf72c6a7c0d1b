package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stockd/stockd/tools/compiled"
)

// Variables of the environment of a test binary with mutants.
const (
	chosen = "STOCKDTEST_MUTANT"       // the number of the one that is at work
	traced = "STOCKDTEST_MUTANT_TRACE" // a file for the numbers of those that are passed
)

// chooser is the file that every package with mutants gets.
const chooser = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var mutantChosen__ = func() int { n, _ := strconv.Atoi(os.Getenv("` + chosen + `")); return n }()

var mutantTrace__ = func() *os.File {
	if os.Getenv("` + traced + `") == "" {
		return nil
	}
	f, _ := os.OpenFile(os.Getenv("` + traced + `"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return f
}()

var mutantsPassed__ sync.Map

func mutant__(n int) bool {
	if mutantTrace__ != nil {
		if _, again := mutantsPassed__.LoadOrStore(n, true); !again {
			fmt.Fprintln(mutantTrace__, n)
		}
	}
	return n == mutantChosen__
}
`

// build makes the test binary of a package with all its mutants in it.
func build(ctx context.Context, folder, work string) (binary string, mutants []mutant, err error) {
	list, err := compiled.List(ctx, ".", "./"+folder)
	if err != nil {
		return "", nil, err
	}
	target := list[len(list)-1] // after what it imports
	fset := token.NewFileSet()
	files, sources := make([]*ast.File, len(target.GoFiles)), make([][]byte, len(target.GoFiles))
	for i, name := range target.GoFiles {
		path := filepath.Join(target.Dir, name)
		if sources[i], err = os.ReadFile(path); err != nil {
			return "", nil, fmt.Errorf("read the code: %w", err)
		}
		if files[i], err = parser.ParseFile(fset, path, sources[i], parser.ParseComments); err != nil {
			return "", nil, fmt.Errorf("parse %s: %w", name, err)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	check := types.Config{Importer: compiled.Importer(fset, list)}
	pkg, err := check.Check(target.ImportPath, fset, files, info)
	if err != nil {
		return "", nil, fmt.Errorf("check %s: %w", folder, err)
	}
	overlay := map[string]string{}
	put := func(name string, content []byte) error {
		path := filepath.Join(work, name)
		overlay[filepath.Join(target.Dir, name)] = path
		return os.WriteFile(path, content, 0o600)
	}
	for i, name := range target.GoFiles {
		p := &planter{fset: fset, info: info, pkg: pkg, name: filepath.Join(folder, name), source: sources[i], file: files[i], first: len(mutants)}
		if err := put(name, p.plant()); err != nil {
			return "", nil, fmt.Errorf("write mutants: %w", err)
		}
		mutants = append(mutants, p.mutants...)
	}
	if err := put("mutant__.go", fmt.Appendf(nil, chooser, target.Name)); err != nil {
		return "", nil, fmt.Errorf("write mutants: %w", err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", nil, fmt.Errorf("write the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(work, "overlay.json"), replace, 0o600); err != nil {
		return "", nil, fmt.Errorf("write the overlay: %w", err)
	}
	binary = filepath.Join(work, "mutants.test")
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(work, "overlay.json"), "-o", binary, "./"+folder).CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("build %s with its mutants: %w\n%s", folder, err, out)
	}
	return binary, mutants, nil
}
