package report_test

import (
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
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(content), `<section class="experiment"`)[1:]
	largest := slices.MaxFunc(sections, func(a, b string) int { return len(a) - len(b) })
	if size := len(largest) * len(sections); size > 3_000_000 {
		t.Errorf("with histories of 5,000 requests everywhere it would have %d bytes, want 3 MB at most", size)
	}
	if keep := os.Getenv("REPORT"); keep != "" {
		if err := os.WriteFile(keep, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Each row is the experiments of a run by their names, and what the page says of them.
func TestThePageSaysWhatCameOut(t *testing.T) {
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
	const yes, no = `<span class="state good">as expected</span>`, `<span class="state bad">not as expected</span>`
	for names, c := range map[string]struct {
		headline string
		says     []string
		never    []string
	}{
		"good": {
			"The experiment came out as the sources claim.",
			[]string{`<span class="verdict good">`, "All 2 parts came out as expected", `<span class="kind">failure</span> naive ` + yes, `<span class="kind">remedy</span> lock ` + yes, "Two were sold. <span class=\"soft\">It took 3 tries.</span>"},
			[]string{"verdict bad", "verdict unrun", no, "It took 1 tries"},
		},
		"bad": {
			"0 of 1 experiment came out as the sources claim.",
			[]string{`<span class="verdict bad">`, `<p class="reason">lock: three were sold.</p>`, "naive " + yes, "lock " + no, "Three were sold."},
			[]string{"verdict good", "came out as expected"},
		},
		"unrun": {
			"0 of 1 experiment came out as the sources claim.",
			[]string{`<span class="verdict unrun">`, `lock <span class="state unrun">not run</span>`, "<dt>Not run</dt><dd>Needs etcd.</dd>"},
			[]string{"verdict good", "verdict bad", no},
		},
		"good,good":      {"All 2 experiments came out as the sources claim.", nil, []string{"0 of"}},
		"good,bad,unrun": {"1 of 3 experiments came out as the sources claim.", []string{"verdict good", "verdict bad", "verdict unrun"}, []string{"All 3"}},
	} {
		r := &scenario.Report{}
		for name := range strings.SplitSeq(names, ",") {
			r.Experiments = append(r.Experiments, all[name])
		}
		folder := t.TempDir()
		if err := report.Write(folder, r); err != nil {
			t.Fatal(err)
		}
		page := text(t, filepath.Join(folder, report.File))
		wants(t, "the page of "+names, page, append(c.says, "<h1>"+c.headline+"</h1>")...)
		for _, words := range append(c.never, "ended before") {
			if strings.Contains(page, words) {
				t.Errorf("the page of %s has %q", names, words)
			}
		}
	}
	folder := t.TempDir()
	if err := report.Write(folder, &scenario.Report{Interrupted: true}); err != nil {
		t.Fatal(err)
	}
	wants(t, "the page of an interrupted run", text(t, filepath.Join(folder, report.File)), "0 of 0 experiments came out", "The run was ended before its last experiment.")
}
