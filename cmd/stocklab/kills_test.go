package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// killed is a strategy and what is killed while it sells, in turn.
type killed struct {
	strategy string
	beside   []string // further strategies that sell the same item, purchase by purchase
	group    bool
	items    int    // that are sold at the same time; 0 is one
	modifier string // a further one of the request, such as fence=true
	victims  []string
}

// of is the strategy of a purchase.
func (k killed) of(n int) string {
	if n %= 1 + len(k.beside); n > 0 {
		return k.beside[n-1]
	}
	return k.strategy
}

func (k killed) String() string {
	name := strings.Join(append([]string{k.strategy}, k.beside...), " ")
	if k.group {
		name += " grouped"
	}
	if k.items > 1 {
		name += fmt.Sprintf(" %d items", k.items)
	}
	return strings.TrimSpace(name + " " + k.modifier)
}

func redisStockKilled() killed {
	return killed{strategy: "redis-stock", victims: []string{"database", "replica", "redis"}}
}

// groupedAndKilled is a strategy with its purchases grouped. The Redis of a lock is
// left alone: one that loses its memory has two holders.
func groupedAndKilled(strategy string) killed {
	return killed{strategy: strategy, group: true, victims: []string{"replica", "database"}}
}

// manyItemsAndKilled sells several items in one transaction.
func manyItemsAndKilled(strategy string) killed {
	k := groupedAndKilled(strategy)
	k.items = 20
	return k
}

// fencedAndKilled is a strategy that reads, computes and writes, with its writes fenced.
func fencedAndKilled() killed {
	return killed{strategy: "redis-reentrant", group: true, modifier: "fence=true", victims: []string{"replica", "redis", "database"}}
}

// movingAndKilled moves the units between the row, buckets, unit rows and Redis all the time, so
// that kills come in the middle of recalls.
func movingAndKilled() killed {
	return killed{strategy: "redis-stock", beside: []string{"sql-conditional", "sql-bucket", "sql-unit"}, victims: []string{"replica", "redis", "database"}}
}

// One kill of each kind, in the middle of a sale; the proof makes fifty.
func TestSalesSurviveKills(t *testing.T) {
	t.Parallel()
	surviveKills(t, servers.MariaDB, 3, redisStockKilled(), groupedAndKilled("sql-conditional"), manyItemsAndKilled("sql-conditional"), fencedAndKilled(), movingAndKilled())
}

// surviveKills sells one goods after the other through three replicas, and kills
// a replica with its queues and consumers, the Redis, or the database at a random
// moment of each sale. Redis keeps its data on its disk. Never may more be sold than
// there was; every answered order must be in the ledger in the end, and every unit
// sold, with those that are restocked meanwhile.
func surviveKills(t *testing.T, database string, rounds int, subjects ...killed) {
	t.Helper()
	l, server, store := startToKill(t, database)
	goods := int64(0)
	for _, subject := range subjects {
		t.Run(subject.String(), func(t *testing.T) {
			var again, replayed int
			for round := range rounds {
				sale := &killedSale{
					lab: l, redis: server, store: store, subject: subject, goods: goods + 1, units: 1500,
					victim: subject.victims[round%len(subject.victims)], reported: make(map[string]string),
				}
				goods += sale.items()
				t.Run(fmt.Sprintf("%d-%s", round+1, sale.victim), sale.run)
				again, replayed = again+sale.again, replayed+sale.replayed
			}
			t.Logf("%d kills: %d times a buyer without an answer asked again, %d times its order was there already", rounds, again, replayed)
			if again == 0 {
				t.Error("no kill came in the middle of anything")
			}
		})
	}
}

// startToKill starts three replicas on a Redis that keeps its data, and opens their store.
func startToKill(t *testing.T, database string) (l testLab, server *servers.Redis, store *repo.Store) {
	t.Helper()
	cmdtest.NeedLocal(t)
	cmdtest.NeedDatabase(t, database)
	cmdtest.NeedRedis(t)
	server, err := servers.StartDurableRedis(t.Context(), labtest.StartSupervisor(t))
	if err != nil {
		t.Fatal(err)
	}
	l = startLabOf(t,
		servers.Choice{Mode: servers.Local, Database: database, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
		cluster.Options{Replicas: 3, Env: append(server.Env(), "STOCKD_LOCK_TTL=2s")})
	store, err = l.database.Open(t.Context(), "test", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // the test is over
	return l, server, store
}

// killedSale is one sale in the middle of which something is killed.
type killedSale struct {
	lab     testLab
	redis   *servers.Redis
	store   *repo.Store
	subject killed
	victim  string
	goods   int64 // the first of its items; the others follow
	units   int64 // of all

	mu       sync.Mutex
	reported map[string]string // order numbers by request id
	again    int               // requests that were sent again
	replayed int               // answers to them that had been given before
}

// kill ends the victim without a warning, and starts it again a moment later.
func (s *killedSale) kill(ctx context.Context) error {
	switch s.victim {
	case "replica":
		replica := s.lab.cluster.Replicas[rand.N(3)]
		if err := replica.Kill(ctx); err != nil {
			return err
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		return replica.Start(ctx)
	case "redis":
		return s.redis.Restart(ctx)
	default:
		if err := s.lab.database.Kill(ctx); err != nil {
			return err
		}
		return s.lab.database.Restart(ctx)
	}
}

func (s *killedSale) items() int64 { return int64(max(1, s.subject.items)) }

// item is the item of a purchase, or of a restock: all in turn.
func (s *killedSale) item(n int) int64 { return s.goods + int64(n)%s.items() }

func (s *killedSale) run(t *testing.T) {
	for n := range s.items() {
		if err := s.lab.cluster.Client().CreateGoods(t.Context(), s.goods+n, (s.units-restocks*restockUnits)/s.items()); err != nil {
			t.Fatal(err)
		}
	}
	var restocked sync.WaitGroup
	restocked.Go(func() { s.restock(t) })
	s.sell(t, s.kill)
	restocked.Wait()
	// Units that were kept back for orders whose fate Redis had forgotten are there
	// again when the ledger has them all: another buyer takes them.
	s.audit(t)
	s.buy(t, 24)
	audit := s.audit(t)
	if !audit.Clean || audit.Sold != s.units || audit.Orders != int64(len(s.reported)) {
		t.Errorf("%d orders reported, the audit is %+v", len(s.reported), audit)
	}
	if lost := s.lost(t); len(lost) > 0 {
		t.Errorf("%d orders that were reported are not in the ledger: %v", len(lost), lost)
	}
}

// What is added in the course of a sale, of its units.
const (
	restocks     = 10
	restockUnits = 50
)

// restock restocks through one replica after the other while others sell and
// something is killed. What is not answered is sent again under its key.
func (s *killedSale) restock(t *testing.T) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: authorized(s.lab.cluster.Client().Token)}
	end := time.Now().Add(saleWithin)
	for n := range restocks {
		for try := 0; ; try++ {
			url := fmt.Sprintf("%s/goods/%d/restock?quantity=%d", s.lab.cluster.Replicas[(n+try)%3].AdminURL, s.item(n), restockUnits)
			response, _, err := send(t, client, url, fmt.Sprintf("%d-restock-%d", s.goods, n))
			if err == nil && response.StatusCode == http.StatusOK {
				break
			}
			if time.Now().After(end) {
				t.Errorf("restock %d is not answered (%v)", n, err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(rand.N(80 * time.Millisecond))
	}
}

// authorized sends each request with a token.
type authorized string

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(a))
	return http.DefaultTransport.RoundTrip(r)
}

// lost are the requests whose buyers got an order that the ledger does not
// have.
func (s *killedSale) lost(t *testing.T) (lost []string) {
	t.Helper()
	orders, err := s.store.Orders(t.Context(), slices.Collect(maps.Keys(s.reported))...)
	if err != nil {
		t.Fatal(err)
	}
	for id, number := range s.reported {
		if orders[id].ID != number {
			lost = append(lost, id)
		}
	}
	return lost
}

// sell sells until nothing is left, and kills at a random moment.
func (s *killedSale) sell(t *testing.T, kill func(context.Context) error) {
	t.Helper()
	var buyers sync.WaitGroup
	for i := range 24 {
		buyers.Go(func() { s.buy(t, i) })
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	if err := kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	buyers.Wait()
}

// audit waits until nothing is pending, and sums up the items.
func (s *killedSale) audit(t *testing.T) stock.Audit {
	t.Helper()
	client := s.lab.cluster.Client()
	client.URL = s.lab.cluster.Replicas[0].URL
	all := stock.Audit{Clean: true}
	for n := range s.items() {
		one, err := client.Audit(t.Context(), s.goods+n)
		if err != nil {
			t.Fatal(err)
		}
		all.Sold, all.Orders, all.Stock = all.Sold+one.Sold, all.Orders+one.Orders, all.Stock+one.Stock
		all.Oversold, all.Lost, all.Clean = all.Oversold+one.Oversold, all.Lost+one.Lost, all.Clean && one.Clean
	}
	return all
}

// saleWithin bounds a sale, and with it the time for which a buyer asks again.
const saleWithin = 60 * time.Second

// buy buys one unit after the other until nothing is left, and retries under the same key where it
// gets no answer.
func (s *killedSale) buy(t *testing.T, buyer int) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	end := time.Now().Add(saleWithin)
	gone := make(map[int64]bool)
	for n := 0; int64(len(gone)) < s.items(); n++ {
		item := s.item(buyer + n)
		if gone[item] {
			continue
		}
		id := fmt.Sprintf("%d-%d-%d", s.goods, buyer, n)
		for try := 0; ; try++ {
			if time.Now().After(end) {
				t.Errorf("buyer %d has no answer for %s after %s", buyer, id, saleWithin)
				return
			}
			got := s.ask(t, client, s.lab.cluster.Replicas[(buyer+n+try)%3].URL, s.subject.of(n), item, id)
			if got.problem == "insufficient-stock" {
				gone[item] = true
				break
			}
			if got.order != "" {
				s.tell(id, got, try)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (s *killedSale) tell(id string, got reply, tries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported[id] = got.order
	s.again += tries
	if got.replayed {
		s.replayed++
	}
}

// reply is what a buyer receives. No order and no problem: the outcome is unknown.
type reply struct {
	order, problem string
	replayed       bool
}

func (s *killedSale) ask(t *testing.T, client *http.Client, url, strategy string, item int64, id string) reply {
	t.Helper()
	response, answer, err := send(t, client, fmt.Sprintf("%s/deduct?strategy=%s&group=%t&goods_id=%d&%s", url, strategy, s.subject.group, item, s.subject.modifier), id)
	if err != nil {
		return reply{}
	}
	order, _ := answer["order_id"].(string)
	kind, _ := answer["type"].(string)
	return reply{
		order: order, problem: strings.TrimPrefix(kind, handler.TypePrefix),
		replayed: response.Header.Get("Idempotency-Replayed") != "",
	}
}
