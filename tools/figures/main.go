// Command figures writes the figures of docs/benchmark.json, and those of the pages of
// experiments, into the documents that quote them, and draws the benchmark's pictures. A marker has the template of the text that follows it:
//
//	<!-- {{rate "etcd" 64 3}} -->258<!-- / -->
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/stockd/stockd/internal/lab/bench"
)

// The figures, from the root of the repository.
const (
	source = "docs/benchmark.json"
	growth = "docs/growth.json"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it is read from, and its files are closed
	return each(root, func(path, text, wanted string) error {
		if text == wanted {
			return nil
		}
		return root.WriteFile(path, []byte(wanted), 0o644)
	})
}

// each calls do with every document below root, and every picture: as it is, and as the
// figures want it.
func each(root *os.Root, do func(path, text, wanted string) error) error {
	result, err := read(root.ReadFile, source)
	if err != nil {
		return err
	}
	grown, err := read(root.ReadFile, growth)
	if err != nil {
		return err
	}
	for path, draw := range map[string]func(io.Writer) error{
		"docs/benchmark.svg": result.Chart, "docs/waiters.svg": result.Waiters, "docs/growth.svg": grown.Growth,
	} {
		var wanted strings.Builder
		if err := draw(&wanted); err != nil {
			return err
		}
		text, err := root.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := do(path, string(text), wanted.String()); err != nil {
			return err
		}
	}
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		wanted, err := rewrite(string(text), figures{*result, root.ReadFile})
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return do(path, string(text), wanted)
	})
}

func read(file func(path string) ([]byte, error), path string) (*bench.Result, error) {
	content, err := file(path)
	if err != nil {
		return nil, err
	}
	var result bench.Result
	if err := json.Unmarshal(content, &result); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &result, nil
}

var (
	marker = regexp.MustCompile(`(?s)(<!-- (\{\{.*?\}\}) -->)(.*?)(<!-- / -->)`)
	// lineStart is a marker in prose at the beginning of a line; a table's stands alone.
	lineStart = regexp.MustCompile(`(?m)^<!-- \{\{.*?\}\} -->.+$`)
)

// rewrite replaces the text behind each marker. The template's dot is the text before.
func rewrite(text string, f figures) (string, error) {
	functions := template.FuncMap{
		"rate": f.rate, "times": f.times, "part": f.part, "ratio": f.ratio, "value": f.value,
		"between": f.between, "reached": f.reached, "usual": f.usual, "costs": f.costs, "lab": f.lab, "nodes": f.nodes, "items": f.items, "grown": f.grown, "ledger": f.ledger,
	}
	var failed error
	if found := lineStart.FindString(text); found != "" {
		return "", fmt.Errorf("%s begins a line, which ends the paragraph", found)
	}
	text = marker.ReplaceAllStringFunc(text, func(found string) string {
		parts := marker.FindStringSubmatch(found)
		var b strings.Builder
		t, err := template.New("").Funcs(functions).Parse(parts[2])
		if err == nil {
			err = t.Execute(&b, parts[3])
		}
		if err != nil && failed == nil {
			failed = err
		}
		return parts[1] + b.String() + parts[4]
	})
	return text, failed
}
