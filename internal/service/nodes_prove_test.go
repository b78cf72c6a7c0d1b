//go:build prove

package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// How fast one hot item is sold where three replicas write to one node, and where each writes to a node of
// its own. It logs the rows of the table in docs/distributed-sql.md.
func TestProveAHotRowOnOneNodeAndOnThree(t *testing.T) {
	for _, cluster := range []struct {
		name  string
		start func(*testing.T) []*servers.Database
	}{{"Galera", lab.Galera}, {"Group Replication", lab.Group}} {
		t.Run(cluster.name, func(t *testing.T) {
			nodes := cluster.start(t)
			one, three := openOn(t, 0, nodes[0], nodes[0], nodes[0]), openOn(t, 0, nodes...)
			for i, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-bucket", "sql-bucket grouped", "sql-unit grouped"} {
				t.Log("|", cluster.name, "|", name, "|", compareNodes(t, one, three, name, int64(100*(i+1))), "|")
			}
		})
	}
}

// compareNodes returns the cells of a row: sales a second on one node and on three, and three to one.
func compareNodes(t *testing.T, one, three shop, name string, goods int64) string {
	t.Helper()
	const rounds = 3
	ofOne, ofThree, ratios := make([]float64, rounds), make([]float64, rounds), make([]float64, rounds)
	for i := range rounds {
		ofOne[i] = one.perSecond(t, name, goods+int64(2*i))
		ofThree[i] = three.perSecond(t, name, goods+int64(2*i)+1)
		ratios[i] = ofThree[i] / ofOne[i]
	}
	return fmt.Sprintf("%s | %s | %.2f (%.2f–%.2f)", humanize.Comma(int64(bench.Median(ofOne))), humanize.Comma(int64(bench.Median(ofThree))),
		bench.Median(ratios), slices.Min(ratios), slices.Max(ratios))
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

func TestProveEveryOtherPairSellsAllThatIsLeft(t *testing.T) {
	eachPair(t, isOther, sellsAllThatIsLeft)
}

func TestProveEveryOtherPairSellsAtTheSameTime(t *testing.T) {
	eachPair(t, isOther, sellsAtTheSameTime)
}

func isOther(first, second string) bool { return !isElsewhere(first, second) }
