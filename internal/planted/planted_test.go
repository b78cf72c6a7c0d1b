//go:build prove

// Package planted builds the tree with a bug in it, one after the other. Each
// must turn the test red that is named beside it: a suite is worth what it
// catches.
package planted

import (
	"encoding/json"
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
				program, known := map[string]string{"mariadb": "mariadbd", "redis": "redis-server", "etcd": "etcd", "nginx": "nginx", "zookeeper": "java"}[d.needs]
				if !known {
					t.Fatalf("it is not known what program %s is", d.needs)
				}
				_, err := servers.Find(program)
				labtest.Need(t, d.needs, err == nil, "the bug shows only there")
			}
			if out, passed := runTest(t, d); !passed {
				t.Fatalf("%s is red without the bug:\n%s", d.test, out)
			}
			out, passed := runTest(t, d, overlay(t, d.file, d.old, d.new))
			if passed {
				t.Fatalf("%s does not notice:\n%s", d.test, out)
			}
			if !strings.Contains(out, "--- FAIL: ") {
				t.Fatalf("%s did not fail, it did not run:\n%s", d.test, out)
			}
		})
	}
}

// runTest runs the bug's test. Vet is off: it would find some bugs before the test does.
// The flags also hold for a go command that the test itself runs.
func runTest(t *testing.T, d defect, flags ...string) (out string, passed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(d.test, "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-run", pattern, d.pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS="+strings.Join(flags, " "))
	output, err := cmd.CombinedOutput()
	return string(output), err == nil
}

// overlay is the flag that has a build read a file in which one text stands for another,
// also where the file is embedded.
func overlay(t *testing.T, file, old, instead string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	changed := filepath.Join(folder, filepath.Base(file))
	write(t, changed, []byte(replaceOnce(t, path, old, instead)))
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(folder, "overlay.json")
	write(t, list, content)
	return "-overlay=" + list
}
