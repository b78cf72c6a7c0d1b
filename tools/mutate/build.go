package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// listed is what go list knows of a package.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
}

// build makes the test binary of a package with all its mutants in it.
func build(ctx context.Context, folder, work string) (binary string, mutants []mutant, err error) {
	target, exports, err := list(ctx, folder)
	if err != nil {
		return "", nil, err
	}
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
	check := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
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

// list describes a package, and where the compiled ones are that it imports.
func list(ctx context.Context, folder string) (target listed, exports map[string]string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles", "./"+folder).Output()
	if err != nil {
		return target, nil, fmt.Errorf("list %s: %w", folder, err)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) { //nolint:musttag // the names are those of go list
			return target, exports, nil
		} else if err != nil {
			return target, nil, fmt.Errorf("read go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		target = p // the package itself comes last
	}
}
