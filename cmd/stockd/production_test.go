package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
)

const production = "../../configs/production.yaml"

// The file for a shop refuses what oversells, and says so.
func TestProductionRefusesWhatOversells(t *testing.T) {
	r := startReplica(t, "--config", production, "--http-drain-delay=0s")
	r.sells(t, "in production")
	list, err := r.Strategies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	denied := []string{"redis-setnx", "redis-setnx-ttl", "redis-setnx-owner", "redis-getset"}
	refused := 0
	for i, entry := range strategy.Registry() {
		got := r.buy(t, "goods_id=1&strategy="+entry.Name)
		if entry.Claims.ExclusiveAcrossReplicas && !slices.Contains(denied, entry.Name) {
			if got.kind == "strategy-refused" {
				t.Errorf("%s is refused: %s", entry.Name, got.text)
			}
			continue
		}
		refused++
		if got.status != http.StatusForbidden || got.kind != "strategy-refused" {
			t.Errorf("%s is answered with %d %s", entry.Name, got.status, got.text)
		}
		if list[i].Name != entry.Name || list[i].Available || list[i].Note == "" {
			t.Errorf("%s is described as %+v", entry.Name, list[i])
		}
	}
	if refused != 6+len(denied) {
		t.Errorf("%d strategies are refused, want the 6 that oversell and %v", refused, denied)
	}
	if got := do(r.owners(t, http.MethodPost, "/lab/faults", ownersToken)); got.status != http.StatusNotFound {
		t.Errorf("the lab answers %d %s", got.status, got.text)
	}
}

func TestProductionRefusesToStartWithoutWhatItNeeds(t *testing.T) {
	const dsn = "--database-dsn=stockd@tcp(127.0.0.1:1)/stockd"
	for _, c := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"no token", []string{dsn}, []string{"production.yaml:", "admin.token"}},
		{"no database", []string{"--admin-token=" + ownersToken}, []string{"database.dsn"}},
		{"a default that is refused", []string{"--admin-token=" + ownersToken, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--deduct-strategy=mutex"}, []string{"deduct.strategy", "strategies.only_safe"}},
		{"a name that is none", []string{"--admin-token=" + ownersToken, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--strategies-deny=hope"}, []string{"strategies.deny", `"hope"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, errOut := stockd(t, append([]string{"serve", "--config", production}, c.flags...)...)
			if status != exitUsage || !containsAll(errOut, c.want...) {
				t.Errorf("exit status %d, %q; want %d with %q", status, errOut, exitUsage, c.want)
			}
		})
	}
}
