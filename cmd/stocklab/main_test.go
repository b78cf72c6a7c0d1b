package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
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

// Every command of stocklab that a document shows is one, with these flags.
func TestDocumentedCommandsExist(t *testing.T) { cmdtest.CheckCommands(t, root(), "demo") }

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sell"}, `"sell"`},
		{[]string{"demo", "now"}, `"now"`},
		{[]string{"demo", "--clients", "0"}, "--clients must be 1 to 2000, not 0"},
		{[]string{"demo", "--clients", "2001"}, "--clients must be 1 to 2000"},
		{[]string{"demo", "--stock=-1"}, "--stock must be 1 to 1000000000"},
		{[]string{"demo", "--stock=1000000001"}, "--stock must be 1"},
		{[]string{"demo", "--loops", "1000001"}, "--loops must be 1 to 1000000"},
		{[]string{"demo", "--repeat", "1001"}, "--repeat must be 1 to 1000"},
		{[]string{"demo", "--lock-share", "1001"}, "--lock-share must be 1 to 1000"},
		{[]string{"demo", "--replicas", "3,0"}, "--replicas must be 1 to 16"},
		{[]string{"demo", "--replicas", "17"}, "--replicas must be 1 to 16"},
		{[]string{"demo", "--servers", "remote"}, `"remote" is not auto, embedded or local`},
		{[]string{"demo", "--servers", "embedded,database=mariadb"}, `--servers: "database=mariadb" has no embedded form`},
		{[]string{"demo", "--strategies", "mutex,hope"}, `--strategies: "hope" is not a strategy; there are naive, `},
		{[]string{"demo", "--replicas", "1,x"}, `--replicas must be whole numbers, separated by commas, not "1,x"`},
		{[]string{"demo", "--no-such-flag"}, "--no-such-flag"},
		{[]string{"lab", "run"}, "stocklab lab list"},
		{[]string{"lab", "run", "hope"}, `"hope" is not an experiment; there are all, oversell, process-mutex,`},
		{[]string{"lab", "run", "99"}, ", or their numbers"},
		{[]string{"lab", "run", "oversell", "--servers", "remote"}, `"remote"`},
		{[]string{"lab", "list", "all"}, `"all"`},
		{[]string{"lab", "report"}, "needs one argument"},
		{[]string{"lab", "report", t.TempDir()}, "report.json"},
		{[]string{"live", "--address", "0.0.0.0:0"}, "--address"},
		{[]string{"live", "--address", ":8090"}, "--address"},
		{[]string{"live", "--address", "example.com:80"}, "--address"},
		{[]string{"live", "--address", "127.0.0.1"}, "--address"},
		{[]string{"live", "--address", "127.0.0.1:http"}, "--address"},
		{[]string{"live", "--reached-at=shop.example:8090"}, "--reached-at"},
		{[]string{"live", "--listen=127.0.0.1:0", "--reached-at=shop.example"}, "--reached-at"},
		{[]string{"live", "--listen=127.0.0.1:0", "--reached-at=:8090"}, "--reached-at"},
		{[]string{"live", "--listen=127.0.0.1:0", "--reached-at=shop.example:0"}, "--reached-at"},
		{[]string{"live", "--listen=127.0.0.1:0", "--reached-at=shop.example:http"}, "--reached-at"},
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
	most := demo.Plan{Stock: 1_000_000_000, Clients: 2000, Loops: 1_000_000, Repeat: 1000, LockShare: 1000, Replicas: []int{1, 16}}
	should.Fail(t, checkPlan(most), nil, "the largest demo")
}

// endedBy runs stocklab until it has begun, ends it with a signal, and wants nothing left of it; it returns when it
// was signalled.
func endedBy(t *testing.T, signal syscall.Signal, begun func(t *testing.T, tmp string) bool, args ...string) (ended time.Time) {
	t.Helper()
	tmp := t.TempDir()
	program := exec.Command(os.Args[0], args...)
	program.Env = append(os.Environ(), "TMPDIR="+tmp)
	must.Do(t, program.Start())
	labtest.Await(t, "it to begin", 60*time.Second, func() bool { return begun(t, tmp) })
	ended = time.Now()
	must.Do(t, program.Process.Signal(signal))
	if err := program.Wait(); err == nil {
		t.Error("what was ended says that all is well")
	}
	assertNothingIn(t, tmp)
	return ended
}

// assertNothingIn waits until no process has this temporary folder, and nothing is
// in it.
func assertNothingIn(t *testing.T, tmp string) {
	t.Helper()
	labtest.Await(t, "every process to be gone", 20*time.Second, func() bool { return len(processesIn(t, tmp)) == 0 })
	labtest.Await(t, "the folder to be empty", 10*time.Second, func() bool {
		left, err := os.ReadDir(tmp)
		return err == nil && len(left) == 0
	})
}

// processesIn lists processes that were started with this temporary folder.
func processesIn(t *testing.T, tmp string) (pids []string) {
	t.Helper()
	found := must.Get(filepath.Glob("/proc/[0-9]*/environ"))(t)
	for _, path := range found {
		environ, err := fs.ReadFile(os.DirFS("/"), strings.TrimPrefix(path, "/"))
		if err == nil && bytes.Contains(environ, []byte("TMPDIR="+tmp)) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// testLab is a cluster and what is under it.
type testLab struct {
	cluster  *shop.Cluster
	database *servers.Database
	missing  map[string]string // why a backend is not there, by its name
	local    bool              // everything is there that this machine has
	goods    *atomic.Int64     // the last that was created
}

// create makes an item for one test.
func (l testLab) create(t testing.TB, units int64) (goods int64) {
	t.Helper()
	goods = l.goods.Add(1)
	must.Do(t, l.cluster.Client().CreateGoods(t.Context(), goods, units))
	return goods
}

// startLabOf starts every backend of the choice that this machine has, and
// replicas on them.
func startLabOf(t testing.TB, choice servers.Choice, r shop.Replicas) testLab {
	t.Helper()
	return startReplicas(t, openShop(t, choice), r)
}

// openShop starts every backend of the choice that this machine has. They end with the test.
func openShop(t testing.TB, choice servers.Choice) *shop.Shop {
	t.Helper()
	choice.Volatile = true
	s := must.Get(shop.Open(t.Context(), shop.Options{Servers: choice}))(t)
	t.Cleanup(func() { must.Do(t, s.Close(t.Context())) })
	return s
}

func startReplicas(t testing.TB, s *shop.Shop, r shop.Replicas) testLab {
	t.Helper()
	c := must.Get(s.Start(t.Context(), r))(t)
	return testLab{c, s.Servers.Database, s.Servers.Missing, !s.Embedded(), new(atomic.Int64)}
}

// needBackend skips a test whose backend is not on this machine, or fails it where the
// backend is required.
func (l testLab) needBackend(t *testing.T, backend string) {
	t.Helper()
	reason, missing := l.missing[backend]
	if missing && l.local {
		labtest.Need(t, strings.Replace(backend, "redlock", "redis", 1), false, reason)
	}
	if missing {
		t.Skip(reason)
	}
}

// killOnce kills a replica when so many requests have been answered.
func killOnce(t *testing.T, victim *shop.Replica, after int) func(answered int) {
	t.Helper()
	var once sync.Once
	return func(answered int) {
		if answered < after {
			return
		}
		once.Do(func() {
			should.Do(t, victim.Kill(t.Context()))
		})
	}
}

func TestAnExperimentMayDoWithoutASafeguard(t *testing.T) {
	usual := strategy.Deps{UnitRows: 500, Retry: strategy.Retry{Tries: 50, Step: time.Millisecond, Max: time.Second}}
	for name, gone := range map[string]func(strategy.Deps) bool{
		"reaper":     func(d strategy.Deps) bool { return d.Lock.Unreaped },
		"one-server": func(d strategy.Deps) bool { return d.Lock.NodeLocks },
		"pause":      func(d strategy.Deps) bool { return d.Retry == strategy.Retry{Tries: 10_000, Max: time.Second} },
		"pool":       func(d strategy.Deps) bool { return d.UnitRows == 8 },
	} {
		if deps := without(config.Config{}, usual); gone(deps) || deps.Lock.Now != nil {
			t.Errorf("where nothing is changed, %s is gone: %+v", name, deps)
		}
		if deps := without(config.Config{Lab: config.Lab{Without: []string{name}}}, usual); !gone(deps) {
			t.Errorf("without %s: %+v", name, deps)
		}
	}
	deps := without(config.Config{Lab: config.Lab{ClockOffset: time.Hour}}, usual)
	if ahead := time.Until(deps.Lock.Now()); ahead < 59*time.Minute || ahead > 61*time.Minute {
		t.Errorf("the clock is ahead by %s, want an hour", ahead)
	}
}
