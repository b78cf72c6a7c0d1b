package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
)

func TestLabListHasEveryExperiment(t *testing.T) {
	status, out, _ := stocklab("lab", "list")
	if status != cli.OK {
		t.Fatalf("exit status %d", status)
	}
	for _, e := range catalogue.All() {
		row := fmt.Sprintf("│ %2d │ %s ", e.Number, e.Name)
		if !strings.Contains(out, row) {
			t.Errorf("%q is not in the list:\n%s", row, out)
		}
	}
}

func TestMistakesInTheLab(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"lab", "run"}, "stocklab lab list"},
		{[]string{"lab", "run", "hope"}, `"hope" is not an experiment; there are all, oversell, process-mutex,`},
		{[]string{"lab", "run", "99"}, ", or their numbers"},
		{[]string{"lab", "run", "oversell", "--servers", "remote"}, `"remote"`},
		{[]string{"lab", "list", "all"}, `"all"`},
		{[]string{"lab", "report"}, "needs one argument"},
		{[]string{"lab", "report", t.TempDir()}, "report.json"},
	} {
		status, _, errOut := stocklab(c.args...)
		if status != cli.Usage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit status %d, %q; want %d with %q", c.args, status, errOut, cli.Usage, c.want)
		}
	}
}

// The exit status is that of what was made: an experiment without its servers is no failure.
func TestWhatIsShownOfARun(t *testing.T) {
	one := scenario.Result{Name: "one", Verdict: scenario.Reproduced, Fix: "stocklab demo"}
	missing, failed := scenario.Result{Verdict: scenario.NotRun, Fix: "never"}, scenario.Result{Verdict: scenario.NotReproduced, Fix: "never"}
	const kept, report, fix = "with --dir FOLDER the histories are kept", "report: run/report.html\n", "what to do instead: stocklab demo\n"
	for _, c := range []struct {
		folder  string
		results []scenario.Result
		want    error
		says    []string
	}{
		{"", []scenario.Result{one}, nil, []string{kept, fix}},
		{"run", []scenario.Result{one}, nil, []string{report, fix}},
		{"", []scenario.Result{one, missing}, nil, []string{kept}},
		{"run", []scenario.Result{failed, one}, errNotReproduced, []string{report}},
	} {
		var out bytes.Buffer
		if err := showLab(&scenario.Report{Experiments: c.results}, &out, "", c.folder); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.results, err, c.want)
		}
		for _, words := range []string{kept, report, fix, "never"} {
			if strings.Contains(out.String(), words) != slices.Contains(c.says, words) {
				t.Errorf("%q is said, or is not:\n%s", words, &out)
			}
		}
	}
}

// What is no terminal gets a line of what is tried again, and none of the rounds of a remedy, which all hold.
func TestATryThatIsRepeatedIsReported(t *testing.T) {
	var out bytes.Buffer
	p, e := newLabProgress(&out), scenario.Experiment{Name: "one"}
	p.Try(e, scenario.Part{Name: "failure"}, 1)
	p.Try(e, scenario.Part{Name: "failure"}, 2)
	p.Try(e, scenario.Part{Name: "remedy", Rounds: 3}, 2)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "one, failure: try 2\n") {
		t.Errorf("it says %q", got)
	}
}

func TestLabRunWritesWhatItFound(t *testing.T) {
	r := runInLab(t, "reentrancy", "late-watch")
	var written struct {
		Experiments []map[string]json.RawMessage `json:"experiments"`
	}
	if err := json.Unmarshal(read(t, r.json), &written); err != nil {
		t.Fatal(err)
	}
	if len(written.Experiments) != 2 {
		t.Fatalf("%d experiments, want 2", len(written.Experiments))
	}
	for i, want := range []struct {
		number   int
		name     string
		evidence string
	}{{9, "reentrancy", "redis-reentrant.reentered"}, {18, "late-watch", "zk-sequential.longest_wait_ms"}} {
		e := written.Experiments[i]
		if string(e["number"]) != fmt.Sprint(want.number) || textIn(e["name"]) != want.name || textIn(e["verdict"]) != "reproduced" {
			t.Errorf("experiment %d is %s, %s, %s", i, e["number"], e["name"], e["verdict"])
		}
		for _, field := range []string{"claim", "source", "reason"} {
			if textIn(e[field]) == "" {
				t.Errorf("%s has no %s", want.name, field)
			}
		}
		if string(e["tries"]) != "2" || numberIn(e["seconds"]) <= 0 {
			t.Errorf("%s: %s tries in %s s", want.name, e["tries"], e["seconds"])
		}
		var evidence map[string]float64
		if err := json.Unmarshal(e["evidence"], &evidence); err != nil {
			t.Fatal(err)
		}
		if evidence[want.evidence] <= 0 {
			t.Errorf("%s: %s is not among the numbers %v", want.name, want.evidence, evidence)
		}
	}
	r.reportsAgain(t)
	r.isJudgedByItsHistories(t)
}

// The order of the requests is made by the lab, so that it needs no luck.
func TestStampsEndsOfWaitingAndQuorumsFailAsTheSourcesSay(t *testing.T) {
	runInLab(t, "timestamp-locks", "end-of-waiting", "redlock-quorum")
}

// labRun is a run that all is well with, and what it left.
type labRun struct{ folder, json string }

func runInLab(t *testing.T, names ...string) labRun {
	t.Helper()
	cmdtest.NeedLockServers(t)
	r := labRun{folder: t.TempDir(), json: filepath.Join(t.TempDir(), "results.json")}
	args := append([]string{"lab", "run", "--servers=local,database=sqlite", "--dir", r.folder, "--json", r.json}, names...)
	status, out, errOut := stocklab(args...)
	if status != cli.OK || !strings.Contains(out, fmt.Sprintf("%d reproduced", len(names))) {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	return r
}

// The same report is made again of what is in the folder.
func (r labRun) reportsAgain(t *testing.T) {
	t.Helper()
	before := make(map[string][]byte)
	for _, name := range []string{"report.json", "report.html"} {
		before[name] = read(t, filepath.Join(r.folder, name))
		if len(before[name]) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	if err := os.Remove(filepath.Join(r.folder, "report.html")); err != nil {
		t.Fatal(err)
	}
	if status, out, errOut := stocklab("lab", "report", r.folder); status != cli.OK {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	for name, was := range before {
		if !bytes.Equal(read(t, filepath.Join(r.folder, name)), was) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// Where a history says something else, so does the verdict.
func (r labRun) isJudgedByItsHistories(t *testing.T) {
	t.Helper()
	history := filepath.Join(r.folder, "09-reentrancy", "redis-reentrant-1.jsonl")
	lines := slices.Collect(bytes.Lines(read(t, history)))
	first := slices.IndexFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"granted"`)) })
	asked := slices.Concat(lines[:first+2]...) // once more, and this is all
	if err := os.WriteFile(history, asked, 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, _ := stocklab("lab", "report", r.folder)
	if status != cli.Failure || !strings.Contains(out, "1 reproduced, 1 not reproduced") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	var report scenario.Report
	if err := json.Unmarshal(read(t, filepath.Join(r.folder, "report.json")), &report); err != nil {
		t.Fatal(err)
	}
	if got := report.Experiments[0]; got.Verdict != scenario.NotReproduced || got.Parts[0].Finding.Holds == got.Parts[1].Finding.Holds {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

// However an experiment ends, nothing that it started runs on and no folder stays,
// also where one of its replicas is paused.
func TestNothingIsLeftOfAnExperiment(t *testing.T) {
	cmdtest.NeedLockServers(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			tmp := t.TempDir()
			lab := exec.Command(os.Args[0], "lab", "run", "paused-holder", "--servers=local,database=sqlite,zookeeper=none,etcd=none")
			lab.Env = append(os.Environ(), "TMPDIR="+tmp)
			if err := lab.Start(); err != nil {
				t.Fatal(err)
			}
			cmdtest.Await(t, "a paused replica", 60*time.Second, func() bool { return slices.ContainsFunc(processesIn(t, tmp), isStopped) })
			if err := lab.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			ended := time.Now()
			if err := lab.Wait(); err == nil {
				t.Error("an experiment that was ended says that all is well")
			}
			if took := time.Since(ended); took > 10*time.Second { // the buyers wait for twice as long
				t.Errorf("it took %s to end", took)
			}
			assertNothingIn(t, tmp)
		})
	}
}

func isStopped(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && bytes.Contains(stat, []byte(") T "))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func textIn(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text) // what is no text is empty
	return text
}

func numberIn(raw json.RawMessage) (number float64) {
	_ = json.Unmarshal(raw, &number) // what is no number is 0
	return number
}
