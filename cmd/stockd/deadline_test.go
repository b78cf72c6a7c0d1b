package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
)

// The limits of the replicas of these tests.
const (
	deductTimeout = 1500 * time.Millisecond
	drainTime     = time.Second
	answerSlack   = time.Second     // after deduct.timeout
	exitSlack     = 4 * time.Second // after http.drain, of which two are for a slow machine
)

func shortLimits() []string {
	return []string{
		"STOCKD_DEDUCT_TIMEOUT=" + deductTimeout.String(), "STOCKD_HTTP_DRAIN=" + drainTime.String(),
		"STOCKD_LOCK_WAIT=1s", "STOCKD_DATABASE_LOCK_WAIT=1s", "STOCKD_REDIS_TIMEOUT=400ms", "STOCKD_LOCK_TTL=2s",
		"STOCKD_AUDIT_EVERY=1s", "STOCKD_AUDIT_TIMEOUT=1s",
	}
}

// frozen is a backend that is paused, and what is asked meanwhile.
type frozen struct {
	name          string
	pause, resume func(context.Context) error
	strategies    []string
	// reads tells that it is the database: then nothing can be read either.
	reads bool
}

// Whichever backend hangs: every request is answered in time, with what is known of
// it, and a replica that receives SIGTERM stops.
func TestAHungBackendHoldsUpNeitherRequestsNorTheExit(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	backends := must.Get(servers.StartBackends(t.Context(), labtest.StartSupervisor(t), servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Volatile: true}, func(string) {}))(t)
	for i, f := range []frozen{
		{"database", backends.Database.Pause, backends.Database.Resume, []string{
			"sql-conditional", "sql-procedure", "sql-for-update", "sql-insert-lock", "sql-row-lock", "redis-lua", "zk-sequential", "etcd", "redis-decr", "mutex",
		}, true},
		{"redis", backends.Redis.Pause, backends.Redis.Resume, []string{"redis-lua", "redis-reentrant", "redis-decr", "redis-stock"}, false},
		{"zookeeper", backends.ZooKeeper.Pause, backends.ZooKeeper.Resume, []string{"zk-sequential", "zk-ephemeral"}, false},
		{"etcd", backends.Etcd.Pause, backends.Etcd.Resume, []string{"etcd"}, false},
	} {
		t.Run(f.name, func(t *testing.T) { f.test(t, backends.Env(), int64(i+1)*100) })
	}
}

func (f frozen) test(t *testing.T, env []string, goods int64) {
	r := startReplicaWith(t, slices.Concat(env, shortLimits()))
	for i := range f.strategies {
		must.Do(t, r.CreateGoods(t.Context(), goods+int64(i), 1000))
	}
	// Connections and sessions are there when each has sold. A replica that begins may be busy.
	labtest.Await(t, "each strategy to sell", time.Minute, func() bool {
		for _, got := range r.ask(t, f.purchases(goods)) {
			if got.Status != http.StatusOK {
				return false
			}
		}
		return true
	})
	caught := r.keepAsking(t, f.purchases(goods)) // the pause catches some at every step of a sale
	time.Sleep(300 * time.Millisecond)
	must.Do(t, f.pause(t.Context()))
	for name, got := range caught() {
		if got.took > deductTimeout+answerSlack || got.Status == 0 {
			t.Errorf("%s, caught in the middle, is answered after %s with %d %s", name, got.took, got.Status, got.Text)
		}
	}
	defer func() {
		must.Do(t, f.resume(context.WithoutCancel(t.Context())))
	}()
	for range 2 { // on the connections that there are, and on new ones
		f.judge(t, r.ask(t, f.all(goods)))
	}
	leaving := make(chan map[string]timed)
	go func() { leaving <- r.ask(t, f.purchases(goods)) }()
	time.Sleep(200 * time.Millisecond) // they are in flight
	r.exitsInTime(t)
	<-leaving
}

// purchases are one of each strategy, alone and grouped.
func (f frozen) purchases(goods int64) map[string]string {
	list := make(map[string]string)
	for i, strategy := range f.strategies {
		for _, group := range []bool{false, true} {
			list[fmt.Sprintf("%s, group=%t", strategy, group)] = fmt.Sprintf(
				"POST /deduct?goods_id=%d&strategy=%s&group=%t", goods+int64(i), strategy, group)
		}
	}
	return list
}

// all are the other routes, too.
func (f frozen) all(goods int64) map[string]string {
	list := f.purchases(goods)
	if i := slices.Index(f.strategies, "redis-stock"); i >= 0 { // Redis is to be notified
		list["restock of redis-stock"] = fmt.Sprintf("POST admin/goods/%d/restock?quantity=1", goods+int64(i))
	}
	if f.reads {
		id := strconv.FormatInt(goods, 10)
		list["goods"] = "GET /goods/" + id
		list["audit"] = "GET /goods/" + id + "/audit"
		list["full audit"] = "GET admin/goods/" + id + "/audit?full=true"
		list["drift"] = "GET admin/goods/" + id + "/drift"
		list["restock"] = "POST admin/goods/" + id + "/restock?quantity=1"
		list["limit"] = "PATCH admin/goods/" + id + "?per_user=3"
		list["switch"] = "PUT admin/strategies/naive?enabled=true"
	}
	return list
}

func (f frozen) judge(t *testing.T, answers map[string]timed) {
	t.Helper()
	for name, got := range answers {
		if got.took > deductTimeout+answerSlack {
			t.Errorf("%s is answered after %s", name, got.took)
		}
		if !slices.Contains([]string{"backend-unavailable", "outcome-unknown", "busy"}, got.Kind) {
			t.Errorf("%s is answered with %d %s", name, got.Status, got.Text)
		}
		if isRead := slices.Contains([]string{"goods", "audit", "drift"}, name); isRead && got.Kind != "backend-unavailable" {
			t.Errorf("%s is answered with %s, want backend-unavailable", name, got.Text)
		}
	}
}

// timed is an answer and how long it took.
type timed struct {
	cmdtest.Answer
	took time.Duration
}

// ask sends requests at once, each "METHOD path", on the admin API where the path
// begins so.
func (r process) ask(t *testing.T, requests map[string]string) map[string]timed {
	t.Helper()
	var mu sync.Mutex
	var asking sync.WaitGroup
	answers := make(map[string]timed)
	for name, line := range requests {
		method, path, _ := strings.Cut(line, " ")
		url := r.URL + path
		if rest, ok := strings.CutPrefix(path, "admin"); ok {
			url = r.AdminURL + rest
		}
		request := cmdtest.Ask(t, method, url)
		request.Header.Set("Authorization", "Bearer "+cmdtest.Token)
		asking.Go(func() {
			start := time.Now()
			got := cmdtest.Do(request)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = timed{got, time.Since(start)}
		})
	}
	asking.Wait()
	return answers
}

// keepAsking sends each request again and again until caught is called, which returns
// the slowest answer to each.
func (r process) keepAsking(t *testing.T, requests map[string]string) (caught func() map[string]timed) {
	t.Helper()
	var mu sync.Mutex
	var asking sync.WaitGroup
	stop, slowest := make(chan struct{}), make(map[string]timed)
	for name, line := range requests {
		asking.Go(func() {
			for {
				got := r.ask(t, map[string]string{name: line})[name]
				mu.Lock()
				if got.took > slowest[name].took {
					slowest[name] = got
				}
				mu.Unlock()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	return func() map[string]timed {
		close(stop)
		asking.Wait()
		return slowest
	}
}

// exitsInTime has the replica stop, and fails where it takes longer than it may.
func (r process) exitsInTime(t *testing.T) {
	t.Helper()
	start := time.Now()
	r.Terminate(t)
	r.Exit(t)
	if took := time.Since(start); took > drainTime+exitSlack {
		t.Errorf("it exits after %s, want %s at most:\n%s", took, drainTime+exitSlack, r.Log.String())
	}
	if r.Log.Contains("exit forced") {
		t.Errorf("the exit was forced:\n%s", r.Log.String())
	}
}
