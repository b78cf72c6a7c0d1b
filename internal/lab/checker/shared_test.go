package checker_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

// reads is a lease that is shared.
func reads(holder string, granted, end int) history.Lease {
	l := lease(holder, granted, end, 0)
	l.Shared = true
	return l
}

func TestSharedLeases(t *testing.T) {
	shared := of(reads("a", 0, 10), reads("b", 5, 15), lease("w", 15, 20, 0))
	apart := of(reads("a", 0, 10), reads("b", 10, 15), lease("w", 15, 20, 0))
	judge(t, []row{
		{"two readers at once", checker.ReadersShare(), shared, true, map[string]float64{"shared_leases": 2, "shared_overlaps": 1}},
		{"two readers one after the other", checker.ReadersShare(), apart, false, map[string]float64{"shared_overlaps": 0}},
		{"two leases of one reader", checker.ReadersShare(), of(reads("a", 0, 10), reads("a", 5, 15)), false, nil},
		{"a reader and a writer are not two readers", checker.ReadersShare(), of(reads("a", 0, 10), lease("w", 5, 15, 0)), false, nil},
		{"a writer and a reader are not two readers", checker.ReadersShare(), of(lease("w", 0, 10, 0), reads("a", 5, 15)), false, nil},
		{"two readers are together", checker.Together("a", "b"), shared, true, map[string]float64{"together": 1}},
		{"two readers at once are not apart", checker.Apart("a", "b"), shared, false, nil},
		{"two readers do not exclude each other", checker.ExclusiveHolders(), shared, true, map[string]float64{"overlaps": 0}},
		{"a writer within a reader", checker.ExclusiveHolders(), of(reads("a", 0, 10), lease("w", 5, 15, 0)), false, map[string]float64{"overlaps": 1}},
		{"a reader within a writer", checker.ExclusiveHolders(), of(lease("w", 0, 10, 0), reads("a", 5, 15)), false, nil},
		{"a reader and a writer together", checker.Together("a", "w"), of(reads("a", 0, 10), lease("w", 5, 15, 0)), true, nil},
	})
}

func TestPages(t *testing.T) {
	page := func(stock, sold int64) history.Sample { return history.Sample{At: at(1), Stock: stock, Sold: sold} }
	judge(t, []row{
		{"whole", checker.WholePages(10), of(page(10, 0), page(9, 1)), true, map[string]float64{"pages": 2, "half_made_pages": 0}},
		{"a single whole one", checker.WholePages(10), of(page(9, 1)), true, nil},
		{"half made", checker.WholePages(10), of(page(10, 0), page(9, 0)), false, map[string]float64{"half_made_pages": 1}},
		{"no page is not a whole one", checker.WholePages(10), of(), false, nil},
		{"half made, as expected", checker.HalfMadePages(10), of(page(10, 0), page(9, 0)), true, nil},
		{"whole, where a half was expected", checker.HalfMadePages(10), of(page(10, 0)), false, nil},
	})
}

func TestNoticedLosses(t *testing.T) {
	lost := reads("a", 0, 50)
	lost.Lost = at(30)
	atRelease := reads("a", 0, 20)
	atRelease.Lost = at(21)
	gone := mark("redis", 10, "forgotten: a key")
	judge(t, []row{
		{"soon enough", checker.LossNoticed("a", "forgotten", 20*time.Millisecond), of(lost, gone), true, map[string]float64{"loss_noticed_ms": 20}},
		{"too late", checker.LossNoticed("a", "forgotten", 19*time.Millisecond), of(lost, gone), false, nil},
		{"never", checker.LossNoticed("a", "forgotten", time.Second), of(reads("a", 0, 50), gone), false, nil},
		{"by its release", checker.LossNoticed("a", "forgotten", time.Second), of(atRelease, gone), false, nil},
		{"of another holder", checker.LossNoticed("b", "forgotten", time.Second), of(lost, reads("b", 0, 50), gone), false, nil},
		{"beside another holder", checker.LossNoticed("a", "forgotten", time.Second), of(reads("b", 0, 50), lost, gone), true, nil},
		{"before the mark", checker.LossNoticed("a", "forgotten", time.Second), of(lost, mark("redis", 40, "forgotten")), false, nil},
		{"another mark before", checker.LossNoticed("a", "forgotten", 20*time.Millisecond), of(lost, mark("redis", 5, "paused"), gone), true, map[string]float64{"loss_noticed_ms": 20}},
		{"without the mark", checker.LossNoticed("a", "forgotten", time.Second), of(lost), false, nil},
	})
}
