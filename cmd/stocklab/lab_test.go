package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/hostile"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func TestLabListHasEveryExperiment(t *testing.T) {
	status, out, _ := stocklab("lab", "list")
	if status != cli.OK {
		t.Fatalf("exit status %d", status)
	}
	for _, e := range experiments.All() {
		should.Contain(t, out, fmt.Sprintf("│ %2d │ %s ", e.Number, e.Name))
	}
}

// The exit status is that of what was made: an experiment without its servers is no failure.
func TestWhatIsShownOfARun(t *testing.T) {
	one := experiments.Result{Experiment: experiments.Experiment{Name: "one", Fix: "stocklab demo"}, Verdict: experiments.Reproduced}
	never := experiments.Experiment{Fix: "never"}
	missing, failed := experiments.Result{Experiment: never, Verdict: experiments.NotRun}, experiments.Result{Experiment: never, Verdict: experiments.NotReproduced}
	const kept, report, fix = "with --dir FOLDER the histories are kept", "report: run/report.html\n", "what to do instead: stocklab demo\n"
	for _, c := range []struct {
		folder  string
		results []experiments.Result
		want    error
		says    []string
	}{
		{"", []experiments.Result{one}, nil, []string{kept, fix}},
		{"run", []experiments.Result{one}, nil, []string{report, fix}},
		{"", []experiments.Result{one, missing}, nil, []string{kept}},
		{"run", []experiments.Result{failed, one}, errNotReproduced, []string{report}},
	} {
		var out bytes.Buffer
		should.Fail(t, showLab(&experiments.Report{Experiments: c.results}, &out, "", c.folder), c.want, c.results)
		for _, words := range []string{kept, report, fix, "never"} {
			should.Be(t, strings.Contains(out.String(), words), slices.Contains(c.says, words), "… is said, or is not", words, &out)
		}
	}
}

// What is no terminal gets a line of what is tried again.
func TestATryThatIsRepeatedIsReported(t *testing.T) {
	var out bytes.Buffer
	p, e := newLabProgress(&out), experiments.Experiment{Name: "one"}
	p.Try(e, experiments.Part{Name: "failure"}, 1)
	p.Try(e, experiments.Part{Name: "failure"}, 2)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "one, failure: try 2\n") {
		t.Errorf("it says %q", got)
	}
}

func TestLabRunWritesWhatItFound(t *testing.T) {
	cmdtest.NeedLockServers(t)
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "results.json")
	status, out, errOut := stocklab("lab", "run", "--servers=local,database=sqlite", "--dir", folder, "--json", file, "reentrancy", "late-watch", "redlock-quorum")
	if status != cli.OK || !strings.Contains(out, "3 reproduced") {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	var written experiments.Report
	if err := json.Unmarshal(read(t, file), &written); err != nil || len(written.Experiments) != 3 {
		t.Fatalf("%d experiments, want 3 (%v)", len(written.Experiments), err)
	}
	for i, want := range []struct {
		number         int
		name, evidence string
	}{{9, "reentrancy", "redis-reentrant.reentered"}, {18, "late-watch", "zk-sequential.longest_wait_ms"}} {
		e := written.Experiments[i]
		if e.Number != want.number || e.Name != want.name || e.Verdict != experiments.Reproduced || e.Tries != 2 || e.Seconds <= 0 || e.Evidence[want.evidence] <= 0 {
			t.Errorf("experiment %d is %+v", i, e)
		}
		if e.Claim == "" || e.Source == "" || e.Reason == "" {
			t.Errorf("%s lacks its claim, its source or its reason", want.name)
		}
	}
	reportsAgain(t, folder)
	isJudgedByItsHistories(t, folder)
}

// The same report is made again of what is in the folder.
func reportsAgain(t *testing.T, folder string) {
	t.Helper()
	before := make(map[string][]byte)
	for _, name := range []string{"report.json", "report.html"} {
		before[name] = read(t, filepath.Join(folder, name))
		if len(before[name]) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	must.Do(t, os.Remove(filepath.Join(folder, "report.html")))
	if status, out, errOut := stocklab("lab", "report", folder); status != cli.OK {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	for name, was := range before {
		if !bytes.Equal(read(t, filepath.Join(folder, name)), was) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// Where a history says something else, so does the verdict.
func isJudgedByItsHistories(t *testing.T, folder string) {
	t.Helper()
	history := filepath.Join(folder, "09-reentrancy", "redis-reentrant-1.jsonl")
	lines := slices.Collect(bytes.Lines(read(t, history)))
	first := slices.IndexFunc(lines, func(line []byte) bool { return bytes.Contains(line, []byte(`"granted"`)) })
	asked := slices.Concat(lines[:first+2]...) // once more, and this is all
	must.Do(t, os.WriteFile(history, asked, 0o600))
	status, out, _ := stocklab("lab", "report", folder)
	if status != cli.Failure || !strings.Contains(out, "2 reproduced, 1 not reproduced") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	var report experiments.Report
	must.Do(t, json.Unmarshal(read(t, filepath.Join(folder, "report.json")), &report))
	if got := report.Experiments[0]; got.Verdict != experiments.NotReproduced || got.Parts[0].Finding.Holds == got.Parts[1].Finding.Holds {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
}

// However an experiment ends, nothing that it started runs on and no folder stays,
// also where one of its replicas is paused.
func TestNothingIsLeftOfAnExperiment(t *testing.T) {
	cmdtest.NeedLockServers(t)
	paused := func(t *testing.T, tmp string) bool { return slices.ContainsFunc(processesIn(t, tmp), isStopped) }
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			ended := endedBy(t, signal, paused, "lab", "run", "paused-holder", "--servers=local,database=sqlite,zookeeper=none,etcd=none")
			if took := time.Since(ended); took > 10*time.Second { // the buyers wait for twice as long
				t.Errorf("it took %s to end", took)
			}
		})
	}
}

func isStopped(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && bytes.Contains(stat, []byte(") T "))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// attacked runs the attacker against replicas under the configuration of a shop, and
// fails where a bound does not hold.
func attacked(t *testing.T, plan hostile.Plan) {
	t.Helper()
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	config := must.Get(filepath.Abs("../../configs/production.yaml"))(t)
	plan.Config, plan.Tokens, plan.Connections, plan.Addresses = config, true, 200, 20
	plan.Memory, plan.Progress = 128<<20*cmdtest.RaceShadow(), func(words string) { t.Log(words) }
	r := must.Get(hostile.Run(t.Context(), plan))(t)
	var text bytes.Buffer
	must.Do(t, r.Table(&text))
	t.Log("\n" + text.String())
	for _, c := range r.Failed() {
		t.Errorf("%s: %s, want %s", c.What, c.Hostile, c.Bound)
	}
}

// Every attack there is, many times over. On a machine that does something else as well the
// times mean nothing: here they are only reported.
func TestHonestBuyersAreServedUnderAttack(t *testing.T) {
	attacked(t, hostile.Plan{
		Servers: servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None},
		Seed:    15, Baseline: 2 * time.Second, Duration: 8 * time.Second, Rate: 400, HonestRate: 30,
	})
}

func TestABoundThatDoesNotHoldFailsTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostile.json")
	for _, c := range []struct {
		check hostile.Check
		want  error
	}{
		{hostile.Check{What: "memory", Bound: "256 MiB", Held: true}, nil},
		{hostile.Check{What: "memory", Bound: "256 MiB", Reported: true}, nil},
		{hostile.Check{What: "memory", Bound: "256 MiB"}, errNotHeld},
	} {
		var out bytes.Buffer
		err := showJudged(&out, &hostile.Report{Checks: []hostile.Check{c.check}}, file)
		if !errors.Is(err, c.want) || !strings.Contains(out.String(), "256 MiB") {
			t.Errorf("%+v: %v, want %v\n%s", c.check, err, c.want, out.String())
		}
		if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), "256 MiB") {
			t.Errorf("%+v: the report is %s (%v)", c.check, content, err)
		}
	}
}

// The lock of most blogs frees another's hold by its late DEL, and redislock does not; what was recorded is judged again
// with the same marks.
func TestLibrariesOnTrial(t *testing.T) {
	cmdtest.NeedDatabase(t, "mariadb")
	cmdtest.NeedRedis(t)
	file := filepath.Join(t.TempDir(), "trial.json")
	status, out, errOut := stocklab("trial", "--only", "SET NX,redislock", "--question", "dies,late-release", "--json", file)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errOut)
	}
	_, page, _ := stocklab("trial", "judge", file)
	should.Contain(t, out, "REDISLOCK │ SET NX PX, DEL", "dies         │ ✓         │ ✓", "late-release │ ✓         │ not promised")
	should.Contain(t, page, "[not promised](#2-late-release)")
}
