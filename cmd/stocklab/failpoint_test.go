package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// faultTTL is how long a lock lasts whose holder is held, paused or killed here.
const faultTTL = time.Second

// Two replicas share a lock that is not renewed; the first has a fault between
// its read and its write.
func TestFailpointsOfAReplica(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None}, cluster.Options{
		Replicas: 2, Lab: true, Env: []string{"STOCKD_LOCK_TTL=" + faultTTL.String(), "STOCKD_LOCK_RETRY=5ms"},
	})
	for i, c := range []struct {
		name string
		test func(t *testing.T, v victim)
	}{
		{"held until its lease is lost", heldUntilLost},
		{"held, and unresponsive", heldAndUnresponsive},
		{"held, unresponsive, and fenced", heldUnresponsiveAndFenced},
		{"let go", letGo},
		{"paused", paused},
		{"killed", killedWhileHolding}, // the last: its replica is started anew
	} {
		t.Run(c.name, func(t *testing.T) {
			v := victim{testLab: l, goods: int64(i + 1), from: time.Now()}
			if err := l.cluster.Client().CreateGoods(t.Context(), v.goods, 100); err != nil {
				t.Fatal(err)
			}
			c.test(t, v)
		})
	}
}

// victim is the first replica, in the middle of a purchase of one item.
type victim struct {
	testLab
	goods int64
	from  time.Time
}

// bought is the answer to a purchase, or its failure.
type bought struct {
	status  int
	problem string
	err     error
}

// buy has a replica sell one unit.
func (v victim) buy(t *testing.T, replica int, modifier string) <-chan bought {
	t.Helper()
	url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=redis-lua%s", v.cluster.Replicas[replica].URL, v.goods, modifier)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan bought, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answered <- bought{err: err}
			return
		}
		defer response.Body.Close() //nolint:errcheck // it has been read
		var problem struct {
			Type string `json:"type"`
		}
		err = json.NewDecoder(response.Body).Decode(&problem)
		answered <- bought{response.StatusCode, problem.Type, err}
	}()
	return answered
}

// fault has the victim come to a fault, and returns when it has.
func (v victim) fault(t *testing.T, f failpoint.Fault, modifier, mark string) <-chan bought {
	t.Helper()
	f.GoodsID, f.Strategy = v.goods, "redis-lua"
	if err := v.cluster.ClientOf(0).SetFault(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	answered := v.buy(t, 0, modifier)
	cmdtest.Await(t, "the mark of the fault", 5*time.Second, func() bool { return v.marked(t, mark) })
	return answered
}

// history is what the replicas wrote down of this purchase.
func (v victim) history(t *testing.T) *history.History {
	t.Helper()
	h, err := history.Read(v.cluster.Replicas[0].History(), v.cluster.Replicas[1].History())
	if err != nil {
		t.Fatal(err)
	}
	return h.Window(v.from, time.Now())
}

func (v victim) marked(t *testing.T, what string) bool {
	t.Helper()
	for _, m := range v.history(t).Marks {
		if m.Who == "replica-1" && m.What == what {
			return true
		}
	}
	return false
}

func (v victim) audit(t *testing.T) stock.Audit {
	t.Helper()
	audit, err := v.cluster.ClientOf(1).Audit(t.Context(), v.goods)
	if err != nil {
		t.Fatal(err)
	}
	return audit
}

// overlap tells whether both replicas held the lock at once, by what they wrote
// down.
func (v victim) overlap(t *testing.T) bool {
	t.Helper()
	leases := v.history(t).Leases
	if len(leases) != 2 || leases[0].Holder != "replica-1" || leases[1].Holder != "replica-2" || leases[1].Lock != "redis-lua" {
		t.Fatalf("leases are %+v, want one of each replica", leases)
	}
	return leases[1].Granted.Before(leases[0].Released)
}

const longHold = faultTTL * 3 / 2

func heldUntilLost(t *testing.T, v victim) {
	held := v.fault(t, failpoint.Fault{Do: failpoint.Hold, For: time.Minute}, "", failpoint.Held)
	if list, err := v.cluster.ClientOf(0).Faults(t.Context()); err != nil || list[len(list)-1].Reached != 1 {
		t.Errorf("the admin API answers %+v (%v)", list, err)
	}
	if got := <-held; got.problem != handler.TypePrefix+"lease-lost" {
		t.Errorf("the holder that cmdtest.Answer of its loss is answered with %+v", got)
	}
	if audit := v.audit(t); audit.Sold != 0 || !audit.Clean {
		t.Errorf("the audit is %+v", audit)
	}
	if leases := v.history(t).Leases; len(leases) != 1 || leases[0].Lost.IsZero() {
		t.Errorf("leases are %+v, want one that was lost", leases)
	}
}

func heldAndUnresponsive(t *testing.T, v victim) {
	held := v.fault(t, failpoint.Fault{Do: failpoint.Hold, For: longHold, IgnoreCancel: true}, "", failpoint.Held)
	if got := <-v.buy(t, 1, ""); got.status != http.StatusOK {
		t.Errorf("the next holder is answered with %+v", got)
	}
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("the stale holder is answered with %+v", got)
	}
	if audit := v.audit(t); audit.Sold != 2 || audit.Lost != 1 {
		t.Errorf("the audit is %+v, want one of two updates lost", audit)
	}
	if !v.overlap(t) {
		t.Errorf("the leases do not overlap: %+v", v.history(t).Leases)
	}
}

func heldUnresponsiveAndFenced(t *testing.T, v victim) {
	held := v.fault(t, failpoint.Fault{Do: failpoint.Hold, For: longHold, IgnoreCancel: true}, "&fence=true", failpoint.Held)
	if got := <-v.buy(t, 1, "&fence=true"); got.status != http.StatusOK {
		t.Errorf("the next holder is answered with %+v", got)
	}
	if got := <-held; got.problem != handler.TypePrefix+"fenced" {
		t.Errorf("the stale holder is answered with %+v", got)
	}
	if audit := v.audit(t); audit.Sold != 1 || !audit.Clean {
		t.Errorf("the audit is %+v, want one clean sale", audit)
	}
}

func letGo(t *testing.T, v victim) {
	held := v.fault(t, failpoint.Fault{Do: failpoint.Hold, For: time.Minute}, "", failpoint.Held)
	if err := v.cluster.ClientOf(0).ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-held; got.status != http.StatusOK || !v.marked(t, failpoint.WentOn) {
		t.Errorf("the holder that was let go is answered with %+v", got)
	}
}

func paused(t *testing.T, v victim) {
	held := v.fault(t, failpoint.Fault{Do: failpoint.Pause, IgnoreCancel: true}, "", failpoint.Paused)
	if got := <-v.buy(t, 1, ""); got.status != http.StatusOK {
		t.Errorf("the next holder is answered with %+v", got)
	}
	select {
	case got := <-held:
		t.Errorf("a process that is stopped answers with %+v", got)
	default:
	}
	if err := syscall.Kill(v.cluster.Replicas[0].Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("the stale holder is answered with %+v", got)
	}
	if audit := v.audit(t); audit.Lost != 1 || !v.overlap(t) {
		t.Errorf("the audit is %+v, want a lost update; leases %+v", audit, v.history(t).Leases)
	}
}

func killedWhileHolding(t *testing.T, v victim) {
	died := v.fault(t, failpoint.Fault{Do: failpoint.Crash}, "", failpoint.Killed)
	if got := <-died; got.err == nil {
		t.Errorf("a process that was killed answers with %+v", got)
	}
	if got := <-v.buy(t, 1, ""); got.status != http.StatusOK {
		t.Errorf("the next holder is answered with %+v", got)
	}
	if audit := v.audit(t); audit.Sold != 1 || !audit.Clean {
		t.Errorf("the audit is %+v, want one clean sale", audit)
	}
	if leases := v.history(t).Leases; len(leases) != 2 || leases[0].Granted.IsZero() || !leases[0].End().IsZero() {
		t.Errorf("leases are %+v, want a first one that never ended", leases)
	}
	if err := v.cluster.Replicas[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-v.buy(t, 0, ""); got.status != http.StatusOK || len(v.history(t).Leases) != 3 {
		t.Errorf("the replica that was started again answers with %+v; leases %+v", got, v.history(t).Leases)
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
