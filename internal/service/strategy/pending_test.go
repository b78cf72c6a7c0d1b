package strategy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// A commit that was sent and not answered may happen when its purchase is over and
// its lock is released. The next sale must not write what it read before.
func TestTheNextSaleReadsWhatAnUnansweredCommitLeaves(t *testing.T) {
	for name, grouped := range map[string]bool{"mutex": false, "channel": false, "redis-lua": false, "naive": true} {
		t.Run(name, func(t *testing.T) {
			lab.EachServer(t, func(t *testing.T, d *servers.Database) {
				through, proxy := labtest.Through(t, d)
				store := labtest.Open(t, through, "r")
				if err := store.CreateGoods(t.Context(), 1, 10, "first"); err != nil {
					t.Fatal(err)
				}
				sells := made(t, d, name, strategy.Deps{Store: store.As(name), LockWait: time.Second}, grouped)
				held := proxy.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
				defer held.Pass()
				start := time.Now()
				if err := buyWithin(t, sells, "pending", 500*time.Millisecond); !errors.Is(err, stock.ErrUnknownOutcome) {
					t.Fatalf("the first sale is %v, want %v", err, stock.ErrUnknownOutcome)
				}
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("it took %s", took)
				}
				time.AfterFunc(300*time.Millisecond, held.Pass) // now the server gets it
				if err := buyWithin(t, sells, "next", 5*time.Second); err != nil {
					t.Fatal(err)
				}
				if audit, err := store.AuditInFull(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 2 {
					t.Errorf("the audit is %+v, %v; want 2 sold", audit, err)
				}
			})
		})
	}
}

// made makes a strategy of the registry.
func made(t *testing.T, d *servers.Database, name string, deps strategy.Deps, grouped bool) strategy.Strategy {
	t.Helper()
	entry := entryOf(t, name)
	deps.Lock = lab.Locks(t, d, entry.Needs...)
	sells := entry.New(deps)
	if !grouped {
		return sells
	}
	return strategy.NewBatcher(sells.Deduct, deps.Store.Orders, strategy.Group{
		Batch: 8, Units: 8, Queue: 8, Timeout: 5 * time.Second,
		Settled: func(ctx context.Context, goodsID int64) error {
			_, err := deps.Store.GoodsSettled(ctx, goodsID)
			return err
		},
	})
}

func buyWithin(t *testing.T, s strategy.Strategy, requestID string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	outcomes, err := s.Deduct(ctx, 1, []stock.Purchase{{RequestID: requestID, Quantity: 1}})
	if err == nil {
		err = outcomes[0].Rejected
	}
	return err
}
