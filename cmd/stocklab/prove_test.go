//go:build prove

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/hostile"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/lab/walk"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// quiet receives the progress of a demo, and logs each run to the test.
type quiet struct{ t *testing.T }

func (q quiet) Say(string)      {}
func (q quiet) Begin(int)       {}
func (q quiet) Run(string, int) {}
func (q quiet) Answered(int)    {}
func (q quiet) End()            {}

func (q quiet) Done(r verdict.Run) {
	q.t.Logf("%s ×%d: sold %d of %d, %s", r.Strategy, r.Replicas, r.Sold, r.Stock, r.Reason)
}

// Every strategy that claims to be safe across replicas sells out exactly, on
// three of them, twenty times in a row, on every database. Those whose lock is
// on a server sell a tenth.
func TestProveSafeStrategiesSellOutExactly(t *testing.T) {
	const repetitions = 20
	var safe []string
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas {
			safe = append(safe, entry.Name)
		}
	}
	for _, choice := range []servers.Choice{
		{Mode: servers.Embedded},
		{Mode: servers.Local, Database: servers.MariaDB},
		{Mode: servers.Local, Database: servers.MySQL},
	} {
		t.Run(fmt.Sprint(choice.Mode, choice.Database), func(t *testing.T) {
			cmdtest.NeedDatabase(t, choice.Database)
			if choice.Mode == servers.Local {
				cmdtest.NeedLockServers(t)
			}
			r := must.Get(demo.Run(t.Context(), demo.Plan{
				Servers: choice, Strategies: safe, Replicas: []int{3}, Repeat: repetitions,
				Stock: 1000, Clients: 50, Loops: 100, LockShare: 10, Progress: quiet{t},
			}))(t)
			should.Be(t, len(r.Runs), len(safe)*repetitions, "runs")
			for i, run := range r.Runs {
				switch {
				case run.Verdict == verdict.NotRun && choice.Mode == servers.Embedded:
				case run.Strategy == "redis-getset" && run.Clean && run.Errors > 0: // it stalls: that is what it is here for
				case run.Sold != run.Stock || run.Left != 0 || !run.Clean || run.Rejected == 0:
					t.Errorf("run %d, %s: %+v", i, run.Strategy, run)
				}
			}
		})
	}
}

// Three replicas sell out on each topology, each time while a member of it dies: a
// master, or the leader. The sale goes on, and afterwards the ledger has every
// reported order, except where the topology may lose some.
func TestProveSalesOutliveAMember(t *testing.T) {
	const rounds = 3
	for name, start := range topologies() {
		t.Run(name, func(t *testing.T) {
			cmdtest.NeedLocal(t)
			top := start(t, labtest.StartSupervisor(t))
			l := startLabOf(t,
				servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
				shop.Replicas{Count: 3, Env: append(top.env, "STOCKD_LOCK_TTL=3s")})
			store := must.Get(l.database.Open(t.Context(), "test", 4))(t)
			defer store.Close() //nolint:errcheck // the test is over
			for _, subject := range top.strategies {
				for round := range rounds {
					sale := &killedSale{killable: killable{lab: l, store: store}, subject: subject, goods: l.goods.Add(1), units: 1500, reported: make(map[string]string)}
					if subject.locks() {
						sale.units = 400
					}
					t.Run(fmt.Sprintf("%s/%d", subject, round+1), func(t *testing.T) { sale.outlivesMember(t, top) })
				}
			}
		})
	}
}

// locks tells whether each sale takes a lock, which takes its time.
func (k killed) locks() bool {
	return k.strategy != "redis-stock" && k.strategy != "redis-decr" && k.strategy != "redis-list"
}

func (s *killedSale) outlivesMember(t *testing.T, top topology) {
	must.Do(t, s.lab.cluster.Client().CreateGoods(t.Context(), s.goods, s.units))
	victim := must.Get(top.victim(t.Context(), s.subject.strategy, s.goods))(t)
	begun := time.Now()
	before := 0
	s.sell(t, func(ctx context.Context) error {
		err := victim.Kill(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		before = len(s.reported)
		return err
	})
	took := time.Since(begun)
	s.audit(t) // when it is done, nothing is pending
	s.buy(t, 24)
	audit, lost := s.audit(t), s.lost(t)
	t.Logf("%s with %s: sold %d of %d in %s, retried %d times; %d orders reported, of which the ledger lacks %d; oversold %d, lost %d",
		s.subject, top.name, audit.Sold, s.units, took.Round(10*time.Millisecond), s.again, len(s.reported), len(lost), audit.Oversold, audit.Lost)
	plain := !s.subject.fence && s.subject.durable == ""
	if mayDamage := plain && top.mayDamage[s.subject.strategy]; !audit.Clean && !mayDamage {
		t.Errorf("the audit is %+v", audit)
	}
	if mayLose := plain && top.mayLose[s.subject.strategy]; len(lost) > 0 && !mayLose {
		t.Errorf("the ledger lacks %d orders that were reported to buyers: %v", len(lost), lost)
	}
	if int64(before) == s.units {
		t.Error("the member died when all was sold")
	}
	must.Do(t, top.mend(t.Context(), victim))
}

// Ten minutes with every server there is, and a seed that was not picked. Shop, buyers
// and attacker share one machine: the attacker asks for less where the race detector
// makes the shop slow.
func TestProveAHostileTenMinutes(t *testing.T) {
	cmdtest.NeedLockServers(t)
	attacked(t, hostile.Plan{
		Servers: servers.Choice{Mode: servers.Local}, Timed: true,
		Seed: rand.Uint64N(1_000_000), Baseline: time.Minute, Duration: 10 * time.Minute, Rate: 400.0 / float64(cmdtest.RaceShadow()), HonestRate: 30,
	})
}

// A sale on Vitess is slower: the attacker asks for less.
func TestProveHonestBuyersAreServedUnderAttackOnVitess(t *testing.T) {
	attacked(t, hostile.Plan{
		Servers: servers.Choice{Mode: servers.Local, Database: servers.OnVitess, ZooKeeper: servers.None, Etcd: servers.None},
		Seed:    15, Baseline: 5 * time.Second, Duration: 30 * time.Second, Rate: 100, HonestRate: 5,
	})
}

// Fifty kills at random moments, of each strategy.
func TestProveRedisStockSurvivesKills(t *testing.T) {
	startToKill(t, servers.MariaDB).sales(t, 17, redisStockKilled())
}

// Reservations as well, and sales while units move between the row, buckets and Redis.
func TestProveSalesSurviveKills(t *testing.T) {
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) {
			s := startToKill(t, database)
			s.sales(t, 25, groupedAndKilled("sql-conditional"), groupedAndKilled("sql-procedure"), groupedAndKilled("sql-for-update"),
				groupedAndKilled("sql-bucket"), groupedAndKilled("redis-reentrant"), fencedAndKilled(),
				manyItemsAndKilled("sql-conditional"), manyItemsAndKilled("sql-for-update"), manyItemsAndKilled("redis-stock"))
			s.sales(t, 7, movingAndKilled())
			s.reservations(t, 50, redisStockKilled(), groupedAndKilled("sql-conditional"), groupedAndKilled("sql-bucket"), fencedAndKilled())
		})
	}
}

// Every strategy that is safe across replicas, with the whole crowd, grouped and
// not, on both databases.
func TestProveARollingRestartCostsNobodyAnything(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) {
			cmdtest.NeedDatabase(t, database)
			l := startRolling(t, servers.Choice{Mode: servers.Local, Database: database}, 3)
			for _, entry := range strategy.Registry() {
				if !entry.Guarantees.ExclusiveAcrossReplicas {
					continue
				}
				if entry.Name == "redis-getset" {
					t.Log("redis-getset is left out: it pauses for a TTL at a handoff, which outlasts every drain")
					continue
				}
				for _, group := range []bool{false, true} {
					sale := &rollingSale{strategy: entry.Name, group: group, clients: crowd, goods: l.create(t, plenty)}
					l.sellOn(t, []*rollingSale{sale}, func() { l.roll(t) })
				}
			}
		})
	}
}

// As an autoscaler has it, round after round: several replicas stop at the same time, and others start.
func TestProveScalingUnderLoadCostsNobodyAnything(t *testing.T) {
	cmdtest.NeedLocal(t)
	l := startRolling(t, servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None}, 5)
	sale := &rollingSale{strategy: "sql-conditional", group: true, clients: 16, goods: l.create(t, plenty)}
	l.sellOn(t, []*rollingSale{sale}, func() {
		running := 5
		for range 10 {
			for _, to := range []int{2, 5, 1, 3, 5} {
				l.scale(t, running, to)
				running = to
			}
		}
	})
}

// scale stops or starts replicas, all of them at the same time.
func (l testLab) scale(t *testing.T, from, to int) {
	t.Helper()
	var changed sync.WaitGroup
	for _, replica := range l.cluster.Replicas[min(from, to):max(from, to)] {
		changed.Go(func() {
			if to < from {
				l.stop(t, replica)
			} else if err := replica.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	changed.Wait()
}

// A replica that is killed takes the units with it that it had reserved in Redis
// and not yet sold: every request is rejected while the ledger still has them. A
// restock has them counted anew.
func TestProveAReplicaThatDiesTakesItsUnits(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local}, shop.Replicas{Count: 3})
	goods := int64(0)
	for _, strategy := range []string{"redis-decr", "redis-list"} {
		t.Run(strategy, func(t *testing.T) {
			const runs, units = 10, 600
			for range runs {
				goods++
				gone := sellAndKill(t, l, strategy, goods, units)
				if gone == 0 {
					continue
				}
				t.Logf("%d units are gone with the replica", gone)
				must.Get(l.cluster.Client().Shop().Restock(t.Context(), goods, 1, ""))(t)
				if a, _ := sell(t, l, strategy, goods, nil); a.Sold != units+1 {
					t.Errorf("%d were sold after a restock, want all of %d", a.Sold, units+1)
				}
				return
			}
			t.Errorf("no unit was gone in %d runs", runs)
		})
	}
}

// forgiven is how long nginx leaves a replica alone that it could not reach.
const forgiven = 1100 * time.Millisecond

// sellAndKill sells until every request is rejected, kills a replica meanwhile, and
// returns how many units were rejected that the ledger still had.
func sellAndKill(t *testing.T, l testLab, strategy string, goods, units int64) (gone int64) {
	t.Helper()
	must.Do(t, l.cluster.Client().CreateGoods(t.Context(), goods, units))
	victim := l.cluster.Replicas[goods%3]
	audit, rejected := sell(t, l, strategy, goods, killOnce(t, victim, 100))
	if !audit.Clean {
		t.Errorf("never oversells, it says: %+v", audit)
	}
	must.Do(t, victim.Start(t.Context()))
	time.Sleep(forgiven)
	return audit.Undersold(rejected)
}

func sell(t *testing.T, l testLab, strategy string, goods int64, progress func(int)) (audit stock.Audit, rejected int64) {
	t.Helper()
	result := must.Get(load.Run(t.Context(), load.Plan{
		URL: l.cluster.URL, Strategy: strategy, GoodsID: goods, Clients: 30, Requests: 1500, Timeout: time.Minute, Progress: progress,
	}))(t)
	audit = must.Get(l.cluster.Client().Audit(t.Context(), goods))(t)
	return audit, int64(result.Rejected)
}

// walkFor names the variable that says how long to walk on each database, such as 4h.
const walkFor = "STOCKD_WALK_FOR"

// Walks with one new seed after the other, for ten minutes on each database or as long as
// the environment says. The seeds of the environment are walked once.
func TestProveRandomWalks(t *testing.T) {
	long := 10 * time.Minute
	if text := os.Getenv(walkFor); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", walkFor, err)
		}
	}
	for _, database := range []string{servers.MariaDB, servers.MySQL, servers.SQLite} {
		t.Run(database, func(t *testing.T) {
			s := startWalks(t, database)
			walk := func(seed uint64) {
				s.shrinking = 0
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					s.mixed(t, seed)
					s.throughEach(t, exclusiveStrategies(database), seed)
				})
			}
			given := seedsOr(t)
			for _, seed := range given {
				walk(seed)
			}
			for end := time.Now().Add(long); len(given) == 0 && time.Now().Before(end); {
				walk(rand.Uint64N(1_000_000))
			}
		})
	}
}

// Walks on two shards of Vitess. Instead of its database, one of its servers is killed, or paused for a second: the tablets,
// the gate, their database, etcd and vtctld in turns. The seed has one of them in each walk.
func TestProveRandomWalksOnVitess(t *testing.T) {
	opened := openShop(t, servers.Choice{Mode: servers.Local, Database: servers.MariaDB})
	v := labtest.Own(t, opened.Supervisor, "vitess", servers.StartVitess, servers.VitessOptions{Shards: []string{"-80", "80-"}})
	opened.Servers.Database = v.Database
	s, faults := startWalkers(t, opened, servers.OnVitess, walk.Replicas), 0
	s.restart[backend.Database] = func(ctx context.Context) error {
		faults++
		server := v.All[faults%len(v.All)]
		if faults%2 == 0 {
			return server.Restart(ctx)
		}
		err := server.Pause(ctx)
		time.Sleep(time.Second)
		return errors.Join(err, server.Resume(ctx))
	}
	s.throughEach(t, []string{"sql-conditional", "sql-for-update", "sql-optimistic", "sql-bucket", "sql-unit", "sql-row-lock", "redis-lua", "redis-stock"},
		seedsOr(t, 15166)...)
	t.Log(faults, "faults of the servers of Vitess")
}

// It holds as long as no remedy is broken. Some planted bugs break one, and turn its experiment red here.
func TestProveEveryExperimentIsReproduced(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	for _, e := range experiments.All() {
		t.Run(e.Name, func(t *testing.T) {
			labtest.Need(t, "vitess", e.Name != "shards" || os.Getenv("STOCKD_VITESS") != "", "make vitess builds it")
			status, out, errOut := stocklab("lab", "run", "--servers=local", e.Name)
			if status != cli.OK || !strings.Contains(out, "1 reproduced") {
				t.Errorf("exit status %d:\n%s\n%s", status, out, errOut)
			}
		})
	}
}

// A holder that is stopped for longer than its lease goes on, when it is woken,
// where it was: in the middle of a sale, with another client in possession of the
// lock. Without a fence that does damage in some of the runs; with one, in none,
// and the late writes are counted as rejected.
func TestProveAPausedHolderDoesNoDamageWhenFenced(t *testing.T) {
	for _, subject := range []struct {
		strategy string
		ttl      time.Duration
	}{
		{"redis-lua", time.Second},
		{"redsync", time.Second},
		{"zk-sequential", time.Second},
		{"etcd", 2 * time.Second}, // the shortest lease that etcd grants
	} {
		t.Run(subject.strategy, func(t *testing.T) {
			cmdtest.NeedLocal(t)
			l := startLabOf(t, servers.Choice{Mode: servers.Local}, shop.Replicas{
				Count: 3,
				// Where a replica has one processor only, the timer that tells of the
				// loss always comes before the sale that it is about.
				Processors: 4,
				Env: []string{
					"STOCKD_LOCK_TTL=" + subject.ttl.String(), "STOCKD_LOCK_RETRY=5ms",
					"STOCKD_DEDUCT_TIMEOUT=30s", "STOCKD_LOCK_WAIT=20s",
				},
			})
			p := &pausing{lab: l, strategy: subject.strategy, pause: subject.ttl * 5 / 2}
			t.Run("unfenced", p.damageInSomeRun)
			t.Run("fenced", p.damageInNoRun)
		})
	}
}

// Bounds of the proof.
const (
	pauses    = 20 // fenced runs, at least, each with holders that pause
	maxPauses = 60 // runs until something is to be seen: damage, or a fence that holds
	// manyGoods are sold at the same time, each under a lock of its own, so that
	// a replica that is stopped holds several, at different steps of a sale.
	manyGoods = 24
)

// pausing runs sales on three replicas, of which the first is stopped for longer
// than its leases last.
type pausing struct {
	lab      testLab
	strategy string
	pause    time.Duration
	goods    int64 // the last that was created
}

func (p *pausing) damageInSomeRun(t *testing.T) {
	for run := 1; run <= maxPauses; run++ {
		if o := p.run(t, false); o.lost != 0 {
			t.Logf("run %d: %d updates lost, errors %v", run, o.lost, o.errs)
			return
		}
	}
	t.Errorf("no damage in %d runs", maxPauses)
}

func (p *pausing) damageInNoRun(t *testing.T) {
	rejected := make(map[string]int)
	var sold int64
	runs := 0
	for runs < pauses || rejected["fenced"] == 0 && runs < maxPauses {
		runs++
		o := p.run(t, true)
		if !o.clean {
			t.Errorf("run %d did damage: %+v", runs, o)
		}
		sold += o.sold
		for problem, n := range o.errs {
			rejected[problem] += n
		}
	}
	t.Logf("%d runs, %d sold, rejected: %v", runs, sold, rejected)
	if rejected["fenced"] == 0 {
		t.Errorf("no late write was rejected by the fence in %d runs: %v", runs, rejected)
	}
}

// outcome is what came of a run, over all of its goods.
type outcome struct {
	sold, lost int64
	clean      bool
	errs       map[string]int
}

// run sells while holders pause.
func (p *pausing) run(t *testing.T, fence bool) outcome {
	t.Helper()
	first := p.goods + 1
	for p.goods < first+manyGoods-1 {
		p.goods++
		must.Do(t, p.lab.cluster.Client().CreateGoods(t.Context(), p.goods, stock.MaxStock/2))
	}
	selling, stop := context.WithCancel(t.Context())
	defer stop()
	errs := make(chan map[string]int, 3*manyGoods)
	for _, replica := range p.lab.cluster.Replicas {
		for goods := first; goods <= p.goods; goods++ {
			go func() {
				plan := load.Plan{
					URL: replica.URL, Strategy: p.strategy, Fence: fence, GoodsID: goods, Clients: 1, Duration: time.Minute, Timeout: time.Minute,
				}
				result, err := load.Run(selling, plan)
				if err != nil {
					t.Error(err)
					result = &load.Result{}
				}
				errs <- result.Errors
			}()
		}
	}
	time.Sleep(300*time.Millisecond + rand.N(100*time.Millisecond))
	p.signal(t, syscall.SIGSTOP)
	time.Sleep(p.pause)
	p.signal(t, syscall.SIGCONT)
	time.Sleep(300 * time.Millisecond)
	stop()
	o := outcome{clean: true, errs: make(map[string]int)}
	for range cap(errs) {
		for problem, n := range <-errs {
			o.errs[problem] += n
		}
	}
	for goods := first; goods <= p.goods; goods++ {
		audit := must.Get(p.lab.cluster.Client().Audit(t.Context(), goods))(t)
		o.sold, o.lost, o.clean = o.sold+audit.Sold, o.lost+audit.Lost, o.clean && audit.Clean
	}
	return o
}

func (p *pausing) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must.Do(t, syscall.Kill(p.lab.cluster.Replicas[0].Pid(), s))
}

func TestProveTheWholeStoryNeedsNothingButNext(t *testing.T) {
	b := pages{chromium: browser.Open(t), url: startLive(t, "--servers=embedded")}.show(t, "light")
	followStory(t, b, false, true, false, true, false, false, true, false, true, false)
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('marks').textContent"), "replica-1 stopped between read and write", "replica-1 resumed")
}
