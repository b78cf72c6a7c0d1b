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
	{"internal/lock/locktest", []string{"internal/lock", "internal/lab/labtest", "internal/lab/servers", "internal/repo", "internal/stock"}},
	{"internal/lock", []string{"internal/stock"}},
	{"internal/repo", []string{"internal/pause", "internal/stock", "migrations"}},
	{"pkg/strategytest", []string{"internal/service/hot", "internal/service/strategy", "internal/lock", "internal/repo", "internal/stock"}},
	{"internal/service/rescue", nil},
	{"internal/service/hot", []string{"internal/pause", "internal/telemetry", "internal/service/rescue", "internal/lock", "internal/repo", "internal/stock"}},
	{"internal/service/strategy", []string{"internal/pause", "internal/telemetry", "internal/service/hot", "internal/service/rescue", "internal/lock", "internal/repo", "internal/stock"}},
	{"internal/service", []string{"internal/pause", "internal/telemetry", "internal/service/strategy", "internal/service/hot", "internal/service/rescue", "internal/lock", "internal/repo", "internal/stock"}},
	{"internal/reload", nil},
	{"internal/buyer", []string{"internal/reload", "internal/stock"}},
	{"internal/handler", []string{"internal/buyer", "internal/telemetry", "internal/service", "internal/stock", "api"}},
	{"internal/telemetry/metrics", []string{"internal/service", "internal/service/hot", "internal/service/rescue", "internal/service/strategy", "internal/lock", "internal/repo", "internal/stock"}},
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
	{"internal/lab/failpoint", []string{"internal/lab/history", "internal/handler", "internal/lock"}},
	{"internal/lab/client", []string{"internal/lab/failpoint", "internal/handler", "internal/service", "internal/stock"}},
	// stockd bench and the lab send purchases, and compare the result with the guarantees.
	{"internal/load", nil},
	{"internal/load/verdict", []string{"internal/load", "internal/stock"}},
	// Experiments set the faults that the owner's listener takes.
	{"internal/lab/scenario/step", []string{"internal/pause", "internal/lab/", "internal/load", "internal/handler", "internal/service", "internal/lock", "internal/repo", "internal/stock"}},
	// Its honest buyers use the client that buyers have.
	{"internal/lab/hostile", []string{"internal/pause", "internal/lab/", "internal/load", "internal/load/", "internal/repo", "internal/stock", "nginx", "pkg/client"}},
	// The lab drives replicas as a client does. Of the service it knows what the
	// answers mean, and the database it opens to see that it is there.
	{"internal/lab/", []string{"internal/pause", "internal/lab/", "internal/load", "internal/load/", "internal/telemetry", "internal/service", "internal/service/strategy", "internal/lock", "internal/repo", "internal/stock", "nginx"}},
	{"cmd/internal/cmdtest", []string{"internal/lab/", "internal/load/"}},
	{"cmd/", []string{"cmd/internal/", "internal/", "migrations", "pkg/client"}},
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

// What a shop runs has nothing of the lab in it, and nothing that is for tests.
func TestNothingOfTheLabIsInStockd(t *testing.T) {
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
		"github.com/redis/go-redis/v9/internal/proto/test",
		"testing",
	}
	for pkg := range strings.Lines(string(list)) {
		pkg = strings.TrimSpace(pkg)
		for _, name := range forbidden {
			if pkg == name || strings.HasPrefix(pkg, name+"/") {
				t.Errorf("stockd links %s", pkg)
			}
		}
	}
}
