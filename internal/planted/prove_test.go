//go:build prove

package planted

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Each bug must turn its tests red; and the same tests must be green without it, or they would
// prove nothing.
func TestProvePlantedBugsAreCaught(t *testing.T) {
	files := sources(t)
	for _, b := range bugs(t) {
		t.Run(b.name, func(t *testing.T) {
			if b.needs != "" {
				program, known := map[string]string{"mariadb": "mariadbd", "redis": "redis-server", "etcd": "etcd", "nginx": "nginx", "zookeeper": "java"}[b.needs]
				if !known {
					t.Fatalf("it is not known what program %s is", b.needs)
				}
				_, err := servers.Find(program)
				labtest.Need(t, b.needs, err == nil, "the bug shows only there")
			}
			planted := overlay(t, b, files)
			for _, test := range b.tests {
				pkg, name, _ := strings.Cut(test, " ")
				prove(t, pkg, name, planted)
			}
		})
	}
}

func prove(t *testing.T, pkg, test, planted string) {
	t.Helper()
	if out, passed := run(t, pkg, test, ""); !passed || strings.Contains(out, "no tests to run") {
		t.Fatalf("%s %s is red without the bug, or is no test:\n%s", pkg, test, out)
	}
	out, passed := run(t, pkg, test, planted)
	if passed {
		t.Fatalf("%s %s does not notice:\n%s", pkg, test, out)
	}
	if !strings.Contains(out, "--- FAIL: ") {
		t.Fatalf("%s %s did not fail, it did not run: make the patch again where it does not compile\n%s", pkg, test, out)
	}
}

// run runs a test. Vet is off: it would find some bugs before the test does. The flag also holds
// for a go command that the test itself runs.
func run(t *testing.T, pkg, test, flag string) (out string, passed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-tags=prove", "-run", pattern, pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" "+flag)
	output, err := cmd.CombinedOutput()
	return string(output), err == nil
}
