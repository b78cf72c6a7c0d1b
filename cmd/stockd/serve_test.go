package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// A bench says how fast a replica sells, and why it cannot be measured where it cannot.
func TestABenchOfAReplica(t *testing.T) {
	public, path := startReplica(t).URL, filepath.Join(t.TempDir(), "bench.json")
	for _, args := range [][]string{
		{"--requests", "200", "--clients", "8"},
		{"--duration", "500ms", "--rate", "200", "--clients", "8"},
	} {
		succeeds(t, append([]string{"bench", "--url", public, "--strategy", "sql-conditional", "--json", path}, args...)...)
		run := cmdtest.ReadReport(t, path).Runs[0]
		if !run.Clean || run.Requests < 90 || run.Answered == 0 || run.P99 <= 0 || run.Replicas != 1 {
			t.Errorf("bench %v: %+v", args, run)
		}
	}
	status, _, errOut := stockd("bench", "--url", public, "--strategy", "hope")
	if status != cli.Usage || !strings.Contains(errOut, "sql-conditional") {
		t.Errorf("bench of an unknown strategy: exit status %d, %q", status, errOut)
	}
	status, _, errOut = stockd("bench", "--url", public, "--strategy", "redis-lua")
	if status != cli.Failure || errOut != "stockd: redis-lua cannot sell here: redis: not configured\n" {
		t.Errorf("bench of a strategy without its server: exit status %d, %q", status, errOut)
	}
	status, _, errOut = stockd("bench", "--url", public, "--goods", "7")
	if status != cli.Failure || !strings.HasPrefix(errOut, "stockd: Unknown item") {
		t.Errorf("bench of unknown goods: exit status %d, %q", status, errOut)
	}
}

// The first interrupt lets a replica drain, and a second one ends the process.
func TestASecondInterruptEndsAReplica(t *testing.T) {
	r := startReplica(t, "--http-drain-delay=1h")
	interrupt := func() error { return r.Process.Process.Signal(syscall.SIGINT) }
	must.Do(t, interrupt())
	labtest.Await(t, "the drain", 20*time.Second, func() bool {
		return cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/readyz")).Status == http.StatusServiceUnavailable
	})
	go func() { // the first one is still caught for a moment after the drain has begun
		for interrupt() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}()
	defer time.AfterFunc(20*time.Second, func() { _ = r.Process.Process.Kill() }).Stop() // it may be gone
	r.Exit(t)
	if status, ok := r.Process.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ends with %v", r.Process.ProcessState)
	}
}

// Every secret is set and every backend is down: whatever fails, and however it says
// so, says nothing of a secret.
func TestTheLogNamesRequestsAndTellsNoSecret(t *testing.T) {
	secrets := map[string]string{"admin": cmdtest.Token}
	var keys []string
	for key := range new(config.Config).Secrets() {
		if key != "admin.token" && key != "buyer.secret" { // the first is in use, and with the other no purchase would reach a backend
			keys = append(keys, config.FlagOf(key))
		}
	}
	flags := slices.Grow([]string{
		"--log-level=debug", "--log-format=json", "--lock-wait=300ms", "--redis-timeout=100ms", "--trace-sample=1",
		"--trace-endpoint=http://127.0.0.1:1", "--redis-addresses=127.0.0.1:1", "--redis-username=stockd",
		"--redlock-addresses=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--zookeeper-addresses=127.0.0.1:1",
		"--etcd-endpoints=http://127.0.0.1:1", "--etcd-username=stockd", "--redis-master=shop",
	}, len(keys))
	folder := t.TempDir()
	for _, key := range keys {
		secrets[key] = "stockd:secret-of-" + key
		path := filepath.Join(folder, key)
		must.Do(t, os.WriteFile(path, []byte(secrets[key]), 0o600))
		flags = append(flags, "--"+key+"-file="+path)
	}
	r := startReplica(t, flags...)
	known := must.Get(r.Strategies(t.Context()))(t)
	const bought = "bought-by-name-"
	for _, s := range known {
		request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1&strategy="+s.Name)
		request.Header.Set("X-Request-ID", bought+s.Name)
		cmdtest.Do(request)
	}
	for _, token := range []string{cmdtest.Token, "a-wrong-token-of-a-stranger"} {
		request := cmdtest.Ask(t, http.MethodPost, r.AdminURL+"/goods?goods_id=none")
		request.Header.Set("Authorization", "Bearer "+token)
		cmdtest.Do(request)
	}
	secrets["wrong token"] = "a-wrong-token-of-a-stranger"
	r.Terminate(t)
	r.Exit(t)

	log := r.Log.String()
	for name, secret := range secrets {
		if strings.Contains(log, strings.TrimPrefix(secret, "stockd:")) {
			t.Errorf("the log tells the secret %s", name)
		}
	}
	lines := make(map[string]int)
	failures := 0
	for line := range strings.Lines(log) {
		var said struct {
			Message string `json:"msg"`
			Request string `json:"request_id"`
			Trace   string `json:"trace_id"`
			Path    string `json:"path"`
		}
		should.Fail(t, json.Unmarshal([]byte(line), &said), nil, "a line is no JSON: …", line)
		if said.Path != "" && (said.Request == "" || said.Trace == "") {
			t.Errorf("a line of a request does not tell which: %s", line)
		}
		if said.Message == "request failed" {
			failures++
		}
		lines[said.Request]++
	}
	for _, s := range known {
		if lines[bought+s.Name] == 0 {
			t.Errorf("the log does not name the purchase by %s", s.Name)
		}
	}
	if failures < 10 {
		t.Errorf("only %d requests failed, and every backend was down", failures)
	}
}

// A replica that answers, and is not ready, is not healthy.
func TestHealthIsReadiness(t *testing.T) {
	for status, want := range map[int]int{http.StatusOK: cli.OK, http.StatusServiceUnavailable: cli.Failure, http.StatusNoContent: cli.Failure} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/readyz" {
				t.Errorf("asked for %s %s", r.Method, r.URL)
			}
			w.WriteHeader(status)
		}))
		got, _, errOut := stockd("healthcheck", "--http-listen", strings.TrimPrefix(s.URL, "http://"))
		should.Be(t, got, want, status, "exit status", errOut)
		s.Close()
	}
	for listen, want := range map[string]string{":8080": "localhost:8080", "0.0.0.0:1": "localhost:1", "[::]:1": "localhost:1", "10.0.0.1:1": "10.0.0.1:1", "shop:1": "shop:1"} {
		should.Be(t, nearby(listen), want, listen)
	}
}

// A replica that does not answer is not healthy: the check of a container gets its answer in time.
func TestAReplicaThatDoesNotAnswerIsNotHealthy(t *testing.T) {
	t.Parallel() // it waits
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	if got, _, errOut := stockd("healthcheck", "--http-listen", address, "--admin-listen", address, "--admin-token", cmdtest.Token); got != cli.Failure || !strings.Contains(errOut, "deadline exceeded") {
		t.Errorf("exit status %d, %q; want %d after %s", got, errOut, cli.Failure, readyWithin)
	}
}

// Each row is what an item has at each look, and what becomes of the run.
func TestASupplyRestocksWhatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		restock    bool
		stock      []int64 // of the item
		more       []bool
		restocked  int64
		goneAndSay string
	}{
		"gone":                       {false, []int64{0}, []bool{false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"some came back":             {false, []int64{3, 0}, []bool{true, false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"what is left is not sold":   {false, []int64{3, 3}, []bool{true, false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"restocked":                  {true, []int64{0, 0}, []bool{true, true}, 2 * unitsPerRestock, "a; restocked with 200000 units"},
		"restocked when it was gone": {true, []int64{3, 0}, []bool{true, true}, unitsPerRestock, "a; restocked with 100000 units"},
	} {
		looks, restocks := 0, int64(0)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/goods/7/restock" {
				restocks++
			}
			fmt.Fprintf(w, `{"goods_id": 7, "stock": %d}`, c.stock[min(looks, len(c.stock)-1)]) //nolint:errcheck // the client notices
		}))
		of := supply{client: client.Client{URL: s.URL, AdminURL: s.URL}, goodsID: 7, restock: c.restock}
		for _, want := range c.more {
			should.Be(t, must.Get(of.soldOut(t.Context()))(t), want, "… at look …: more", name, looks+1)
			looks++
		}
		if note := of.note([]string{"", "a"}, 2*time.Millisecond+time.Microsecond); of.restocked != c.restocked || restocks != c.restocked/unitsPerRestock || note != c.goneAndSay {
			t.Errorf("%s: restocked with %d in %d requests, %q; want %d, %q", name, of.restocked, restocks, note, c.restocked, c.goneAndSay)
		}
		s.Close()
	}
}

// Each user buys as much as the limit allows, and no run has the users of another one.
func TestUsersOfABenchHaveTheirLimit(t *testing.T) {
	if buyers(load.Plan{}, 0) != nil || buyers(load.Plan{BuyerToken: func() string { return "t" }}, 2) != nil {
		t.Error("there are users where there is no limit, or a token names the buyer")
	}
	next, other, bought := buyers(load.Plan{}, 2), buyers(load.Plan{}, 2), make(map[string]int)
	for range 100 {
		bought[next()]++
	}
	for user, n := range bought {
		if n != 2 || len(user) > 64 {
			t.Errorf("%s buys %d times, want 2", user, n)
		}
	}
	if len(bought) != 50 || bought[other()] != 0 {
		t.Errorf("%d users buy 100 units, want 50 that are this run's", len(bought))
	}
}

func TestWhatABenchExpectsOfAStrategy(t *testing.T) {
	within, across := client.Strategy{Claims: client.Claims{ExclusiveInProcess: true}}, client.Strategy{Claims: client.Claims{ExclusiveAcrossReplicas: true}}
	for _, c := range []struct {
		s    client.Strategy
		run  verdict.Run
		want bool
	}{
		{within, verdict.Run{Replicas: 1}, true},
		{within, verdict.Run{Replicas: 2}, false},
		{within, verdict.Run{Replicas: 2, Group: true}, false},
		{across, verdict.Run{Replicas: 2}, true},
		{client.Strategy{}, verdict.Run{Replicas: 1}, false},
		{client.Strategy{}, verdict.Run{Replicas: 1, Group: true}, true},
		{within, verdict.Run{}, true},
	} {
		should.Be(t, exclusive(c.s, c.run), c.want, c.s.Claims, c.run.Replicas, c.run.Group)
	}
	known := []client.Strategy{{Name: "a"}, {Name: "b"}}
	if list, err := pick(known, "b", "", "a"); err != nil || len(list) != 2 || list[0].Name != "b" {
		t.Errorf("picked %+v (%v)", list, err)
	}
	if _, err := pick(known, "a", "c"); err == nil || err.Error() != `"c" is not a strategy; there are a, b` {
		t.Errorf("an unknown one: %v", err)
	}
}

// A bench of which nothing came says what most of its requests got.
func TestABenchOfWhichNothingCame(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"type": "urn:stockd:problem:%s"}`, []string{"busy", "internal", "busy"}[n%3]) //nolint:errcheck // the client notices
	}))
	defer s.Close()
	_, err := runLoad(t.Context(), load.Plan{URL: s.URL, GoodsID: 1, Clients: 1, Requests: 6, Timeout: time.Second})
	if err == nil || err.Error() != "none of 6 requests was sold: 4 × busy" {
		t.Errorf("%v, want what most of them got", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	should.Be(t, must.Get(runLoad(ctx, load.Plan{URL: s.URL, GoodsID: 1, Clients: 1, Requests: 6, Timeout: time.Second}))(t).Sent, 0, "where none was sent")
}

// A replica that may open few files answers what it can, and rejects the rest: no client waits for a file.
func TestNoRequestWaitsForAFile(t *testing.T) {
	const buyers, limit = 200, 5 * time.Second
	r := cmdtest.StartWithFiles(t, "serve", 64)
	must.Do(t, r.CreateGoods(t.Context(), 1, buyers))
	var sold, busy, closed atomic.Int64
	var crowd sync.WaitGroup
	for range buyers {
		crowd.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: limit} // each has a connection, and keeps it
			response, err := client.Post(r.URL+"/deduct?goods_id=1", "", http.NoBody)
			switch {
			case os.IsTimeout(err):
				t.Error("a request was not answered")
			case err != nil:
				closed.Add(1)
			case response.StatusCode == http.StatusOK:
				sold.Add(1)
			case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "":
				busy.Add(1)
			default:
				t.Errorf("it answers %d", response.StatusCode)
			}
			if err == nil {
				t.Cleanup(func() { _ = response.Body.Close() })
			}
		})
	}
	crowd.Wait()
	if t.Logf("%d sold, %d busy, %d closed", sold.Load(), busy.Load(), closed.Load()); sold.Load() == 0 {
		t.Error("it has sold nothing")
	}
}
