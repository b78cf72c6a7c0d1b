// Package layers holds the tree to its one direction of imports.
package layers

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/stockd/stockd/"

// allowed maps a package, or a folder of packages that ends with a slash, to
// what of stockd it may import. What stands first wins.
var allowed = []struct {
	from string
	to   []string
}{
	{"internal/stock", nil},
	{"internal/pause", nil},
	{"internal/telemetry", nil},
	{"internal/telemetry/tracing", []string{"internal/telemetry"}},
	{"internal/backend", []string{"internal/stock"}},
	{"internal/lock/locktest", []string{"internal/backend", "internal/lock", "internal/lock/", "internal/lab/labtest", "internal/lab/servers", "internal/repo", "internal/stock"}},
	{"internal/lock/registry", []string{"internal/lock", "internal/lock/"}},
	{"internal/lock/redis", []string{"internal/backend", "internal/lock", "internal/lock/process", "internal/stock"}}, // redlock: one process asks at a time
	{"internal/lock/", []string{"internal/backend", "internal/lock", "internal/stock"}},
	{"internal/lock", []string{"internal/backend", "internal/stock"}},
	{"internal/repo", []string{"internal/pause", "internal/stock", "migrations"}},
	{"pkg/strategytest", []string{"internal/service/hot", "internal/service/strategy", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	{"internal/service/background", []string{"internal/stock"}},
	{"internal/service/hot", []string{"internal/pause", "internal/telemetry", "internal/service/background", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	{"internal/service/strategy", []string{"internal/pause", "internal/telemetry", "internal/service/hot", "internal/service/background", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	{"internal/service", []string{"internal/pause", "internal/telemetry", "internal/service/strategy", "internal/service/hot", "internal/service/background", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	{"internal/reload", nil},
	{"internal/buyer", []string{"internal/reload", "internal/stock"}},
	{"internal/handler", []string{"internal/buyer", "internal/telemetry", "internal/service", "internal/stock", "api"}},
	{"internal/telemetry/metrics", []string{"internal/service", "internal/service/hot", "internal/service/background", "internal/service/strategy", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	{"internal/admintoken", []string{"internal/reload"}},
	{"internal/config", []string{"internal/admintoken"}},
	{"internal/layers", nil},
	{"migrations", nil},
	{"pkg/client", nil}, // nothing but the standard library
	{"api", nil},
	{"api/apitest", []string{"api"}},
	{"nginx", nil},
	{"deploy", nil},
	// What the lab does inside of a replica. cmd puts it there; those whose
	// interfaces it implements do not know it.
	{"internal/lab/failpoint", []string{"internal/lab/history", "internal/handler", "internal/backend", "internal/lock", "internal/lock/"}},
	{"internal/lab/client", []string{"internal/handler", "internal/service", "internal/stock"}},
	// Experiments set the faults that the owner's listener takes.
	{"internal/lab/scenario/step", []string{"internal/pause", "internal/lab/", "internal/handler", "internal/service", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock"}},
	// Its honest buyers use the client that buyers have.
	{"internal/lab/hostile", []string{"internal/pause", "internal/lab/", "internal/repo", "internal/stock", "nginx", "pkg/client"}},
	// The lab drives replicas as a client does. Of the service it knows what the
	// answers mean, and the database it opens to see that it is there.
	{"internal/lab/", []string{"internal/pause", "internal/lab/", "internal/service", "internal/service/strategy", "internal/backend", "internal/lock", "internal/lock/", "internal/repo", "internal/stock", "nginx"}},
	{"cmd/", []string{"internal/", "migrations"}},
	{"tools/", []string{"internal/lab/servers"}},
}

func within(pkg, pattern string) bool {
	return pkg == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(pkg, pattern)
}

func TestImportsRunOneWay(t *testing.T) {
	list, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], module)
		for _, imported := range words[1:] {
			to, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			seen++
			if !mayImport(t, pkg, to) {
				t.Errorf("%s imports %s", pkg, to)
			}
		}
	}
	if seen == 0 {
		t.Error("no import of ours was seen")
	}
}

func mayImport(t *testing.T, pkg, to string) bool {
	t.Helper()
	for _, rule := range allowed {
		if !within(pkg, rule.from) {
			continue
		}
		for _, pattern := range rule.to {
			if within(to, pattern) {
				return true
			}
		}
		return false
	}
	t.Errorf("%s has no place among the layers", pkg)
	return true
}

// The serving path is what a replica runs: nothing of the lab may be in it.
func TestNothingThatServesKnowsTheLab(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", module+"internal/handler", module+"internal/config").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(list), module+"internal/lab") {
		t.Error("the serving path imports the lab")
	}
}
