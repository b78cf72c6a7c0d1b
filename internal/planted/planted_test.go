//go:build prove

// Package planted plants bugs in a copy of the tree, one after the other. Each
// must turn the test red that is named beside it: a suite is worth what it
// catches.
package planted

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Each planted bug must turn its test red; and the same test must be green
// without it, or it would prove nothing.
func TestProvePlantedBugsAreCaught(t *testing.T) {
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			if d.needs != "" {
				program, known := map[string]string{"mariadb": "mariadbd", "redis": "redis-server", "etcd": "etcd"}[d.needs]
				if !known {
					t.Fatalf("it is not known what program %s is", d.needs)
				}
				_, err := servers.Find(program)
				labtest.Need(t, d.needs, err == nil, "the bug shows only there")
			}
			tree := copyTree(t)
			if out, passed := runTest(t, tree, d); !passed {
				t.Fatalf("%s is red without the bug:\n%s", d.test, out)
			}
			plant(t, tree, d)
			out, passed := runTest(t, tree, d)
			if passed {
				t.Fatalf("%s does not notice:\n%s", d.test, out)
			}
			if !strings.Contains(out, "--- FAIL: ") {
				t.Fatalf("%s did not fail, it did not run:\n%s", d.test, out)
			}
		})
	}
}

// copyTree copies what belongs to the module.
func copyTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name == ".git" || name == "bin" || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		to := filepath.Join(tree, strings.TrimPrefix(path, root))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func plant(t *testing.T, tree string, d defect) {
	t.Helper()
	path := filepath.Join(tree, d.file)
	write(t, path, []byte(replaceOnce(t, path, d.old, d.new)))
}

// runTest runs the bug's test in a tree. Vet is off: it would find some bugs
// before the test does.
func runTest(t *testing.T, tree string, d defect) (out string, passed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(d.test, "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-run", pattern, d.pkg)
	cmd.Dir = tree
	output, err := cmd.CombinedOutput()
	return string(output), err == nil
}
