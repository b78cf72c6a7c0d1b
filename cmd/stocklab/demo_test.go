package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

func TestMain(m *testing.M) { cmdtest.Main(m, run) }

// stocklab runs a command to its end.
func stocklab(args ...string) (status int, out, errOut string) { return cmdtest.Run(run, args...) }

func TestHelpShowsWhatACommandDoes(t *testing.T) {
	cmdtest.Helps(t, root(), func(args ...string) string {
		_, out, _ := stocklab(args...)
		return out
	})
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sell"}, `"sell"`},
		{[]string{"demo", "now"}, `"now"`},
		{[]string{"demo", "--clients", "0"}, "--clients must be 1 to 2000"},
		{[]string{"demo", "--stock=-1"}, "--stock must be 1"},
		{[]string{"demo", "--replicas", "0"}, "--replicas must be 1 to 16"},
		{[]string{"demo", "--replicas", "99"}, "--replicas must be 1 to 16"},
		{[]string{"demo", "--servers", "remote"}, `"remote" is not auto, embedded or local`},
		{[]string{"demo", "--servers", "embedded,database=mariadb"}, `--servers: "database=mariadb" has no embedded form`},
		{[]string{"demo", "--strategies", "mutex,hope"}, `--strategies: "hope" is not a strategy; there are naive, `},
		{[]string{"demo", "--replicas", "1,x"}, `--replicas must be whole numbers, separated by commas, not "1,x"`},
		{[]string{"demo", "--no-such-flag"}, "--no-such-flag"},
		{[]string{"bench", "--rounds", "0"}, "--rounds"},
		{[]string{"bench", "--only", "("}, "--only"},
		{[]string{"bench", "--only", "sql-conditonal"}, `--only: "sql-conditonal" matches none of the strategies that are measured: sql-conditional, `},
		{[]string{"bench", "--only", "naive"}, "--only"},
		{[]string{"bench", "--items", "10", "--only", "sql-bucket"}, "are measured: sql-conditional, sql-for-update, redis-stock"},
		{[]string{"bench", "--growth", "--only", "sql-for-update"}, "are measured: sql-conditional, sql-bucket, redis-stock"},
		{[]string{"bench", "--within", "1s"}, "--within must be at least 1m"},
		{[]string{"bench", "--ledger", "5"}, "--ledger must be at least 100000"},
		{[]string{"bench", "--items", "1"}, "--items must be 2 to 10000"},
		{[]string{"bench", "--items", "10001"}, "--items must be 2 to 10000"},
		{[]string{"bench", "--items", "2", "--ledger", "100000"}, "--items, --ledger and --growth are measurements of their own"},
		{[]string{"bench", "--items", "2", "--quick"}, "--quick is for the suite"},
		{[]string{"bench", "--each", "1s", "--within", "5m"}, "--within is for the suite where --each is not given"},
		{[]string{"bench", "--growth", "--within", "5m"}, "--within is for the suite"},
		{[]string{"bench", "--ledger", "100000", "--only", "naive"}, "--only has no meaning with --ledger"},
		{[]string{"bench", "--growth", "--only", "naive", "--chart", "g.svg"}, "nor with --growth and --chart"},
		{[]string{"bench", "--growth", "--items", "2"}, "--items, --ledger and --growth are measurements of their own"},
		{[]string{"bench", "--chart-from", "figures.json"}, "needs --chart"},
		{[]string{"demo", "--markdown"}, "--markdown needs --all"},
		{[]string{"demo", "--token-file", "t"}, "need --url"},
		{[]string{"demo", "--admin-url", "http://127.0.0.1:1"}, "need --url"},
		{[]string{"live", "--ca-file", "ca.pem"}, "need --url"},
		{[]string{"demo", "--url", "http://127.0.0.1:1", "--replicas", "2"}, "--servers and --replicas would start others"},
		{[]string{"demo", "--url", "http://127.0.0.1:1"}, "--url needs --admin-url"},
		{[]string{"demo", "--url", "http://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1"}, "--token-file must name"},
		{[]string{"demo", "--url", "localhost:8080", "--admin-url", "http://127.0.0.1:1"}, `not "localhost:8080"`},
		{[]string{"live", "--listen", "8090"}, "--listen: "},
		{[]string{"live", "--listen", "0.0.0.0:http"}, `--listen: "http" is no port`},
		{[]string{"demo", "--json", "no/folder/demo.json"}, "--json: "},
		{[]string{"bench", "--json", "no/folder/bench.json"}, "--json: "},
		{[]string{"bench", "--chart", "."}, "--chart must be a file"},
		{[]string{"lab", "run", "oversell", "--json", "no/folder/lab.json"}, "--json: "},
		{[]string{"lab", "hostile", "--config=demo.go", "--json", "no/folder/hostile.json"}, "--json: "},
		{[]string{"bench", "--items", "2", "--chart", "items.svg"}, "--chart draws"},
		{[]string{"bench", "--ledger", "100000", "--chart", "ledger.svg"}, "--chart draws"},
	} {
		status, _, errOut := stocklab(c.args...)
		if status != cli.Usage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit status %d, %q; want %d with %q", c.args, status, errOut, cli.Usage, c.want)
		}
	}
}

// The bounds that are named are allowed, and what is just beyond them is not.
func TestThePlanOfADemoHasBounds(t *testing.T) {
	for flag, c := range map[string]struct {
		set  func(p *demo.Plan, value int64)
		most int64
	}{
		"stock":      {func(p *demo.Plan, value int64) { p.Stock = value }, 1_000_000_000},
		"clients":    {func(p *demo.Plan, value int64) { p.Clients = int(value) }, 2000},
		"loops":      {func(p *demo.Plan, value int64) { p.Loops = int(value) }, 1_000_000},
		"repeat":     {func(p *demo.Plan, value int64) { p.Repeat = int(value) }, 1000},
		"lock-share": {func(p *demo.Plan, value int64) { p.LockShare = int(value) }, 1000},
		"replicas":   {func(p *demo.Plan, value int64) { p.Replicas = []int{3, int(value)} }, 16},
	} {
		for _, value := range []int64{0, 1, c.most, c.most + 1} {
			p := demo.Plan{Stock: 1, Clients: 1, Loops: 1, Repeat: 1, LockShare: 1, Replicas: []int{1}}
			c.set(&p, value)
			err, allowed := checkPlan(p), value > 0 && value <= c.most
			if want := fmt.Sprintf("--%s must be 1 to %d, not %d", flag, c.most, value); allowed != (err == nil) || err != nil && err.Error() != want {
				t.Errorf("--%s=%d: %v, want it allowed: %t", flag, value, err, allowed)
			}
		}
	}
}

// A flag that chooses what is run asks for the tables: the story would ignore it.
func TestAFlagOfARunAsksForTheTables(t *testing.T) {
	demoCommand().Flags().VisitAll(func(flag *pflag.Flag) {
		cmd := demoCommand()
		cmd.Flags().Lookup(flag.Name).Changed = true
		story := slices.Contains([]string{"servers", "json", "markdown", "admin-url", "token-file", "ca-file"}, flag.Name)
		if got := tellsStory(cmd); got != story {
			t.Errorf("with --%s a story is printed: %t", flag.Name, got)
		}
	})
}

// What came out well by luck, or is contradicted by its ledger, sells nothing exactly.
func TestTheSummaryOfAStory(t *testing.T) {
	run := func(strategy string, v verdict.Verdict, clean bool, perSecond float64) verdict.Run {
		return verdict.Run{Strategy: strategy, Replicas: 3, Verdict: v, Clean: clean, PerSecond: perSecond}
	}
	got := summary([]verdict.Run{
		run("naive", verdict.Expected, false, 900), run("broken", verdict.Unexpected, false, 900), run("lucky", verdict.Unexpected, true, 900),
		run("sql-conditional", verdict.Expected, true, 20), run("redis-lua", verdict.Expected, true, 10), run("etcd", verdict.NotRun, true, 900),
	})
	for _, want := range []string{
		"oversell: naive on 3; broken on 3.\n", "exactly what there is: sql-conditional on 3; redis-lua on 3.\n",
		"The fastest of those here was sql-conditional, with 20 requests a second.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the summary lacks %q:\n%s", want, got)
		}
	}
	if got := summary(nil); strings.Count(got, "none here") != 2 || strings.Contains(got, "fastest") {
		t.Errorf("the summary of nothing is\n%s", got)
	}
}

func TestDemoEmbedded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.json")
	status, out, errOut := stocklab("demo", "--servers=embedded", "--stock=40", "--clients=20", "--loops=5", "--json", path)
	if status != cli.OK {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	r := cmdtest.ReadReport(t, path)
	if r.Servers["database"].Name != "SQLite" || r.Servers["balancer"].Name == "" || r.Servers["database"].Version == "" {
		t.Errorf("the servers are %v", r.Servers)
	}
	assertDemo(t, r)
	notRun := make(map[string]int)
	for _, run := range r.Runs {
		if run.Verdict == verdict.NotRun {
			notRun[run.Strategy]++
			if run.Reason == "" || !strings.Contains(out, run.Reason) {
				t.Errorf("%s was not run, and the reason %q is not in the table", run.Strategy, run.Reason)
			}
		}
	}
	// SQLite serves one writer at a time and has neither row locks, nor named
	// locks, nor procedures; ZooKeeper and etcd have no embedded form.
	for _, name := range []string{"mutex-in-tx", "sql-procedure", "sql-row-lock", "sql-named-lock", "zk-ephemeral", "zk-herd", "zk-sequential", "etcd"} {
		if notRun[name] != 2 {
			t.Errorf("%s was not run %d times, want 2", name, notRun[name])
		}
		delete(notRun, name)
	}
	if len(notRun) > 0 {
		t.Errorf("these should have been run: %v", notRun)
	}
	if !strings.Contains(out, "apt-get install zookeeper") {
		t.Errorf("the way to get a ZooKeeper is not in the table:\n%s", out)
	}
}

func TestDemoLocal(t *testing.T) {
	t.Parallel()
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	path := filepath.Join(t.TempDir(), "demo.json")
	status, _, errOut := stocklab("demo", "--servers=local", "--stock=40", "--clients=20", "--loops=5", "--json", path)
	if status != cli.OK {
		t.Errorf("exit status %d:\n%s", status, errOut)
	}
	r := cmdtest.ReadReport(t, path)
	if r.Servers["database"].Started != servers.Local || r.Servers["balancer"].Name != "nginx" {
		t.Errorf("the servers are %v", r.Servers)
	}
	assertDemo(t, r)
	for _, run := range r.Runs {
		if run.Verdict == verdict.NotRun {
			t.Errorf("%s on %d was not run", run.Strategy, run.Replicas)
		}
	}
}

// assertDemo holds the demo against what is known of each strategy; the list is
// written out here once more, so that a claim that is changed is noticed.
func assertDemo(t *testing.T, r cmdtest.Report) {
	t.Helper()
	clean := map[string]bool{"mutex ×1": true, "channel ×1": true}
	locks := []string{
		"sql-insert-lock", "sql-row-lock", "sql-version-lock", "sql-named-lock",
		"redis-setnx", "redis-setnx-ttl", "redis-setnx-owner", "redis-getset", "redis-lua",
		"redis-reentrant", "redis-fair", "redsync", "redlock",
		"zk-ephemeral", "zk-herd", "zk-sequential", "etcd",
	}
	safe := []string{"sql-conditional", "sql-procedure", "sql-optimistic", "sql-for-update", "sql-bucket", "sql-unit", "redis-decr", "redis-list", "redis-get-set-locked", "redis-stock"}
	for _, name := range append(safe, locks...) {
		clean[name+" ×1"], clean[name+" ×3"] = true, true
	}
	oversell := []string{"naive", "naive-decrement", "mutex", "mutex-per-request", "mutex-in-tx", "channel", "redis-get-set"}
	if want := 2 * (len(oversell) + len(safe) + len(locks)); len(r.Runs) != want {
		t.Errorf("%d runs, want %d", len(r.Runs), want)
	}
	for _, run := range r.Runs {
		name := fmt.Sprintf("%s ×%d", run.Strategy, run.Replicas)
		if run.Verdict == verdict.NotRun {
			continue
		}
		if run.Clean != clean[name] || run.Verdict != verdict.Expected {
			t.Errorf("%s: clean is %v, want %v; %s: %s", name, run.Clean, clean[name], run.Verdict, run.Reason)
		}
		if clean[name] && (run.Sold+run.Left != run.Stock || run.Left != 0 && run.Errors == 0 || run.Rejected+run.Errors+int(run.Sold) != run.Requests) {
			t.Errorf("%s: sold %d of %d, %d left, %d rejected, errors %v", name, run.Sold, run.Stock, run.Left, run.Rejected, run.ErrorTypes)
		}
		if run.Shorter != slices.Contains(locks, run.Strategy) {
			t.Errorf("%s: shorter is %v", name, run.Shorter)
		}
	}
}

// With too few buyers nothing can be oversold: a demonstration that does not
// show what it is there for has failed.
func TestDemoFailsWhereNothingIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.json")
	status, out, _ := stocklab("demo", "--servers=embedded", "--strategies=naive", "--replicas=1", "--clients=1", "--loops=3", "--json", path)
	if status != cli.Failure || !strings.Contains(out, "not expected") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	if run := cmdtest.ReadReport(t, path).Runs[0]; run.Tries != 5 || !strings.Contains(out, "(try 5)") {
		t.Errorf("%d tries, want 5 that are shown:\n%s", run.Tries, out)
	}
}

// The short demo is the one of the README.
func TestTheShortDemoFailsWhereNothingIsShown(t *testing.T) {
	file, cmd, out := filepath.Join(t.TempDir(), "demo.json"), demoCommand(), new(bytes.Buffer)
	cmd.SetContext(t.Context())
	cmd.SetOut(out)
	err := tell(cmd, demo.Plan{
		Binary: os.Args[0], Servers: servers.Choice{Mode: servers.Embedded}, Stock: 20, Clients: 1, Loops: 3, LockShare: 1, Repeat: 1,
		LockRun: demo.LockRun, Progress: cli.NewProgress(io.Discard, 0),
	}, file)
	if err == nil || !strings.Contains(out.String(), "not expected") { // one client oversells nothing
		t.Errorf("%v\n%s", err, out)
	}
	runs := cmdtest.ReadReport(t, file).Runs
	told := make([]demo.Row, 0, len(runs))
	for _, run := range runs {
		told = append(told, demo.Row{Strategy: run.Strategy, Group: run.Group, Replicas: run.Replicas})
	}
	if !slices.Equal(told, demo.Story()) {
		t.Errorf("it tells of %+v, want %+v", told, demo.Story())
	}
}

func TestDemoOfAnUnknownStrategyListsTheKnownOnes(t *testing.T) {
	status, _, errOut := stocklab("demo", "--servers=embedded", "--strategies=hope", "--replicas=1")
	if status == cli.OK || !strings.Contains(errOut, "sql-conditional") {
		t.Errorf("exit status %d: %s", status, errOut)
	}
}

// However a demo ends, nothing that it started runs on and no folder stays.
func TestNothingIsLeftOfADemo(t *testing.T) {
	for _, from := range []string{"embedded", "local"} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(from+" "+signal.String(), func(t *testing.T) {
				if from == "local" {
					cmdtest.NeedLocal(t)
				}
				t.Parallel() // most of it is waiting
				tmp := t.TempDir()
				demo := exec.Command(os.Args[0], "demo", "--servers", from, "--loops=100000")
				demo.Env = append(os.Environ(), "TMPDIR="+tmp)
				progress := &cmdtest.Buffer{}
				demo.Stderr = progress
				if err := demo.Start(); err != nil {
					t.Fatal(err)
				}
				cmdtest.Await(t, "replicas to run", 60*time.Second, func() bool { return len(processesIn(t, tmp)) > 1 && progress.Contains("starting replicas") })
				if err := demo.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				err := demo.Wait()
				if err == nil {
					t.Error("a demo that was ended says that all is well")
				}
				assertNothingIn(t, tmp)
			})
		}
	}
}

// assertNothingIn waits until no process has this temporary folder, and nothing is
// in it.
func assertNothingIn(t *testing.T, tmp string) {
	t.Helper()
	cmdtest.Await(t, "every process to be gone", 20*time.Second, func() bool { return len(processesIn(t, tmp)) == 0 })
	cmdtest.Await(t, "the folder to be empty", 10*time.Second, func() bool {
		left, err := os.ReadDir(tmp)
		return err == nil && len(left) == 0
	})
}

// processesIn lists processes that were started with this temporary folder.
func processesIn(t *testing.T, tmp string) (pids []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		environ, err := fs.ReadFile(os.DirFS("/"), strings.TrimPrefix(path, "/"))
		if err == nil && bytes.Contains(environ, []byte("TMPDIR="+tmp)) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
