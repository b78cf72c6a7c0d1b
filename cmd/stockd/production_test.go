package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/service/strategy"
)

const production = "../../configs/production.yaml"

// believing has a replica in production believe what requests say of their buyers, as often as
// they like.
func believing(flags ...string) []string {
	return append([]string{
		"--config", production, "--http-drain-delay=0s", "--buyer-from=request", "--buyer-required=false",
		"--limit-user-rate=0", "--limit-address-rate=0",
	}, flags...)
}

// What production.md says line by line is what the file sets, and nothing else.
func TestProductionIsAsItsDocumentSays(t *testing.T) {
	content, err := os.ReadFile(production)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]map[string]any
	if err := yaml.Unmarshal(content, &tree); err != nil {
		t.Fatal(err)
	}
	set, said := make(map[string]bool), make(map[string]bool)
	for section, keys := range tree {
		for key, value := range keys {
			set[fmt.Sprintf("%s.%s: %v", section, key, value)] = true
		}
	}
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## The file, line by line\n")
	table, _, _ = strings.Cut(table, "\nSet these, too:")
	pair := regexp.MustCompile("`([a-z_]+[.][a-z_]+: [^`]+)`")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, found := range pair.FindAllStringSubmatch(cells[1], -1) {
				said[found[1]] = true
			}
		}
	}
	if len(set) == 0 || !maps.Equal(set, said) {
		t.Errorf("the file sets %v, and the page says %v", set, said)
	}
}

// The file for a shop rejects what may oversell, and says so: also where requests may
// choose.
func TestProductionRefusesWhatOversells(t *testing.T) {
	r := startReplica(t, believing("--deduct-choose=true")...)
	r.Sells(t, "in production")
	list, err := r.Strategies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unnoticed := []string{"redis-setnx", "redis-setnx-ttl", "redis-setnx-owner", "redis-getset"}
	rejected := 0
	for i, entry := range strategy.Registry() {
		got, fenced := r.Buy(t, "goods_id=1&strategy="+entry.Name), slices.Contains(unnoticed, entry.Name)
		if entry.Guarantees.ExclusiveAcrossReplicas && !fenced {
			if got.Kind == "strategy-refused" && !strings.Contains(got.Text, "is not configured") {
				t.Errorf("%s is rejected: %s", entry.Name, got.Text)
			}
			continue
		}
		rejected++
		if got.Status != http.StatusForbidden || got.Kind != "strategy-refused" {
			t.Errorf("%s is answered with %d %s", entry.Name, got.Status, got.Text)
		}
		if list[i].Name != entry.Name || list[i].Available || list[i].Note == "" || list[i].Enabled != fenced || list[i].RequiresFence != fenced {
			t.Errorf("%s is described as %+v", entry.Name, list[i])
		}
		if got := r.Buy(t, "goods_id=1&fence=true&strategy="+entry.Name); strings.Contains(got.Text, "redis is not configured") != fenced {
			t.Errorf("%s with a fence is answered with %d %s", entry.Name, got.Status, got.Text)
		}
	}
	if rejected != 7+len(unnoticed) {
		t.Errorf("%d strategies are rejected, want the 7 that oversell and %v", rejected, unnoticed)
	}
	if got := cmdtest.Do(r.owners(t, http.MethodPost, "/lab/faults", cmdtest.Token)); got.Status != http.StatusNotFound {
		t.Errorf("the lab answers %d %s", got.Status, got.Text)
	}
}

// An anonymous client of a shop buys, and neither chooses how nor learns more.
func TestProductionLetsNoClientChoose(t *testing.T) {
	r := startReplica(t, believing()...)
	if !r.Log.Contains("requests may not choose a strategy") {
		t.Error("the log does not tell that requests may not choose")
	}
	for query, want := range map[string]string{
		"":                                     "",
		"&strategy=sql-conditional&group=true": "",
		"&strategy=sql-conditional":            "",
		"&strategy=sql-version-lock":           "choice-refused",
		"&strategy=naive":                      "choice-refused",
		"&group=false":                         "choice-refused",
	} {
		got := r.Buy(t, "goods_id=1"+query)
		if got.Kind != want || (want == "") != (got.Status == http.StatusOK) {
			t.Errorf("%q is answered with %d %s, want %q", query, got.Status, got.Text, want)
		}
		if strings.Contains(got.Text, "remaining") || got.Header.Get(handler.ReplicaHeader) != "" {
			t.Errorf("%q is answered with %v %s", query, got.Header, got.Text)
		}
	}
	if got := cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/goods/1/audit")); got.Kind != "not-found" {
		t.Errorf("the audit is answered with %d %s", got.Status, got.Text)
	}
}

// The Docker image listens on every address: there no request may ask for naive, as
// here. What deduct.choose=auto is there, TestWhoMayChooseAStrategy tells.
func TestNaiveCannotBeChosenWhereChoiceIsOff(t *testing.T) {
	r := startReplica(t, "--deduct-choose=false")
	if got := r.Buy(t, "goods_id=1&strategy=naive"); got.Status != http.StatusForbidden || got.Kind != "choice-refused" {
		t.Errorf("naive is answered with %d %s", got.Status, got.Text)
	}
	r.Sells(t, "without a choice")
}

func TestProductionRefusesToStartWithoutWhatItNeeds(t *testing.T) {
	const dsn, believed = "--database-dsn=stockd@tcp(127.0.0.1:1)/stockd", "--buyer-from=request"
	broken := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(broken, []byte(`{"keys": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"no token", []string{dsn}, []string{"production.yaml:", "admin.token"}},
		{"no database", []string{"--admin-token=" + cmdtest.Token}, []string{"database.dsn"}},
		{"no keys of buyers", []string{dsn, "--admin-token=" + cmdtest.Token}, []string{"production.yaml:", "buyer.from", "buyer.jwks_file"}},
		{"keys that are none", []string{dsn, "--admin-token=" + cmdtest.Token, "--buyer-jwks-file=" + broken}, []string{"buyer.jwks_file " + broken, "read keys"}},
		{"a default that is rejected", []string{believed, "--admin-token=" + cmdtest.Token, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--deduct-strategy=mutex"}, []string{"deduct.strategy", "strategies.only_safe"}},
		{"a default without its backend", []string{believed, "--admin-token=" + cmdtest.Token, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--deduct-strategy=redis-lua"}, []string{"deduct.strategy", "redis-lua", "redis is not configured"}},
		{"a fence without a lock", []string{believed, "--admin-token=" + cmdtest.Token, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--deduct-fence=true"}, []string{"deduct.fence", "sql-conditional"}},
		{"a choice that is none", []string{dsn, "--admin-token=" + cmdtest.Token, "--deduct-choose=maybe"}, []string{"deduct.choose", "auto or true or false"}},
		{"a name that is none", []string{believed, "--admin-token=" + cmdtest.Token, "--database-driver=sqlite", "--database-dsn=" + t.TempDir() + "/s.db", "--strategies-deny=hope"}, []string{"strategies.deny", `"hope"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, errOut := stockd(append([]string{"serve", "--config", production}, c.flags...)...)
			if status != cli.Usage || !cmdtest.ContainsAll(errOut, c.want...) {
				t.Errorf("exit status %d, %q; want %d with %q", status, errOut, cli.Usage, c.want)
			}
		})
	}
}
