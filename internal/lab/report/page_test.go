package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// REPORT says where to keep the page, to be looked at.
func TestAReportIsMadeOfARun(t *testing.T) {
	folder, _ := fakeRun(t)
	content, err := os.ReadFile(filepath.Join(folder, "report.html"))
	must(t, err)
	sections := strings.Split(string(content), `<section class="experiment"`)[1:]
	largest := slices.MaxFunc(sections, func(a, b string) int { return len(a) - len(b) })
	if size := len(largest); size > 100_000 {
		t.Errorf("an experiment with 5,000 requests has %d bytes, want 100 kB at most", size)
	}
	if keep := os.Getenv("REPORT"); keep != "" {
		must(t, os.WriteFile(keep, content, 0o644))
	}
}

// Each row is the experiments of a run by their names, and how often the page shows each verdict, also in its list, and each state.
func TestThePageShowsWhatCameOut(t *testing.T) {
	failure := scenario.PartResult{Name: "naive", Tries: 3, Finding: checker.Finding{Holds: true, Says: "two were sold"}}
	remedy := scenario.PartResult{Name: "lock", Remedy: true, Tries: 1, Finding: checker.Finding{Holds: true, Says: "one was sold"}}
	failed, unrun := remedy, remedy
	failed.Finding = checker.Finding{Says: "three were sold"}
	unrun.NotRun, unrun.Tries, unrun.Finding = "needs etcd", 0, checker.Finding{}
	all := map[string]scenario.Result{
		"good":  {Name: "good", Verdict: scenario.Reproduced, Reason: "all held", Parts: []scenario.PartResult{failure, remedy}},
		"bad":   {Name: "bad", Verdict: scenario.NotReproduced, Reason: "lock: three were sold", Parts: []scenario.PartResult{failure, failed}},
		"unrun": {Name: "unrun", Verdict: scenario.NotRun, Reason: "lock: needs etcd", Parts: []scenario.PartResult{failure, unrun}},
	}
	shown := []string{`verdict good"`, `verdict bad"`, `verdict unrun"`, `state good"`, `state bad"`, `state unrun"`}
	for names, want := range map[string][]int{
		"good": {2, 0, 0, 2, 0, 0}, "bad": {0, 2, 0, 1, 1, 0}, "unrun": {0, 0, 2, 1, 0, 1}, "good,bad,unrun": {2, 2, 2, 4, 1, 1},
	} {
		r := &scenario.Report{Interrupted: names == "bad"}
		for name := range strings.SplitSeq(names, ",") {
			r.Experiments = append(r.Experiments, all[name])
		}
		folder := t.TempDir()
		must(t, report.Write(folder, r))
		page := text(t, filepath.Join(folder, report.File))
		for i, class := range shown {
			if got := strings.Count(page, `<span class="`+class); got != want[i] {
				t.Errorf("the page of %s has %d of %s, want %d", names, got, class, want[i])
			}
		}
		if strings.Contains(page, "ended before") != r.Interrupted {
			t.Errorf("the page of %s says wrongly whether the run was interrupted", names)
		}
	}
}

func TestTheTableSaysWhatCameOutAndWhatWasFoundWhereItDidNot(t *testing.T) {
	var b bytes.Buffer
	must(t, report.Table(&b, fakeReport(), false))
	wants(t, "the table", b.String(), "✓ reproduced", "✗ not reproduced", "– not run", "It needs row locks, and SQLite has none.",
		"optimistic, naive: not as expected in 5 tries: 5,000 sales of 1,000 units", "Expected: More is sold than there was",
		"optimistic, with-lock: as expected in 1 try", "8 reproduced, 1 not reproduced, 1 not run in 7 min 12 s", "redis: Redis 7.0.15 (local)")
	if n := strings.Count(b.String(), "Expected:"); n != 1 {
		t.Errorf("the table says %d times what was expected, want that of the part that did not come out", n)
	}
	if strings.Contains(b.String(), "ended before") {
		t.Error("a whole run was ended before its last experiment")
	}
	if strings.Contains(b.String(), "rejected the others") {
		t.Error("the reason of what came out fills the table")
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a table that is not for a terminal has colours")
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "│") && len([]rune(line)) > 120 {
			t.Errorf("a line of the table has %d letters: %s", len([]rune(line)), line)
		}
	}
	b.Reset()
	interrupted := fakeReport()
	interrupted.Interrupted = true
	must(t, report.Table(&b, interrupted, true))
	wants(t, "the table for a terminal", b.String(), "\x1b[32m✓ reproduced", "\x1b[31m✗ not reproduced", "\x1b[33m– not run", "ended before the last experiment")
}

// The picture in the README shows the data that is kept beside it.
func TestTheOverviewIsDrawnFromItsData(t *testing.T) {
	const docs = "../../../docs"
	var sales []report.Sale
	must(t, json.Unmarshal([]byte(text(t, filepath.Join(docs, "oversell.json"))), &sales))
	var drawn bytes.Buffer
	must(t, report.Sales(sales).File(&drawn))
	if text(t, filepath.Join(docs, "oversell.svg")) != drawn.String() {
		t.Error("docs/oversell.svg is not drawn from docs/oversell.json: run stocklab lab overview DIR")
	}
}

func TestAnOverviewNeedsItsExperiment(t *testing.T) {
	run := t.TempDir()
	if err := report.Overview(t.TempDir(), run); err == nil {
		t.Error("a folder without a run is accepted")
	}
	must(t, report.Write(run, &scenario.Report{}))
	folder := t.TempDir()
	if err := report.Overview(folder, run); err == nil {
		t.Error("a run without the experiment is accepted")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%d files are written: %v", len(left), err)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
