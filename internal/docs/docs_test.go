// Package docs holds the documents of the repository to what they name: links,
// anchors, tests and figures.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// read is the text of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// files lists the files of the repository whose names end so, by their paths from
// its root.
func files(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name == "bin" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, suffix) {
			from, err := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(from))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no file ends in %s", suffix)
	}
	return paths
}

// Every document is in the index, so that it can be found.
func TestTheIndexHasEveryDocument(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, path := range files(t, ".md") {
		name, is := strings.CutPrefix(path, "docs/")
		if is && name != "README.md" && !strings.Contains(name, "/") && !strings.Contains(index, name) {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// A document that says which test shows something sends its reader to that test.
func TestTestsThatAreNamedExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	known := make(map[string]bool)
	for _, path := range files(t, "_test.go") {
		for _, found := range declared.FindAllStringSubmatch(read(t, path), -1) {
			known[found[1]] = true
		}
	}
	named := regexp.MustCompile(`\b(Test[A-Z]\w+)(…?)`)
	for _, path := range files(t, ".md") {
		for _, found := range named.FindAllStringSubmatch(read(t, path), -1) {
			if many := found[2] != ""; !many && !known[found[1]] {
				t.Errorf("%s names %s, which is no test", path, found[1])
			}
		}
	}
}

// The page of each experiment is there in Chinese, too.
func TestEveryExperimentHasAPageInChinese(t *testing.T) {
	seen := 0
	for _, path := range files(t, ".md") {
		name, ok := strings.CutPrefix(path, "docs/lab/")
		if !ok || strings.Contains(name, "/") {
			continue
		}
		seen++
		if _, err := os.Stat(filepath.Join(root, "docs", "lab", "zh", name)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if seen == 0 {
		t.Error("no experiment has a page")
	}
}
