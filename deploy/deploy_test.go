package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
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

func TestEachAlertFiresWhereItShouldAndNowhereElse(t *testing.T) {
	promtool(t, "test", "rules", deploy.RulesTest)
	content, err := deploy.Files.ReadFile(deploy.RulesTest)
	if err != nil {
		t.Fatal(err)
	}
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
	rules, err := deploy.AllRules()
	if err != nil {
		t.Fatal(err)
	}
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
	content, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := regexp.MustCompile(`(?m)^## (Stockd\w+)$`).FindAllStringSubmatch(string(content), -1)
	sections, names := make([]string, 0, len(headings)), make([]string, 0, len(headings))
	for _, heading := range headings {
		sections = append(sections, heading[1])
	}
	for _, alert := range alerts(t) {
		names = append(names, alert.Alert)
		if want := "docs/runbook.md#" + strings.ToLower(alert.Alert); alert.Annotations["runbook"] != want {
			t.Errorf("%s points to %q, want %q", alert.Alert, alert.Annotations["runbook"], want)
		}
		if alert.Annotations["summary"] == "" {
			t.Errorf("%s says nothing of itself", alert.Alert)
		}
	}
	if !slices.Equal(sections, names) {
		t.Errorf("the runbook has sections for\n%q\nand the alerts, in this order, are\n%q", sections, names)
	}
	for section := range strings.SplitSeq(string(content), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		for _, want := range []string{"**What it means.**", "**What buyers see.**", "**Look at.**", "**Do.**"} {
			if strings.HasPrefix(title, "Stockd") && !strings.Contains(text, want) {
				t.Errorf("the section of %s lacks %s", title, want)
			}
		}
	}
}

// Grafana itself is not asked: these are the mistakes that it would not tell either.
func TestTheDashboardIsWhole(t *testing.T) {
	panels, err := deploy.Panels()
	if err != nil {
		t.Fatal(err)
	}
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
				if taken[at] != "" {
					t.Fatalf("%q lies on %q", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
	}
}
