//go:build prove

package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/stock"
)

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
			l := startLabOf(t, servers.Choice{Mode: servers.Local}, cluster.Options{
				Replicas: 3,
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
	pauses     = 20 // fenced runs, at least, each with holders that pause
	mostPauses = 60 // runs until something is to be seen: damage, or a fence that holds
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
	for run := 1; run <= mostPauses; run++ {
		if o := p.run(t, false); o.lost != 0 {
			t.Logf("run %d: %d updates lost, errors %v", run, o.lost, o.errs)
			return
		}
	}
	t.Errorf("no damage in %d runs", mostPauses)
}

func (p *pausing) damageInNoRun(t *testing.T) {
	rejected := make(map[string]int)
	var sold int64
	runs := 0
	for runs < pauses || rejected["fenced"] == 0 && runs < mostPauses {
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
		if err := p.lab.cluster.Client().CreateGoods(t.Context(), p.goods, stock.MaxStock/2); err != nil {
			t.Fatal(err)
		}
	}
	selling, stop := context.WithCancel(t.Context())
	defer stop()
	errs := make(chan map[string]int, 3*manyGoods)
	for _, replica := range p.lab.cluster.Replicas {
		for goods := first; goods <= p.goods; goods++ {
			go func() {
				result, err := load.Run(selling, load.Plan{
					URL: replica.URL, Strategy: p.strategy, Fence: fence, GoodsID: goods,
					Clients: 1, Duration: time.Minute, Timeout: time.Minute,
				})
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
		audit, err := p.lab.cluster.Client().Audit(t.Context(), goods)
		if err != nil {
			t.Fatal(err)
		}
		o.sold, o.lost, o.clean = o.sold+audit.Sold, o.lost+audit.Lost, o.clean && audit.Clean
	}
	return o
}

func (p *pausing) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.lab.cluster.Replicas[0].Pid(), s); err != nil {
		t.Fatal(err)
	}
}
