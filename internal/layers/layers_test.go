// Package layers tests that imports run in one direction.
package layers

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stockd/stockd/"

// rule lists what of this module a package may import. A pattern is a package, or with a
// slash at its end all packages below a folder.
type rule struct {
	from string
	to   []string
}

// rules has a rule for each package; the first one that matches counts.
func rules() []rule {
	locks := []string{"internal/backend", "internal/lock", "internal/lock/", "internal/pause", "internal/stock"}
	storage := slices.Concat(locks, []string{"internal/repo"})
	selling := slices.Concat(storage, []string{"internal/telemetry", "internal/service/background", "internal/service/hot"})
	service := slices.Concat(selling, []string{"internal/service/strategy"})
	lab := slices.Concat(storage, []string{"internal/lab/", "internal/load", "internal/load/", "internal/telemetry", "internal/service", "internal/service/strategy", "nginx"})
	return []rule{
		{"internal/stock", nil},
		{"internal/pause", nil},
		{"internal/reload", nil},
		{"internal/telemetry", nil},
		{"internal/telemetry/tracing", []string{"internal/telemetry"}},
		{"internal/telemetry/metrics", slices.Concat(service, []string{"internal/service"})},
		{"internal/backend", []string{"internal/pause", "internal/stock"}},
		{"internal/lock/registry", locks},
		{"internal/lock/redis", slices.Concat([]string{"internal/lock/process"}, locks)}, // redlock: one process asks at a time
		{"internal/lock/", []string{"internal/backend", "internal/lock", "internal/pause", "internal/stock"}},
		{"internal/lock", []string{"internal/backend", "internal/pause", "internal/stock"}},
		{"internal/repo", []string{"internal/backend", "internal/pause", "internal/stock", "migrations"}},
		{"internal/service/background", []string{"internal/stock"}},
		{"internal/service/hot", selling},
		{"internal/service/strategy", selling},
		{"internal/service", service},
		{"internal/admintoken", []string{"internal/reload"}},
		{"internal/buyer", []string{"internal/reload", "internal/stock"}},
		{"internal/config", []string{"internal/admintoken"}},
		{"internal/handler", []string{"internal/buyer", "internal/telemetry", "internal/service", "internal/stock", "api"}},
		{"internal/layers", nil},
		{"migrations", nil},
		{"api", nil},
		{"api/apitest", []string{"api"}},
		{"nginx", nil},
		{"deploy", nil},
		{"pkg/client", nil}, // the standard library alone
		{"internal/strategytest", service},
		{"internal/locktest", slices.Concat(storage, []string{"internal/lab/labtest", "internal/lab/servers"})},
		// Failpoints implement interfaces of packages that do not know them; commands wire them.
		{"internal/lab/failpoint", slices.Concat(locks, []string{"internal/lab/history", "internal/handler", "internal/telemetry"})},
		{"internal/load", nil},
		{"internal/load/verdict", []string{"internal/load", "internal/stock"}},
		{"internal/lab/client", []string{"internal/lab/failpoint", "internal/handler", "internal/service", "internal/stock"}},
		{"internal/lab/scenario/step", slices.Concat(lab, []string{"internal/handler", "pkg/client"})}, // its faults are those of the API
		{"internal/lab/hostile", slices.Concat(lab, []string{"pkg/client"})},
		{"internal/lab/", lab},
		{"cmd/", []string{"cmd/internal/", "internal/", "pkg/", "migrations"}},
		{"tools/listings", []string{"internal/service/strategy"}}, // it lists the code of each
		{"tools/", []string{"internal/lab/servers", "internal/lab/bench"}},
	}
}

func matches(pkg, pattern string) bool {
	return pkg == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(pkg, pattern)
}

func matchesAny(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pkg, pattern) })
}

// imports lists the imports between packages of this module, without those of tests.
func imports(t *testing.T) [][2]string {
	t.Helper()
	list, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var edges [][2]string
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		for _, imported := range words[1:] {
			if to, ok := strings.CutPrefix(imported, module); ok {
				edges = append(edges, [2]string{strings.TrimPrefix(words[0], module), to})
			}
		}
	}
	if len(edges) == 0 {
		t.Fatal("no import was found")
	}
	return edges
}

func TestImportsRunOneWay(t *testing.T) {
	all := rules()
	for _, edge := range imports(t) {
		i := slices.IndexFunc(all, func(r rule) bool { return matches(edge[0], r.from) })
		switch {
		case i < 0:
			t.Errorf("%s has no rule", edge[0])
		case !matchesAny(edge[1], all[i].to):
			t.Errorf("%s imports %s", edge[0], edge[1])
		}
	}
}

// The lab drives replicas from outside: it may import the service, never the reverse.
func TestOnlyTheLabImportsTheLab(t *testing.T) {
	importers := []string{"internal/lab/", "cmd/stocklab", "internal/strategytest", "tools/", "cmd/internal/cmdtest", "internal/locktest"}
	for _, edge := range imports(t) {
		if matches(edge[1], "internal/lab/") && !matchesAny(edge[0], importers) {
			t.Errorf("%s imports %s", edge[0], edge[1])
		}
	}
}

// What a shop runs has nothing of the lab in it, and nothing that is for tests.
func TestStockdLinksNothingOfTheLab(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", module+"cmd/stockd").Output()
	if err != nil {
		t.Fatal(err)
	}
	forbidden := []string{
		module + "internal/lab",
		module + "cmd/internal/cmdtest",
		"go.etcd.io/etcd/server",
		"github.com/alicebob/miniredis",
		"github.com/Shopify/toxiproxy",
		"github.com/anishathalye/porcupine",
		"github.com/chromedp",
		"testing",
	}
	for pkg := range strings.Lines(string(list)) {
		pkg = strings.TrimSpace(pkg)
		if slices.ContainsFunc(forbidden, func(name string) bool { return pkg == name || strings.HasPrefix(pkg, name+"/") }) {
			t.Errorf("stockd links %s", pkg)
		}
	}
}
