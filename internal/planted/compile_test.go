package planted

import (
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stockd/stockd/tools/compiled"
)

// A bug that does not compile turns no test red, and make prove would find that out hours
// later: code that is changed may call a bug's function by another name. Each package is
// type-checked with each of its bugs, against what is compiled of the others.
func TestEveryBugCompiles(t *testing.T) {
	bugs := bugsOfGo()
	if len(bugs) == 0 {
		t.Fatal("no bug is in a Go file")
	}
	list := listPackages(t, slices.Sorted(maps.Keys(bugs)))
	checks := newTypeCheck(list)
	for _, p := range list {
		folder := folderOf(t, p.Dir)
		for _, b := range bugs[folder] {
			if name := filepath.Base(b.file); slices.Contains(p.IgnoredGoFiles, name) {
				t.Logf("%s: not checked, %s is not built on this system", b.name, b.file)
			} else if !slices.Contains(p.GoFiles, name) {
				t.Errorf("%s: %s is not built into %s", b.name, b.file, p.ImportPath)
			} else if err := checks.withBug(p, name, replaceOnce(t, filepath.Join(root, b.file), b.old, b.new)); err != nil {
				t.Errorf("%s does not compile:\n%v", b.name, err)
			}
		}
		delete(bugs, folder)
	}
	for folder := range bugs {
		t.Errorf("go list knows no package in %s", folder)
	}
}

// bugsOfGo are the bugs in Go files, by the folder of their package. Other files, such as SQL
// and Lua, cannot fail to compile.
func bugsOfGo() map[string][]breach {
	all := breaches()
	for _, d := range defects() {
		all = append(all, breach{name: d.name, file: d.file, old: d.old, new: d.new})
	}
	bugs := make(map[string][]breach)
	for _, b := range all {
		if filepath.Ext(b.file) == ".go" {
			folder := filepath.Dir(b.file)
			bugs[folder] = append(bugs[folder], b)
		}
	}
	return bugs
}

// listPackages are the packages in these folders of the module and all that they import, compiled.
func listPackages(t *testing.T, folders []string) []compiled.Package {
	t.Helper()
	patterns := make([]string, len(folders))
	for i, folder := range folders {
		patterns[i] = "./" + filepath.ToSlash(folder)
	}
	list, err := compiled.List(t.Context(), root, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range p.GoFiles { // a result that go test keeps depends on the files that the test itself opens
			if _, err := os.Stat(filepath.Join(p.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return list
}

// folderOf is where a package is below the root of the module.
func folderOf(t *testing.T, dir string) string {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Rel(top, dir)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// typeCheck checks packages against the compiled ones that they import.
type typeCheck struct {
	fset    *token.FileSet
	imports types.Importer
	parsed  map[string]*ast.File // files without a bug
}

func newTypeCheck(list []compiled.Package) *typeCheck {
	fset := token.NewFileSet()
	return &typeCheck{fset: fset, parsed: make(map[string]*ast.File), imports: compiled.Importer(fset, list)}
}

// withBug is what the compiler says of a package in which one file has another content.
func (c *typeCheck) withBug(p compiled.Package, name, content string) error {
	files := make([]*ast.File, 0, len(p.GoFiles))
	for _, other := range p.GoFiles {
		var file *ast.File
		var err error
		if other == name {
			file, err = parser.ParseFile(c.fset, name, content, parser.SkipObjectResolution)
		} else {
			file, err = c.parse(filepath.Join(p.Dir, other))
		}
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var errs []error
	config := types.Config{Importer: c.imports, Error: func(err error) { errs = append(errs, err) }}
	if p.Module != nil {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	_, err := config.Check(p.ImportPath, c.fset, files, nil)
	return cmp.Or(errors.Join(errs...), err)
}

// parse reads a file once.
func (c *typeCheck) parse(path string) (*ast.File, error) {
	if file := c.parsed[path]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(c.fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c.parsed[path] = file
	return file, nil
}
