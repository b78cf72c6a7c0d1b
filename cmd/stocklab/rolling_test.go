package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
)

// crowd is how many buy while the replicas are restarted.
const crowd = 64

// One of each kind, with the crowd between them; the proof has the whole crowd buy
// in one way after the other.
func TestARollingRestartCostsNobodyAnything(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	l := startRolling(t, servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None}, 3)
	strategies := []string{"sql-conditional", "redis-reentrant", "redis-stock"}
	ways := 2 * len(strategies)
	sales := make([]*rollingSale, 0, ways)
	for _, strategy := range strategies {
		for _, group := range []bool{false, true} {
			sales = append(sales, &rollingSale{strategy: strategy, group: group, clients: crowd / ways, goods: l.create(t, plenty)})
		}
	}
	l.sellOn(t, sales, func() { l.roll(t) })
}

// plenty is a stock that no sale here comes to the end of.
const plenty = 1_000_000

// startRolling starts replicas that are stopped as production.yaml has it, only
// faster. No pause of a busy machine makes them give up Redis.
func startRolling(t *testing.T, choice servers.Choice, replicas int) testLab {
	t.Helper()
	return startLabOf(t, choice, shop.Replicas{Count: replicas, Env: []string{"STOCKD_HTTP_DRAIN_DELAY=500ms", "STOCKD_HTTP_DRAIN=12s", "STOCKD_REDIS_TIMEOUT=4s"}})
}

// roll restarts one replica after the other: each is stopped, is gone, and is
// back before the next one's turn.
func (l testLab) roll(t *testing.T) {
	for _, replica := range l.cluster.Replicas {
		l.stop(t, replica)
		if err := replica.Start(t.Context()); err != nil {
			t.Error(err)
			return
		}
	}
}

// stop ends a replica as a deployment does, and waits until it is gone.
func (l testLab) stop(t *testing.T, replica *shop.Replica) {
	t.Helper()
	if err := replica.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
		return
	}
	select {
	case <-replica.Done():
	case <-time.After(30 * time.Second):
		t.Errorf("%s has not stopped", replica.Name)
	}
}

// rollingSale is one strategy that sells meanwhile, through the balancer.
type rollingSale struct {
	strategy string
	group    bool
	clients  int
	goods    int64

	result   *load.Result
	mu       sync.Mutex
	reported map[string]string // order numbers by key
	unknown  []string          // why
}

func (s *rollingSale) String() string {
	return killed{strategy: s.strategy, group: s.group}.String()
}

// sellOn has all of the sales go on until something is done, and looks at them.
func (l testLab) sellOn(t *testing.T, sales []*rollingSale, deed func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sellers sync.WaitGroup
	for _, sale := range sales {
		sale.reported = make(map[string]string)
		sellers.Go(func() {
			should.Do(t, sale.sell(ctx, l.cluster.URL))
		})
	}
	deed()
	stop()
	sellers.Wait()
	store := must.Get(l.database.Open(t.Context(), "test", 2))(t)
	defer store.Close() //nolint:errcheck // it was only read
	for _, sale := range sales {
		t.Run(sale.String(), func(t *testing.T) { sale.check(t, l, store) })
	}
}

func (s *rollingSale) sell(ctx context.Context, url string) (err error) {
	number := make([]int, s.clients)
	s.result, err = load.Run(ctx, load.Plan{
		URL: url, Strategy: s.strategy, Group: s.group, GoodsID: s.goods,
		Clients: s.clients, Duration: 5 * time.Minute, Timeout: 30 * time.Second,
		Key: func(client int) string {
			number[client]++
			return fmt.Sprintf("%d-%d-%d", s.goods, client, number[client])
		},
		Observe: func(a load.Answer) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch a.Kind {
			case load.Sold:
				s.reported[a.Key] = a.Order
			case load.Unknown:
				s.unknown = append(s.unknown, fmt.Sprintf("after %s: %s", a.End.Sub(a.Start), a.Why))
			case load.Rejected, load.Failed:
			}
		},
	})
	return err
}

// check wants every request answered with a sale or with busy, and the ledger to
// have the sales that were reported, each once, and no other.
func (s *rollingSale) check(t *testing.T, l testLab, store *repo.Store) {
	r := s.result
	t.Logf("%d requests: %d sold, %v", r.Sent, r.Sold, r.Errors)
	if failed := r.Sent - r.Sold - r.Rejected - r.Errors["busy"]; failed > 0 {
		t.Errorf("%d requests failed: %d with an unknown outcome, %v\n%s", failed, r.Unknown, r.Errors, strings.Join(s.unknown, "\n"))
	}
	if len(r.Replicas) != len(l.cluster.Replicas) || r.Duplicates > 0 {
		t.Errorf("%v sold, and %d orders were given to two buyers", r.Replicas, r.Duplicates)
	}
	audit := must.Get(l.cluster.Client().Audit(t.Context(), s.goods))(t)
	if !audit.Clean || audit.Orders != int64(len(s.reported)) || audit.Stock != plenty-audit.Sold {
		t.Errorf("%d sales reported, the audit is %+v", len(s.reported), audit)
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(s.reported)), 1000) {
		orders := must.Get(store.Orders(t.Context(), keys...))(t)
		for _, key := range keys {
			if orders[key].ID != s.reported[key] || orders[key].Quantity != 1 {
				t.Errorf("%s got order %s, the ledger has %+v", key, s.reported[key], orders[key])
			}
		}
	}
}
