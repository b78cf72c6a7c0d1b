// Package docs tests that what the documents name exists: pages, headings, routes,
// metrics, problems, strategies and experiments.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
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
		name, ok := strings.CutPrefix(path, "docs/")
		if ok && name != "README.md" && !strings.Contains(name, "/") && !strings.Contains(index, name) {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// The commands of the Chinese README are those of the English one, which a test of stockd
// runs. Comments differ.
func TestBothReadmesShowTheSameCommands(t *testing.T) {
	block, comment := regexp.MustCompile("(?ms)^```sh\n(.*?)^```"), regexp.MustCompile(`(?m)[ \t]+#.*$`)
	commands := func(path string) (all []string) {
		for _, found := range block.FindAllStringSubmatch(read(t, path), -1) {
			all = append(all, comment.ReplaceAllString(found[1], ""))
		}
		return all
	}
	english, chinese := commands("README.md"), commands("README.zh-CN.md")
	if len(english) == 0 || !slices.Equal(english, chinese) {
		t.Errorf("README.zh-CN.md has the commands\n%s\nand README.md has\n%s", strings.Join(chinese, "\n"), strings.Join(english, "\n"))
	}
}

// A token that stands in a document is public: where a token is required, none of them is
// accepted.
func TestNoTokenOfADocumentIsAccepted(t *testing.T) {
	for _, path := range files(t, ".md") {
		for _, found := range regexp.MustCompile(`STOCKD_ADMIN_TOKEN=([^\s$"']+)`).FindAllStringSubmatch(read(t, path), -1) {
			if err := admintoken.Weak(found[1]); err == nil {
				t.Errorf("%s: the token %s is accepted: add it to admintoken.Published", path, found[1])
			}
		}
	}
}
