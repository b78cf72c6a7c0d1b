//go:build prove

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/load"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// A holder that is stopped for longer than its lease goes on, when it is woken,
// where it was: in the middle of a sale, with somebody else in possession of the
// lock. Without a fence that does damage in some of the runs; with one, in none,
// and the late writes are counted as refused.
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
			needLocal(t)
			l := startLab(t, servers.Choice{Mode: servers.Local}, 3,
				"STOCKD_LOCK_TTL="+subject.ttl.String(), "STOCKD_LOCK_RETRY=5ms", "STOCKD_DEDUCT_TIMEOUT=30s", "STOCKD_LOCK_WAIT=20s")
			p := &pausing{lab: l, strategy: subject.strategy, pause: subject.ttl * 5 / 2}
			t.Run("unfenced", p.damageInSomeRun)
			t.Run("fenced", p.damageInNoRun)
		})
	}
}

// Bounds of the proof.
const (
	pauses     = 20 // fenced runs, each with a holder that pauses
	mostPauses = 60 // unfenced runs, until one does damage
)

// pausing runs sales on three replicas, of which the first is stopped while it
// holds the lock.
type pausing struct {
	lab      testLab
	strategy string
	pause    time.Duration
	goods    int64
}

func (p *pausing) damageInSomeRun(t *testing.T) {
	for run := 1; run <= mostPauses; run++ {
		audit, _ := p.run(t, false)
		if audit.Lost != 0 || audit.Oversold != 0 {
			t.Logf("run %d: %d updates lost", run, audit.Lost)
			return
		}
	}
	t.Errorf("no damage in %d runs", mostPauses)
}

func (p *pausing) damageInNoRun(t *testing.T) {
	refused := make(map[string]int)
	for run := 1; run <= pauses; run++ {
		audit, errs := p.run(t, true)
		if !audit.Clean {
			t.Errorf("run %d did damage: %+v", run, audit)
		}
		for problem, n := range errs {
			refused[problem] += n
		}
	}
	t.Logf("%d runs, refused: %v", pauses, refused)
	if refused["fenced"] == 0 {
		t.Errorf("no late write was refused by the fence in %d runs: %v", pauses, refused)
	}
}

// run sells while a holder pauses, and returns the audit and the errors.
func (p *pausing) run(t *testing.T, fence bool) (stock.Audit, map[string]int) {
	t.Helper()
	p.goods++
	if err := p.lab.cluster.Client().CreateGoods(t.Context(), p.goods, stock.MaxStock/2); err != nil {
		t.Fatal(err)
	}
	selling, stop := context.WithCancel(t.Context())
	defer stop()
	errs := make(map[string]int)
	var mu sync.Mutex
	var sales sync.WaitGroup
	var others atomic.Int64 // answers of the replicas that are not stopped
	for i, replica := range p.lab.cluster.Replicas {
		sales.Go(func() {
			plan := load.Plan{
				URL: replica.URL, Strategy: p.strategy, Fence: fence, GoodsID: p.goods,
				Clients: 4, Duration: time.Minute, Timeout: time.Minute,
			}
			if i == 1 {
				plan.Progress = func(n int) { others.Store(int64(n)) }
			}
			result, err := load.Run(selling, plan)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for problem, n := range result.Errors {
				errs[problem] += n
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	p.stopHolder(t, &others)
	time.Sleep(300 * time.Millisecond)
	stop()
	sales.Wait()
	audit, err := p.lab.cluster.Client().Audit(t.Context(), p.goods)
	if err != nil {
		t.Fatal(err)
	}
	return audit, errs
}

// stopHolder stops the first replica in the moment in which it holds the lock,
// and wakes it when its lease has long run out. That it holds the lock shows in
// that nobody else sells.
func (p *pausing) stopHolder(t *testing.T, others *atomic.Int64) {
	t.Helper()
	const look = 250 * time.Millisecond // the load tells ten times a second how far it is
	for range 200 {
		p.signal(t, syscall.SIGSTOP)
		time.Sleep(look / 2) // what was on its way has arrived
		before := others.Load()
		time.Sleep(look)
		if others.Load() == before {
			time.Sleep(p.pause - look*3/2)
			p.signal(t, syscall.SIGCONT)
			return
		}
		p.signal(t, syscall.SIGCONT)
		time.Sleep(rand.N(50 * time.Millisecond))
	}
	t.Fatal("the replica never held the lock when it was stopped")
}

func (p *pausing) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.lab.cluster.Replicas[0].Pid(), s); err != nil {
		t.Fatal(err)
	}
}
