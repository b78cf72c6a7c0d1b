package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
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
	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
)

// Three real replicas of this program on each kind of database in turn, behind
// nginx where the database is a server. The topics share them, in this order: the
// last one stops a replica. What has been seen with real servers is not looked at
// again with those that are there for a first look.
func TestACluster(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, from := range []servers.Mode{servers.Local, servers.Embedded} {
		t.Run(string(from), func(t *testing.T) {
			if from == servers.Local {
				cmdtest.NeedLocal(t)
			}
			ttl := "2s" // a holder that is killed keeps its lock for so long
			if from == servers.Embedded {
				ttl = "5s" // a renewal waits for SQLite's one writer, behind a hundred buyers
			}
			l := startLabOf(t, servers.Choice{Mode: from}, cluster.Options{Replicas: 3, Env: []string{
				"STOCKD_LOCK_TTL=" + ttl,
				"STOCKD_LOCK_RETRY=10ms", "STOCKD_LOCK_WAIT=45s", "STOCKD_DEDUCT_TIMEOUT=90s",
				"STOCKD_REDIS_TIMEOUT=5s", // the embedded one shares two processors with a hundred buyers
			}})
			l.seen = seen
			t.Run("TheBalancerTakesTurns", func(t *testing.T) { theBalancerTakesTurns(t, l) })
			t.Run("CopiesAreOneSale", func(t *testing.T) { eachStrategy(t, l, copiesAreOneSale) })
			t.Run("AStrategyIsSwitchedOffOnAll", func(t *testing.T) { aStrategyIsSwitchedOffOnAll(t, l) })
			t.Run("ABuyerGetsNoMoreThanTheLimit", func(t *testing.T) { eachStrategy(t, l, aBuyerGetsNoMoreThanTheLimit) })
			t.Run("AKilledReplicaDoesNotStopTheSale", func(t *testing.T) { aKilledReplicaDoesNotStopTheSale(t, l) })
			t.Run("AReplicaDrains", func(t *testing.T) { aReplicaDrains(t, l) })
		})
	}
}

// testLab is a cluster and what is under it.
type testLab struct {
	cluster  *cluster.Cluster
	database *servers.Database
	missing  map[string]string // why a backend is not there, by its name
	local    bool              // everything is there that this machine has
	goods    *atomic.Int64     // the last that was created
	seen     map[string]bool   // strategies that have been looked at with real servers
}

// create makes an item for one test.
func (l testLab) create(t testing.TB, units int64) (goods int64) {
	t.Helper()
	goods = l.goods.Add(1)
	if err := l.cluster.Client().CreateGoods(t.Context(), goods, units); err != nil {
		t.Fatal(err)
	}
	return goods
}

// startLabOf starts every backend of the choice that this machine has, and
// replicas on them.
func startLabOf(t testing.TB, choice servers.Choice, o cluster.Options) testLab {
	t.Helper()
	k := labtest.StartSupervisor(t)
	backends := startBackends(t, k, choice)
	o.Env = append(backends.Env(), o.Env...)
	return startCluster(t, k, backends, choice, o)
}

// startBackends starts every backend of the choice that this machine has.
func startBackends(t testing.TB, k *servers.Supervisor, choice servers.Choice) *servers.Backends {
	t.Helper()
	choice.Volatile = true
	backends, err := servers.StartBackends(t.Context(), k, choice, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backends.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return backends
}

// startCluster starts replicas, of which the options say how they reach the backends.
func startCluster(t testing.TB, k *servers.Supervisor, backends *servers.Backends, choice servers.Choice, o cluster.Options) testLab {
	t.Helper()
	o.Binary, o.Balancer, o.Embedded = os.Args[0], choice.Mode, backends.Database.Started == servers.Embedded
	c, err := cluster.Start(t.Context(), k, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return testLab{c, backends.Database, backends.Missing, choice.Mode == servers.Local, new(atomic.Int64), nil}
}

// eachStrategy runs a test for each strategy of the cluster.
func eachStrategy(t *testing.T, l testLab, test func(t *testing.T, l testLab, s service.Description)) {
	t.Helper()
	list, err := l.cluster.Client().Strategies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		t.Run(s.Name, func(t *testing.T) {
			l.need(t, s)
			test(t, l, s)
			if l.local && l.seen != nil {
				l.seen[s.Name] = true
			}
		})
	}
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

// need skips the test of a strategy whose backend is not on this machine, or
// fails it where the backend is required. A backend that is there and does not
// answer is a failure.
func (l testLab) need(t *testing.T, s service.Description) {
	t.Helper()
	if l.seen[s.Name] && !l.local && len(s.Needs) > 1 {
		t.Skip("it has been looked at with a real " + s.Needs[1])
	}
	for _, backend := range s.Needs {
		l.needBackend(t, backend)
	}
	switch {
	case s.Available:
	case l.local:
		t.Fatal(s.Note)
	default: // what it needs has no embedded form
		t.Skip(s.Note)
	}
}

func theBalancerTakesTurns(t *testing.T, l testLab) {
	url := fmt.Sprintf("%s/deduct?goods_id=%d", l.cluster.URL, l.create(t, 100))
	sold := make(map[string]int)
	for range 30 {
		_, answer := post(t, url, "")
		sold[fmt.Sprint(answer["replica"])]++
	}
	for _, r := range l.cluster.Replicas {
		if sold[r.Name] != 10 {
			t.Errorf("%s sold %d of 30: %v", r.Name, sold[r.Name], sold)
		}
	}
}

// copiesOf is how many copies of one purchase are sent at once. redis-getset may
// pause for a TTL at each handoff, and the balancer waits 17 s for an answer: it
// gets fewer.
func copiesOf(s service.Description) int {
	if s.Name == "redis-getset" {
		return 5
	}
	return 100
}

// Copies of one purchase arrive at three replicas at once.
func copiesAreOneSale(t *testing.T, l testLab, s service.Description) {
	goods := l.create(t, 100)
	url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=%s", l.cluster.URL, goods, s.Name)
	var mu sync.Mutex
	orders := make(map[string]int)
	var copies sync.WaitGroup
	for range copiesOf(s) {
		copies.Go(func() {
			status, answer := post(t, url, "checkout-"+s.Name)
			mu.Lock()
			defer mu.Unlock()
			orders[fmt.Sprint(status, answer["order_id"], answer["remaining"], answer["type"], answer["detail"])]++
		})
	}
	copies.Wait()
	audit, err := l.cluster.Client().Audit(t.Context(), goods)
	if err != nil || audit.Orders != 1 || audit.Stock != 99 || len(orders) != 1 {
		t.Errorf("%d orders, %d left (%v); the answers were %v", audit.Orders, audit.Stock, err, orders)
	}
}

// crashed are the locks whose holders die here, one of each backend.
var crashed = []string{"sql-insert-lock", "redis-reentrant", "zk-sequential", "etcd"}

// When a replica dies in the middle of a sale, the others sell on, and what was
// sold is true: that is the claim that a crash is survived. They die in turn.
func aKilledReplicaDoesNotStopTheSale(t *testing.T, l testLab) {
	turn := 0
	eachStrategy(t, l, func(t *testing.T, l testLab, s service.Description) {
		if s.Guarantees.Fenceable && !slices.Contains(crashed, s.Name) {
			t.Skip("one lock of each backend is enough here: locktest kills a holder of every lock")
		}
		if l.seen[s.Name] && !l.local && !s.Guarantees.ExclusiveAcrossReplicas {
			t.Skip("it guarantees nothing, and others sold on with real servers")
		}
		turn++
		sellWhileAReplicaDies(t, l, s, l.cluster.Replicas[turn%3])
	})
}

func sellWhileAReplicaDies(t *testing.T, l testLab, s service.Description, victim *cluster.Replica) {
	t.Helper()
	units, requests := int64(200), 450
	if s.Guarantees.Fenceable { // several round trips a sale
		units, requests = 100, 180
	}
	goods := l.create(t, units)
	result, err := load.Run(t.Context(), load.Plan{
		URL: l.cluster.URL, Strategy: s.Name, GoodsID: goods, Clients: 20, Requests: requests, Timeout: time.Minute,
		Progress: killOnce(t, victim, 30),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	audit, err := l.cluster.Client().Audit(t.Context(), goods)
	if err != nil {
		t.Fatal(err)
	}
	if audit.Orders < int64(result.Sold) || audit.Orders > int64(result.Sold+result.Unknown) {
		t.Errorf("%d orders, %d answers to buyers, %d unknown", audit.Orders, result.Sold, result.Unknown)
	}
	if s.Guarantees.ExclusiveAcrossReplicas && (!audit.Clean || s.Guarantees.SurvivesCrash && audit.Sold != units) {
		t.Errorf("guarantees to survive: %+v; %+v", audit, result)
	}
	if len(result.Replicas) < 2 || result.Sold < 60 {
		t.Errorf("the others did not sell on: %+v", result)
	}
}

// killOnce kills a replica when so many requests have been answered.
func killOnce(t *testing.T, victim *cluster.Replica, after int) func(answered int) {
	t.Helper()
	var once sync.Once
	return func(answered int) {
		if answered < after {
			return
		}
		once.Do(func() {
			if err := victim.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A replica that is stopped answers the requests that it has begun.
func aReplicaDrains(t *testing.T, l testLab) {
	if !l.local {
		t.Skip("an embedded database cannot be held in the middle of a purchase from here")
	}
	goods, replica := l.create(t, 100), l.cluster.Replicas[0]
	store, err := l.database.Open(t.Context(), "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the test is over
	var buyers sync.WaitGroup
	// While we hold the row, every purchase is in the middle of it.
	err = store.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.GoodsForUpdate(t.Context(), goods); err != nil {
			return err
		}
		for range 5 {
			buyers.Go(func() {
				if status, answer := post(t, fmt.Sprintf("%s/deduct?goods_id=%d", replica.URL, goods), ""); status != http.StatusOK {
					t.Errorf("a purchase that had begun is answered with %d %v", status, answer)
				}
			})
		}
		cmdtest.Await(t, "the purchases to begin", 5*time.Second, func() bool { return labtest.WaitingWriters(t, l.database) == 5 })
		if err := syscall.Kill(replica.Pid(), syscall.SIGTERM); err != nil {
			return err
		}
		cmdtest.Await(t, "the replica to take no more", 5*time.Second, func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(replica.URL, "http://"))
			if err == nil {
				conn.Close() //nolint:errcheck // it was only a look
			}
			return err != nil
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	buyers.Wait()
	if audit, err := store.Audit(t.Context(), goods); err != nil || audit.Orders != 5 {
		t.Errorf("the audit is %+v (%v), want 5 orders", audit, err)
	}
}

// The suite measures what can be measured without a server, and says what cannot.
func TestTheSuiteOnEmbeddedServers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	figures, drawn, redrawn := filepath.Join(folder, "f.json"), filepath.Join(folder, "f.svg"), filepath.Join(folder, "again.svg")
	status, out, errOut := stocklab("bench", "--quick", "--servers", "embedded", "--only", "^sql-(conditional|for-update)$",
		"--rounds", "1", "--each", "300ms", "--json", figures, "--chart", drawn)
	if status != cli.OK {
		t.Fatalf("exit status %d\n%s%s", status, out, errOut)
	}
	for _, want := range []string{"sql-conditional", "sql-for-update", "HTTP baseline", "redis-benchmark", "not measured", "grouped / alone", "durability of database"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	var read bench.Result
	content, err := os.ReadFile(figures)
	if err == nil {
		err = json.Unmarshal(content, &read)
	}
	if err != nil || read.Machine.Processors == 0 || read.Machine.Go == "" || len(read.Subjects) < 8 || read.Subjects[0].Median <= 0 {
		t.Errorf("the figures are %+v (%v)", read, err)
	}
	if status, _, errOut := stocklab("bench", "--chart-from", figures, "--chart", redrawn); status != cli.OK {
		t.Errorf("redraw: exit status %d, %s", status, errOut)
	}
	first, err := os.ReadFile(drawn)
	again, failed := os.ReadFile(redrawn)
	if err != nil || failed != nil || !bytes.Equal(first, again) || !bytes.Contains(first, []byte("sql-for-update")) {
		t.Errorf("the chart is not drawn, or not the same from its figures (%v, %v)", err, failed)
	}
}

// post buys. No answer fails the test.
func post(t *testing.T, url, key string) (status int, answer map[string]any) {
	t.Helper()
	response, answer, err := send(t, http.DefaultClient, url, key)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	return response.StatusCode, answer
}

// send buys, where an answer may not come. The body has been read.
func send(t *testing.T, client *http.Client, url, key string) (response *http.Response, answer map[string]any, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err = client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	return response, answer, json.NewDecoder(response.Body).Decode(&answer)
}
