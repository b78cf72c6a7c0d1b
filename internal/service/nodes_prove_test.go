//go:build prove

package service_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// How fast one hot item is sold where three replicas write to one node, and where each writes to a node of
// its own: sales a second, in turns, the median of the rounds. The nodes share the processors of this machine.
func TestProveAHotRowOnOneNodeAndOnThree(t *testing.T) {
	for kind, start := range map[string]func(*testing.T) []*servers.Database{"Galera": lab.Galera, "Group Replication": lab.Group} {
		t.Run(kind, func(t *testing.T) {
			nodes := start(t)
			one, three := openOn(t, 0, nodes[0], nodes[0], nodes[0]), openOn(t, 0, nodes...)
			goods := int64(0)
			for _, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-bucket", "sql-bucket grouped", "sql-unit grouped"} {
				var ofOne, ofThree, ratios []float64
				for range 3 {
					goods += 2
					ofOne = append(ofOne, one.perSecond(t, name, goods))
					ofThree = append(ofThree, three.perSecond(t, name, goods+1))
					ratios = append(ratios, ofThree[len(ofThree)-1]/ofOne[len(ofOne)-1])
				}
				t.Logf("%s: on one node %.0f/s, on three %.0f/s, three to one %.2f (%.2f–%.2f)", name,
					bench.Median(ofOne), bench.Median(ofThree), bench.Median(ratios), slices.Min(ratios), slices.Max(ratios))
			}
		})
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
