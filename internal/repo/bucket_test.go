package repo_test

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// A unit that is sold from a bucket while Gather waits for it is in no other allocation: a
// purchase would have it recalled in vain.
func TestUnitsSoldWhileBucketsAreWaitedForAreNotAllocatedElsewhere(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As(repo.Bucketed)
		create(t, s, 1, 10)
		spread := func(tx *repo.Tx) error {
			row, buckets, err := tx.Gather(t.Context(), 1)
			if err != nil {
				return err
			}
			return tx.Spread(t.Context(), row, 10, 0, buckets, 2)
		}
		must(t, s.InTx(t.Context(), spread))
		var row stock.Goods
		var buckets repo.Buckets
		gathered := make(chan error, 1)
		must(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			if taken, err := tx.TakeFromBucket(t.Context(), 1, 0, 1); err != nil || !taken {
				t.Fatalf("taken %v, %v", taken, err)
			}
			go func() {
				gathered <- s.InTx(t.Context(), func(tx *repo.Tx) (err error) {
					row, buckets, err = tx.Gather(t.Context(), 1)
					return err
				})
			}()
			labtest.AwaitRowWait(t, d, "%bucket/%", gathered)
			return nil
		}))
		must(t, <-gathered)
		if buckets.Sum() != 9 || row.Allocated != 0 {
			t.Errorf("%d units in buckets and %d in other allocations, want 9 and 0", buckets.Sum(), row.Allocated)
		}
	})
}
