package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/keeper"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// One kill of each kind, in the middle of a sale; the proof makes fifty.
func TestRedisStockSurvivesKills(t *testing.T) { surviveKills(t, 3) }

// surviveKills sells one goods after the other through three replicas, and kills
// a replica with its consumers, the Redis, or the database at a random moment of
// each sale. Redis keeps its data on its disk. Never may more be sold than there
// was; every answered order must be in the ledger in the end, and every unit sold.
func surviveKills(t *testing.T, rounds int) {
	t.Helper()
	needLocal(t)
	k, err := keeper.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	server, err := servers.StartDurableRedis(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	l := startLabOf(t, servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
		cluster.Options{Replicas: 3, Env: append(server.Env(), "STOCKD_REDIS_STOCK_CLAIM_AFTER=1s", "STOCKD_DATABASE_CONNECT_TIMEOUT=1s")})
	store, err := l.database.Open(t.Context(), "test", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the test is over
	for round := range rounds {
		sale := &killedSale{lab: l, redis: server, store: store, goods: int64(round + 1), units: 1500}
		t.Run(fmt.Sprintf("%d-%s", round+1, sale.victim()), sale.run)
	}
}

// killedSale is one sale in the middle of which something is killed.
type killedSale struct {
	lab   testLab
	redis *servers.Redis
	store *repo.Store
	goods int64
	units int64

	mu   sync.Mutex
	told map[string]string // order numbers by request id
}

func (s *killedSale) victim() string {
	return []string{"database", "replica", "redis"}[s.goods%3]
}

// kill ends the victim without a warning, and starts it again a moment later.
func (s *killedSale) kill(ctx context.Context) error {
	switch s.victim() {
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

func (s *killedSale) run(t *testing.T) {
	s.told = make(map[string]string)
	if err := s.lab.cluster.Client().CreateGoods(t.Context(), s.goods, s.units); err != nil {
		t.Fatal(err)
	}
	var buyers sync.WaitGroup
	for i := range 24 {
		buyers.Go(func() { s.buy(t, i) })
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	if err := s.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	buyers.Wait()
	// Units that were kept back for orders whose fate Redis had forgotten are there
	// again when the ledger has them all: somebody else buys them.
	s.audit(t)
	s.buy(t, 24)
	audit := s.audit(t)
	if !audit.Clean || audit.Sold != s.units || audit.Orders != int64(len(s.told)) {
		t.Errorf("%d buyers were told, the audit is %+v", len(s.told), audit)
	}
	for id, number := range s.told {
		orders, err := s.store.Orders(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if orders[id].ID != number {
			t.Fatalf("request %s was told of order %s, the ledger has %+v", id, number, orders[id])
		}
	}
}

// audit waits until nothing is pending.
func (s *killedSale) audit(t *testing.T) stock.Audit {
	t.Helper()
	client := s.lab.cluster.Client()
	client.URL = s.lab.cluster.Replicas[0].URL
	audit, err := client.Audit(t.Context(), s.goods)
	if err != nil {
		t.Fatal(err)
	}
	return audit
}

// saleWithin bounds a sale, and with it the time for which a buyer asks again.
const saleWithin = 60 * time.Second

// buy buys one unit after the other until nothing is left. Whoever gets no answer
// asks again under his key.
func (s *killedSale) buy(t *testing.T, buyer int) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	end := time.Now().Add(saleWithin)
	for n := 0; ; n++ {
		id := fmt.Sprintf("%d-%d-%d", s.goods, buyer, n)
		for try := 0; ; try++ {
			if time.Now().After(end) {
				t.Errorf("buyer %d has no answer for %s after %s", buyer, id, saleWithin)
				return
			}
			order, soldOut := s.ask(client, s.lab.cluster.Replicas[(buyer+n+try)%3].URL, id)
			if soldOut {
				return
			}
			if order != "" {
				s.mu.Lock()
				s.told[id] = order
				s.mu.Unlock()
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// ask sends a purchase. No order, and not sold out: nobody knows.
func (s *killedSale) ask(client *http.Client, url, id string) (order string, soldOut bool) {
	request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s/deduct?strategy=redis-stock&goods_id=%d", url, s.goods), http.NoBody)
	if err != nil {
		return "", false
	}
	request.Header.Set("Idempotency-Key", id)
	response, err := client.Do(request)
	if err != nil {
		return "", false
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	var said struct {
		OrderID string `json:"order_id"`
		Type    string `json:"type"`
	}
	content, err := io.ReadAll(response.Body)
	if err != nil || json.Unmarshal(content, &said) != nil {
		return "", false
	}
	return said.OrderID, strings.HasSuffix(said.Type, ":insufficient-stock")
}
