//go:build prove

package planted

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Every experiment is reproduced as long as nothing is broken; or no breach of it would
// prove anything.
func TestProveEveryExperimentIsReproduced(t *testing.T) {
	needServers(t)
	all := catalogue.All()
	names := make([]string, 0, len(all))
	for _, e := range all {
		names = append(names, e.Name)
	}
	for _, r := range runLab(t, buildStocklab(t), names...) {
		if r.Verdict != scenario.Reproduced {
			t.Errorf("%d %s is %s: %s", r.Number, r.Name, r.Verdict, r.Reason)
		}
	}
}

// Each remedy that is broken must turn its experiment.
func TestProveABrokenRemedyIsNotReproduced(t *testing.T) {
	needServers(t)
	for _, b := range breaches() {
		t.Run(b.experiment+"/"+b.name, func(t *testing.T) {
			r := runLab(t, buildStocklab(t, overlay(t, b.file, b.old, b.new)), b.experiment)[0]
			t.Logf("%d %s: %s in %.1f s, %d tries: %s", r.Number, r.Name, r.Verdict, r.Seconds, r.Tries, r.Reason)
			if r.Verdict != scenario.NotReproduced {
				t.Errorf("%s is %s", r.Name, r.Verdict)
			}
			if fell := fallen(r); !slices.Equal(fell, b.remedies) {
				t.Errorf("what does not hold any more is %q, want %q", fell, b.remedies)
			}
		})
	}
}

// fallen are the parts that do not hold, or were not made.
func fallen(r scenario.Result) (names []string) {
	for _, p := range r.Parts {
		if !p.Finding.Holds {
			names = append(names, p.Name)
		}
	}
	return names
}

// buildStocklab builds a stocklab, and returns its path.
func buildStocklab(t *testing.T, flags ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "stocklab")
	args := slices.Concat([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary}, flags, []string{"./cmd/stocklab"})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// runLab makes experiments with a stocklab. That some are not reproduced is for the
// caller to judge.
func runLab(t *testing.T, binary string, names ...string) []scenario.Result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	args := slices.Concat([]string{"lab", "run", "--servers=local", "--json", file}, names)
	out, failed := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: %v\n%s", names, failed, out)
	}
	var r scenario.Report
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Experiments) != len(names) {
		t.Fatalf("%d results of %v: %v\n%s", len(r.Experiments), names, failed, out)
	}
	return r.Experiments
}

// needServers skips a test that needs everything that an experiment may.
func needServers(t *testing.T) {
	t.Helper()
	for _, s := range []struct{ program, name, brings string }{
		{"mariadbd", "mariadb", "mariadb-server"},
		{"redis-server", "redis", "redis-server"},
		{"etcd", "etcd", "etcd-server"},
		{"nginx", "nginx", "nginx-light"},
	} {
		_, err := servers.Find(s.program)
		labtest.Need(t, s.name, err == nil, "apt-get install "+s.brings+" brings it")
	}
	_, _, err := servers.FindZooKeeper()
	labtest.Need(t, "zookeeper", err == nil, "apt-get install zookeeper brings it")
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
