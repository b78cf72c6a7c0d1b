package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/migrations"
)

// promtool runs a check on the files of this folder.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := servers.Find("promtool")
	labtest.Need(t, "prometheus", err == nil, "apt-get install prometheus brings it")
	if said, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

func TestPrometheusTakesTheFiles(t *testing.T) {
	promtool(t, "check", "rules", deploy.Rules)
	promtool(t, "check", "config", "--syntax-only", deploy.Prometheus)
}

func TestSystemdTakesTheUnit(t *testing.T) {
	program, err := servers.Find("systemd-analyze")
	labtest.Need(t, "systemd", err == nil, "apt-get install systemd brings it")
	content := must.Get(os.ReadFile("systemd/stockd.service"))(t)
	unit := filepath.Join(t.TempDir(), "stockd.service") // the program and its check need not be installed
	must.Do(t, os.WriteFile(unit, bytes.ReplaceAll(content, []byte("/usr/bin/stockd"), []byte("/bin/sh")), 0o600))
	said, err := exec.CommandContext(t.Context(), program, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
}

func TestEachAlertFiresWhereItShouldAndNowhereElse(t *testing.T) {
	promtool(t, "test", "rules", deploy.RulesTest)
	content := must.Get(deploy.Files.ReadFile(deploy.RulesTest))(t)
	for _, alert := range alerts(t) {
		for _, does := range []string{"fires", "is silent"} {
			if want := "name: " + alert.Alert + " " + does + "\n"; !strings.Contains(string(content), want) {
				t.Errorf("%s has no test that says %q", deploy.RulesTest, want)
			}
		}
	}
}

func alerts(t *testing.T) (list []deploy.Rule) {
	t.Helper()
	rules := must.Get(deploy.AllRules())(t)
	for _, rule := range rules {
		if rule.Alert != "" {
			list = append(list, rule)
		}
	}
	if len(list) == 0 {
		t.Fatal("there is no alert")
	}
	return list
}

// The runbook says for each alert what to do, and has no section about an alert that does not
// exist.
func TestEachAlertHasItsSectionInTheRunbook(t *testing.T) {
	content := must.Get(os.ReadFile("../docs/runbook.md"))(t)
	sections := make(map[string]bool)
	for _, heading := range regexp.MustCompile(`(?m)^## (Stockd\w+)$`).FindAllStringSubmatch(string(content), -1) {
		sections[heading[1]] = true
	}
	for _, alert := range alerts(t) {
		if want := "docs/runbook.md#" + strings.ToLower(alert.Alert); alert.Annotations["runbook"] != want || !sections[alert.Alert] {
			t.Errorf("%s points to %q, want %q and a section there", alert.Alert, alert.Annotations["runbook"], want)
		}
		if alert.Annotations["summary"] == "" {
			t.Errorf("%s says nothing of itself", alert.Alert)
		}
		delete(sections, alert.Alert)
	}
	should.Be(t, len(sections), 0, "the sections that no alert leads to", sections)
}

// Grafana itself is not asked: these are the mistakes that it would not tell either.
func TestTheDashboardIsWhole(t *testing.T) {
	panels := must.Get(deploy.Panels())(t)
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%q has the id %d, as another panel has", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("panel %d, %q, is placed at %+v", p.ID, p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				must.Be(t, taken[at], "", p.Title, "lies on")
				taken[at] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
	}
}

// Each table of the migrations has its place: on the shard of its item, with its numbers from a sequence and a look-up for what is
// unique over all items, or in the keyspace without shards, to which its name leads.
func TestEachTableHasItsPlaceOnVitess(t *testing.T) {
	var shop, global struct {
		Vindexes map[string]struct {
			Type string `json:"type"`
		} `json:"vindexes"`
		Tables map[string]struct {
			Type           string `json:"type"`
			ColumnVindexes []struct {
				Column string `json:"column"`
				Name   string `json:"name"`
			} `json:"column_vindexes"`
			AutoIncrement struct {
				Sequence string `json:"sequence"`
			} `json:"auto_increment"`
		} `json:"tables"`
	}
	must.Do(t, json.Unmarshal(must.Get(deploy.Vitess.ReadFile("vitess/shop.vschema.json"))(t), &shop))
	must.Do(t, json.Unmarshal(must.Get(deploy.Vitess.ReadFile("vitess/shop_global.vschema.json"))(t), &global))
	rules := string(must.Get(deploy.Vitess.ReadFile("vitess/routing-rules.json"))(t))
	made := must.Get(migrations.Files.ReadFile("mysql/00001_schema.sql"))(t)
	tables := regexp.MustCompile(`(?ms)^CREATE TABLE IF NOT EXISTS (\w+) \((.*?)^\)`).FindAllSubmatch(made, -1)
	if len(tables) < 10 {
		t.Fatalf("the migrations make %d tables", len(tables))
	}
	for _, found := range tables {
		name, columns := string(found[1]), string(found[2])
		ofItem := shop.Tables[name]
		if len(ofItem.ColumnVindexes) == 0 {
			if _, ok := global.Tables[name]; !ok || ofItem.Type != "reference" || !strings.Contains(rules, `"`+name+`"`) || !strings.Contains(rules, `"shop.`+name+`"`) {
				t.Errorf("%s is in no keyspace, is not routed to shop_global, or keeps Reshard from dividing a shard", name)
			}
			continue
		}
		vindexes := make(map[string]string) // by column
		for _, v := range ofItem.ColumnVindexes {
			vindexes[v.Column] = shop.Vindexes[v.Name].Type
		}
		should.Be(t, ofItem.ColumnVindexes[0].Column, "goods_id", name, "is sharded by")
		if strings.Contains(columns, "AUTO_INCREMENT") && ofItem.AutoIncrement.Sequence == "" {
			t.Errorf("each shard of %s counts its own numbers", name)
		}
		for _, unique := range regexp.MustCompile(`UNIQUE KEY \w+ \((\w+)\)`).FindAllStringSubmatch(columns, -1) {
			if vindexes[unique[1]] != "consistent_lookup_unique" && unique[1] != "goods_id" {
				t.Errorf("%s.%s is unique on each shard alone", name, unique[1])
			}
		}
	}
}
