package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// A flag that chooses what is run asks for the tables: the story would ignore it.
func TestAFlagOfARunAsksForTheTables(t *testing.T) {
	demoCommand().Flags().VisitAll(func(flag *pflag.Flag) {
		cmd := demoCommand()
		cmd.Flags().Lookup(flag.Name).Changed = true
		story := slices.Contains([]string{"servers", "json", "markdown", "admin-url", "token-file", "ca-file"}, flag.Name)
		should.Be(t, tellsStory(cmd), story, "with --… a story is printed", flag.Name)
	})
}

// What came out well by luck, is contradicted by its ledger, or has units left sells nothing exactly.
func TestAStoryConcludesFromItsRows(t *testing.T) {
	run := func(strategy string, v verdict.Verdict, clean bool, sold int64, salesPerSecond float64) verdict.Run {
		return verdict.Run{Strategy: strategy, Replicas: 3, Stock: 100, Sold: sold, Verdict: v, Clean: clean, SalesPerSecond: salesPerSecond}
	}
	names := func(runs []verdict.Run) (list string) {
		for _, r := range runs {
			list += r.Strategy + " "
		}
		return list
	}
	c := conclude([]verdict.Run{
		run("naive", verdict.Expected, false, 500, 900), run("broken", verdict.Unexpected, false, 101, 900), run("lucky", verdict.Unexpected, true, 100, 900),
		run("sql-conditional", verdict.Expected, true, 100, 20), run("redis-stock", verdict.Expected, true, 100, 30), run("redis-lua", verdict.Expected, true, 33, 40),
		run("etcd", verdict.NotRun, true, 0, 0),
	})
	for want, got := range map[string]string{
		"naive broken ": names(c.oversold), "sql-conditional redis-stock ": names(c.exact), "redis-lua ": names(c.unsold), "redis-stock ": c.fastest.Strategy + " ",
	} {
		should.Be(t, got, want, "it concludes")
	}
	if c := conclude(nil); len(c.oversold)+len(c.exact)+len(c.unsold) > 0 || strings.Contains(summary(nil), ":\n") {
		t.Errorf("it concludes %+v from nothing", c)
	}
}

// ZooKeeper and etcd have no embedded form, and SQLite has neither row locks, nor named locks, nor procedures.
func TestDemoEmbedded(t *testing.T) {
	absent := []string{"mutex-in-tx", "sql-procedure", "sql-row-lock", "sql-named-lock", "zk-sequential", "etcd"}
	strategies := append([]string{"naive", "mutex", "sql-conditional", "redis-lua", "redis-stock"}, absent...)
	path := filepath.Join(t.TempDir(), "demo.json")
	status, out, errOut := stocklab("demo", "--servers=embedded", "--strategies="+strings.Join(strategies, ","),
		"--stock=40", "--clients=20", "--loops=5", "--json", path)
	if status != cli.OK || !strings.Contains(out, "apt-get install zookeeper") {
		t.Fatalf("exit status %d:\n%s\n%s", status, out, errOut)
	}
	r := cmdtest.ReadReport(t, path)
	if r.Servers["database"].Name != "SQLite" || r.Servers["balancer"].Name == "" || r.Servers["database"].Version == "" {
		t.Errorf("the servers are %v", r.Servers)
	}
	assertDemo(t, r, 2*len(strategies))
	for _, run := range r.Runs {
		if notRun := run.Verdict == verdict.NotRun; notRun != slices.Contains(absent, run.Strategy) || notRun && !strings.Contains(out, run.Reason) {
			t.Errorf("%s is %s, and the reason %q is in the table, or should not be", run.Strategy, run.Verdict, run.Reason)
		}
	}
}

func TestDemoLocal(t *testing.T) {
	t.Parallel()
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	path := filepath.Join(t.TempDir(), "demo.json")
	status, _, errOut := stocklab("demo", "--servers=local", "--stock=40", "--clients=20", "--loops=5", "--json", path)
	should.Be(t, status, cli.OK, "exit status", errOut)
	r := cmdtest.ReadReport(t, path)
	if r.Servers["database"].Started != servers.Local || r.Servers["balancer"].Name != "nginx" {
		t.Errorf("the servers are %v", r.Servers)
	}
	assertDemo(t, r, 2*len(strategy.Registry()))
	for _, run := range r.Runs {
		if run.Verdict == verdict.NotRun {
			t.Errorf("%s on %d was not run", run.Strategy, run.Replicas)
		}
	}
}

// assertDemo holds the demo against what is known of each strategy; the list is
// written out here once more, so that a claim that is changed is noticed.
func assertDemo(t *testing.T, r cmdtest.Report, runs int) {
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
	should.Be(t, len(r.Runs), runs, "runs")
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
		should.Be(t, run.Shorter, slices.Contains(locks, run.Strategy), "shorter is", name)
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
		Servers: servers.Choice{Mode: servers.Embedded}, Stock: 20, Clients: 1, Loops: 3, LockShare: 1, Repeat: 1,
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
	should.Equal(t, told, demo.Story(), "it tells of")
}

// However a demo ends, nothing that it started runs on and no folder stays.
func TestNothingIsLeftOfADemo(t *testing.T) {
	for from, signals := range map[string][]syscall.Signal{
		"embedded": {syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}, "local": {syscall.SIGTERM, syscall.SIGKILL},
	} {
		for _, signal := range signals {
			t.Run(from+" "+signal.String(), func(t *testing.T) {
				if from == "local" {
					cmdtest.NeedLocal(t)
				}
				t.Parallel() // most of it is waiting
				endedBy(t, signal, func(t *testing.T, tmp string) bool { return slices.ContainsFunc(processesIn(t, tmp), isReplica) },
					"demo", "--servers", from, "--loops=100000")
			})
		}
	}
}

func isReplica(pid string) bool {
	args, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && bytes.Contains(args, []byte("\x00replica\x00"))
}

// A demo sells on replicas that run already, and leaves them running.
func TestADemoOnExternalReplicas(t *testing.T) {
	others, flags := startOthers(t)
	report := filepath.Join(t.TempDir(), "demo.json")
	status, out, errOut := stocklab(append(flags, "demo", "--strategies", "sql-conditional,mutex",
		"--stock", "200", "--clients", "8", "--loops", "40", "--json", report)...)
	if status != cli.OK {
		t.Fatalf("exit status %d: %s%s", status, out, errOut)
	}
	for _, run := range cmdtest.ReadReport(t, report).Runs {
		if run.Replicas != 2 || run.ExpectedClean != (run.Strategy == "sql-conditional") {
			t.Errorf("%s on %d replicas, expected clean: %v; there are 2", run.Strategy, run.Replicas, run.ExpectedClean)
		}
	}
	names, err := others.Client().Replicas(t.Context())
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"replica-1", "replica-2"}) {
		t.Errorf("after it %v answer (%v), want both replicas", names, err)
	}
}

// startOthers starts two replicas, and returns the flags by which a command finds them.
func startOthers(t *testing.T) (others *shop.Cluster, flags []string) {
	t.Helper()
	l := startLabOf(t, servers.Choice{Mode: servers.Embedded, Redis: servers.None, Etcd: servers.None}, shop.Replicas{Count: 2})
	there := l.cluster.Client()
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(there.Token+"\n"), 0o600))
	return l.cluster, []string{"--url=" + there.URL, "--admin-url=" + there.AdminURL, "--token-file=" + token}
}
