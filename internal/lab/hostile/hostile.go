// Package hostile plays an attacker against three replicas behind a balancer, under
// the configuration of a shop, while honest buyers sell an item out, and judges what
// came of it.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Plan says what to run.
type Plan struct {
	// Config is the file that the replicas run under.
	Config string
	// Servers is where the backends are to come from.
	Servers servers.Choice
	// Env holds further STOCKD_… variables of the replicas.
	Env []string
	// Room has what honest buyers want sold to those alone whom the waiting room has admitted.
	Room bool
	// Tokens has buyers prove who they are by signed tokens; false: they say it.
	Tokens bool
	// Seed makes the attacker's requests the same again. Their timing is not, nor are
	// the keys that are stolen meanwhile.
	Seed uint64
	// Baseline is how long honest buyers are alone, Duration how long they are not.
	Baseline, Duration time.Duration
	// Connections is how many the attacker has at a time, from Addresses addresses, and
	// Rate how many requests a second it makes on all of them.
	Connections, Addresses int
	Rate                   float64
	// HonestRate is how many purchases a second honest buyers want.
	HonestRate float64
	// Memory is the most that a replica may have, in bytes.
	Memory int64
	// Timed has a run fail whose honest p99 is beyond its bound. Where it is false the
	// ratio is only reported.
	Timed bool
	// Progress is notified of what begins.
	Progress func(words string)
}

// Replicas is how many replicas are attacked.
const Replicas = 3

// Check returns an error that names what is wrong with the plan.
func (p Plan) Check() error {
	switch {
	case p.Connections < 1 || p.Connections > 2000:
		return fmt.Errorf("connections: %d is out of range 1..2000", p.Connections)
	case p.Addresses < 1 || p.Addresses > 250:
		return fmt.Errorf("addresses: %d is out of range 1..250", p.Addresses)
	case !isRate(p.Rate):
		return fmt.Errorf("rate: %g is not a finite number above 0", p.Rate)
	case !isRate(p.HonestRate):
		return fmt.Errorf("honest-rate: %g is not a finite number above 0", p.HonestRate)
	case p.Baseline < time.Second:
		return fmt.Errorf("baseline: %s is below 1s", p.Baseline)
	case p.Duration < time.Second:
		return fmt.Errorf("duration: %s is below 1s", p.Duration)
	case p.Memory < 1:
		return fmt.Errorf("memory: %d is below 1", p.Memory)
	}
	return nil
}

func isRate(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// Run attacks, and reports what came of it. The report is there also with an error that
// ended the run early.
func Run(ctx context.Context, p Plan) (r *Report, err error) {
	r = &Report{Seed: p.Seed, Machine: servers.ThisMachine(), plan: p}
	if err := p.Check(); err != nil {
		return r, err
	}
	s := &stage{plan: p}
	err = flow.Do(ctx, func(x *flow.Flow) { s.run(x, r) })
	if s.shop != nil {
		err = errors.Join(err, s.shop.Close(ctx))
	}
	return r, err
}

func (s *stage) run(x *flow.Flow, r *Report) {
	s.start(x)
	r.Servers = s.cluster.Infos()
	crowd := &crowd{url: s.cluster.URL, issuer: s.issuer, rate: s.plan.HonestRate, seed: s.plan.Seed, room: s.plan.Room}
	s.plan.Progress(fmt.Sprintf("honest buyers alone, %s", s.plan.Baseline))
	r.Baseline = crowd.run(x, baselineItem, s.plan.Baseline)
	r.Before = readState(x, s.shop.Servers)
	logs := s.logs()
	from := sizes(logs)
	s.plan.Progress(fmt.Sprintf("honest buyers and the attacker, %s, seed %d", s.plan.Duration, s.plan.Seed))
	s.attacked(x, crowd, r)
	s.plan.Progress("honest buyers sell the rest out")
	limited, cancel := context.WithTimeout(x, sellOutWithin)
	r.SellOut = crowd.sellOut(limited, hotItem)
	cancel()
	r.After = readState(x, s.shop.Servers)
	r.Log = flow.Get(readLogs(logs, from))(x)
	s.reconcile(x, crowd, r)
	r.judge()
}

// sellOutWithin bounds how long the rest of the stock may take.
const sellOutWithin = 2 * time.Minute

// attacked runs honest buyers, attacker and watcher beside each other.
func (s *stage) attacked(x *flow.Flow, crowd *crowd, r *Report) {
	supply := &supply{stage: s, units: s.chunk(), until: time.Now().Add(s.plan.Duration * 4 / 5)}
	crowd.soldOut = supply.soldOut
	attacks := Attacks()
	tally := newTally(attacks)
	watcher := &watcher{cluster: s.cluster, item: hotItem}
	limited, end := context.WithCancel(x)
	var beside sync.WaitGroup
	beside.Go(func() { watcher.run(limited) })
	target := s.target(crowd)
	for number := range s.plan.Connections {
		from := newAttacker(target, s.plan.Seed, uint64(number), loopback(2, number%s.plan.Addresses))
		beside.Go(func() { s.attack(limited, from, newSchedule(attacks, number), tally) })
	}
	r.Hostile = crowd.run(x, hotItem, s.plan.Duration)
	end()
	beside.Wait()
	crowd.soldOut = nil
	r.Attacks, r.Samples, r.Pages, r.Restocks = tally.figures, watcher.samples, watcher.pages, supply.restocks
	r.RestockFailures, r.stolen = supply.failures, tally.orders
	x.Must(context.Cause(x))
}

func (s *stage) attack(ctx context.Context, a *attacker, plan *schedule, tally *tally) {
	defer a.close()
	period := time.Duration(float64(time.Second) * float64(s.plan.Connections) / s.plan.Rate)
	due := time.Now().Add(time.Duration(a.Int64N(int64(period))))
	for sleepUntil(ctx, due) {
		n := plan.next(a)
		outcomes := plan.attacks[n].do(ctx, a)
		if ctx.Err() != nil {
			return // the end of the run has interrupted it
		}
		tally.add(n, outcomes)
		due = due.Add(period)
		if now := time.Now(); due.Before(now) {
			due = now
		}
	}
}

// supply restocks the hot item while the attack goes on: it sells out more than once.
type supply struct {
	stage *stage
	units int64
	until time.Time

	mu       sync.Mutex
	last     time.Time
	restocks int
	failures []string
}

// soldOut restocks where that is not too soon or too late. Where the key of the restock
// cannot be used, it is a failure of the shop, and the sale goes on under another one.
func (s *supply) soldOut(ctx context.Context, item int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.until) || now.Sub(s.last) < time.Second {
		return
	}
	s.last = time.Now()
	key := restockKey(s.restocks + len(s.failures))
	_, err := s.stage.cluster.Client().Shop().Restock(ctx, item, s.units, key)
	if err != nil {
		s.failures = append(s.failures, fmt.Sprintf("under %s: %v", key, err))
		_, err = s.stage.cluster.Client().Shop().Restock(ctx, item, s.units, "")
	}
	if err == nil {
		s.restocks++
	}
}

// restockKey is the key of a restock, which an attacker can guess.
func restockKey(n int) string { return fmt.Sprintf("restock-%d", n) }
