// Package compiled has packages as the go command compiles them, for those who type-check changed code
// against them.
package compiled

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
)

// Package is what go list knows of a package.
type Package struct {
	ImportPath, Name, Dir   string
	Export                  string // the file that has it compiled
	GoFiles, IgnoredGoFiles []string
	Module                  *struct { // nil: it is of the standard library
		Main      bool
		GoVersion string
	}
}

// List compiles packages of the module in a folder and all that they import. Each stands after what it imports.
func List(ctx context.Context, module string, patterns ...string) (list []Package, err error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,IgnoredGoFiles,Module"}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(args, patterns)...)
	cmd.Dir = module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w\n%s", err, &stderr)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := d.Decode(&p); errors.Is(err, io.EOF) { //nolint:musttag // the names are those of go list
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		list = append(list, p)
	}
}

// Importer imports packages of a list.
func Importer(fset *token.FileSet, list []Package) types.Importer {
	exports := make(map[string]string, len(list))
	for _, p := range list {
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(exports[path])
	})
}
