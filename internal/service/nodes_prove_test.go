//go:build prove

package service_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/stock"
)

// nodesMeasured is what docs/nodes.json has of a strategy: sales a second, and three nodes to one.
type nodesMeasured struct {
	Cluster  string  `json:"cluster"`
	Strategy string  `json:"strategy"`
	One      float64 `json:"one"`
	Three    float64 `json:"three"`
	Ratio    float64 `json:"ratio"`
	Least    float64 `json:"least"`
	Most     float64 `json:"most"`
}

// How fast one hot item is sold where three replicas write to one node, and where each writes to a node of
// its own: in turns, the medians of three rounds. The nodes share the processors of this machine. NODES is
// the file that the figures are written to.
func TestProveAHotRowOnOneNodeAndOnThree(t *testing.T) {
	var all []nodesMeasured
	for _, cluster := range []struct {
		name  string
		start func(*testing.T) []*servers.Database
	}{{"Galera", lab.Galera}, {"Group Replication", lab.Group}} {
		t.Run(cluster.name, func(t *testing.T) {
			nodes := cluster.start(t)
			one, three := openOn(t, 0, nodes[0], nodes[0], nodes[0]), openOn(t, 0, nodes...)
			for i, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-bucket", "sql-bucket grouped", "sql-unit grouped"} {
				m := compareNodes(t, one, three, name, int64(100*(i+1)))
				m.Cluster = cluster.name
				all = append(all, m)
				t.Logf("%+v", m)
			}
		})
	}
	if path := os.Getenv("NODES"); path != "" {
		if err := verdict.WriteJSON(path, all); err != nil {
			t.Fatal(err)
		}
	}
}

func compareNodes(t *testing.T, one, three shop, name string, goods int64) nodesMeasured {
	t.Helper()
	const rounds = 3
	ofOne, ofThree, ratios := make([]float64, rounds), make([]float64, rounds), make([]float64, rounds)
	for i := range rounds {
		ofOne[i] = one.perSecond(t, name, goods+int64(2*i))
		ofThree[i] = three.perSecond(t, name, goods+int64(2*i)+1)
		ratios[i] = ofThree[i] / ofOne[i]
	}
	return nodesMeasured{
		Strategy: name, One: bench.Median(ofOne), Three: bench.Median(ofThree),
		Ratio: bench.Median(ratios), Least: slices.Min(ratios), Most: slices.Max(ratios),
	}
}

// perSecond sells an item by 64 buyers for some seconds.
func (s shop) perSecond(t *testing.T, name string, goods int64) float64 {
	t.Helper()
	const lasts = 3 * time.Second
	s.create(t, goods, 100_000)
	ctx, end := context.WithTimeout(t.Context(), lasts)
	defer end()
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for i := range 64 {
		seller := s.strategy(t, i%len(s.replicas), name)
		buyers.Go(func() {
			for ctx.Err() == nil {
				// What is under way at the end is not counted.
				if outcome, err := seller.Deduct(context.WithoutCancel(ctx), goods, stock.Purchase{Quantity: 1}); err == nil && outcome.Rejected == nil && ctx.Err() == nil {
					sold.Add(1)
				}
			}
		})
	}
	buyers.Wait()
	if !labtest.Eventually(30*time.Second, func() bool {
		audit, err := s.inventory.AuditInFull(t.Context(), goods)
		return err == nil && audit.Clean && audit.Sold >= sold.Load()
	}) {
		t.Errorf("%s: item %d is not consistent", name, goods)
	}
	return float64(sold.Load()) / lasts.Seconds()
}
