package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
)

// Two replicas share a lock that is not renewed; the first is held, or killed, between its read and its write, and
// the second sells meanwhile. What they record and what the ledger has agree.
func TestFailpointsOfAReplica(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	const ttl = time.Second
	l := startLabOf(t, servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None}, shop.Replicas{
		Count: 2, Lab: true, Env: []string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=5ms"},
	})
	unresponsive := failpoint.Fault{Do: failpoint.Hold, For: ttl * 3 / 2, IgnoreCancel: true}
	for _, c := range []struct {
		name, modifier string
		fault          failpoint.Fault
		mark           string
		want           string // how the first is answered: its problem; empty: it sells
		sold, lost     int64
	}{
		{name: "held until its lease is lost", fault: failpoint.Fault{Do: failpoint.Hold, For: time.Minute}, mark: failpoint.Held, want: "lease-lost", sold: 1},
		{name: "unresponsive", fault: unresponsive, mark: failpoint.Held, sold: 2, lost: 1},
		{name: "unresponsive, and fenced", modifier: "&fence=true", fault: unresponsive, mark: failpoint.Held, want: "fenced", sold: 1},
		{name: "killed", fault: failpoint.Fault{Do: failpoint.Crash}, mark: failpoint.Killed, want: noAnswer, sold: 1}, // the last
	} {
		t.Run(c.name, func(t *testing.T) {
			from, goods := time.Now(), l.create(t, 100)
			c.fault.GoodsID, c.fault.Strategy = goods, "redis-lua"
			must.Do(t, l.cluster.ClientOf(0).SetFault(t.Context(), c.fault))
			recorded := func() *history.History {
				h := must.Get(history.Read(l.cluster.Replicas[0].History(), l.cluster.Replicas[1].History()))(t)
				h.Marks = slices.DeleteFunc(h.Marks, func(m history.Mark) bool { return m.At.Before(from) })
				h.Leases = slices.DeleteFunc(h.Leases, func(l history.Lease) bool { return l.Asked.Before(from) })
				return h
			}
			buy := func(replica int) <-chan string {
				answered := make(chan string, 1)
				go func() { answered <- l.outcome(t, replica, goods, c.modifier) }()
				return answered
			}
			first := buy(0)
			cmdtest.Await(t, "the mark of the fault", 5*time.Second, func() bool {
				return slices.ContainsFunc(recorded().Marks, func(m history.Mark) bool { return m.Who == "replica-1" && m.What == c.mark })
			})
			if got := <-buy(1); got != "" {
				t.Errorf("the next holder is answered with %q", got)
			}
			if got := <-first; got != c.want {
				t.Errorf("the first is answered with %q, want %q", got, c.want)
			}
			audit, err := l.cluster.ClientOf(1).Audit(t.Context(), goods)
			if err != nil || audit.Sold != c.sold || audit.Lost != c.lost || audit.Clean != (c.lost == 0) {
				t.Errorf("the audit is %+v (%v)", audit, err)
			}
			leases := recorded().Leases
			if len(leases) != 2 || leases[0].Holder != "replica-1" || leases[1].Holder != "replica-2" || leases[1].Lock != "redis-lua" {
				t.Fatalf("leases are %+v, want one of each replica", leases)
			}
			if lost := !leases[0].Lost.IsZero(); lost != (c.mark == failpoint.Held) {
				t.Errorf("the loss of the first lease is recorded: %v", lost)
			}
			if c.fault.IgnoreCancel && !leases[1].Granted.Before(leases[0].Released) {
				t.Errorf("the leases do not overlap: %+v", leases)
			}
			if ended := !leases[0].End().IsZero(); ended != (c.mark != failpoint.Killed) {
				t.Errorf("the end of the first lease is recorded: %v", ended)
			}
		})
	}
	must.Do(t, l.cluster.Replicas[0].Start(t.Context()))
	if got := l.outcome(t, 0, l.create(t, 1), ""); got != "" {
		t.Errorf("the replica that was killed and started again answers with %q", got)
	}
}

// noAnswer is the outcome of a purchase whose replica died.
const noAnswer = "no answer"

// outcome has a replica sell one unit under a lock, and returns the problem; empty where it sells.
func (l testLab) outcome(t *testing.T, replica int, goods int64, modifier string) string {
	t.Helper()
	url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=redis-lua%s", l.cluster.Replicas[replica].URL, goods, modifier)
	switch got := cmdtest.Do(cmdtest.Ask(t, http.MethodPost, url)); got.Status {
	case 0:
		return noAnswer
	case http.StatusOK:
		return ""
	default:
		return got.Kind
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

// process is a stocklab replica in a process of its own.
type process struct{ cmdtest.Replica }

// startReplica starts one with failpoints and further flags.
func startReplica(t *testing.T, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartReplica(t, "replica", append([]string{"--lab-enabled=true"}, flags...)...)}
}

// hold has the next purchases of goods 1 through a strategy wait in the middle,
// and buys so often; it returns when all of them do wait.
func (r process) hold(t *testing.T, strategy string, purchases int, hold time.Duration) (answered []<-chan cmdtest.Answer) {
	t.Helper()
	must.Do(t, r.SetFault(t.Context(), failpoint.Fault{Do: failpoint.Hold, Strategy: strategy, For: hold, Times: int64(purchases)}))
	for range purchases {
		answered = append(answered, r.Buying(t, "goods_id=1&strategy="+strategy))
	}
	cmdtest.Await(t, "purchases to be held", 10*time.Second, func() bool {
		faults, err := r.Faults(t.Context())
		return err == nil && faults[len(faults)-1].Reached == int64(purchases)
	})
	return answered
}

// First readiness fails while all requests are still served; then new ones are rejected; then
// those in flight get their answers, and nothing is left locked.
func TestAReplicaDrainsInOrder(t *testing.T) {
	r := startReplica(t, "--http-drain-delay=1s", "--http-drain=10s")
	held := r.hold(t, "sql-insert-lock", 1, 2500*time.Millisecond)[0]
	if left := r.LocksLeft(t); left != 1 {
		t.Fatalf("%d locks are held in mid-sale, want 1", left)
	}
	r.Terminate(t)
	cmdtest.Await(t, "/readyz to say so", 900*time.Millisecond, func() bool { return cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/readyz")).Kind == "stopping" })
	if got := r.Buy(t, "goods_id=1"); got.Status != http.StatusOK || !got.Close {
		t.Errorf("during the delay a purchase is answered with %d %s, closed: %v", got.Status, got.Text, got.Close)
	}
	cmdtest.Await(t, "the listener to close", 5*time.Second, func() bool { return r.Buy(t, "goods_id=1").Status == 0 })
	select {
	case got := <-held:
		t.Fatalf("the purchase in flight was answered already, with %d %s", got.Status, got.Text)
	default:
	}
	if got := <-held; got.Status != http.StatusOK {
		t.Errorf("the purchase in flight is answered with %d %s", got.Status, got.Text)
	}
	if status := r.Exit(t); status != cli.OK {
		t.Errorf("exit status %d, want %d", status, cli.OK)
	}
	if left := r.LocksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}

// A purchase that would take too long is given up, and its lock with it.
func TestARequestThatOutlastsTheDrainIsCancelled(t *testing.T) {
	r := startReplica(t, "--http-drain=300ms", "--deduct-timeout=1m")
	held := slices.Concat(r.hold(t, "sql-insert-lock", 1, time.Minute), r.hold(t, "naive", 1, time.Minute))
	start := time.Now()
	r.Terminate(t)
	for _, answered := range held {
		if got := <-answered; got.Status != http.StatusServiceUnavailable || got.Kind != "busy" {
			t.Errorf("it is answered with %d %s", got.Status, got.Text)
		}
	}
	if status := r.Exit(t); status != cli.Failure || !r.Log.Contains("http.drain (300ms)") {
		t.Errorf("exit status %d, want %d and the reason", status, cli.Failure)
	}
	if took := time.Since(start); took > 300*time.Millisecond+4*time.Second {
		t.Errorf("it took %s", took)
	}
	if left := r.LocksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}
