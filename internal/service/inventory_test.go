package service_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// cancelling cancels a request when it is notified of a restock, which is after the
// commit.
type cancelling struct{ cancel context.CancelFunc }

func (cancelling) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, nil
}

func (c cancelling) Restocked(context.Context, int64, int64) error {
	c.cancel()
	return nil
}

func TestARestockReachesTheCopiesOfACancelledRequest(t *testing.T) {
	for _, name := range []string{"redis-decr", "redis-list", "redis-stock"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != name })
			entries = append([]strategy.Entry{{Name: "cancelling", New: func(strategy.Deps) strategy.Strategy { return cancelling{cancel} }}}, entries...)
			catalogue, err := service.NewCatalogue(t.Context(), entries, strategy.Deps{
				Store: store, LockWait: copiesWait, Lock: lab.Locks(t, d, backend.Redis), Retry: strategy.Retry{Tries: 1},
				Hot: hot.Options{Prefix: "test-" + rand.Text()},
			}, copiesWait)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := catalogue.Close(); err != nil {
					t.Error(err)
				}
			})
			inventory := service.NewInventory(store, catalogue)
			if _, err := inventory.Create(ctx, 1, 1, 0, stock.Choice{}, ""); err != nil {
				t.Fatal(err)
			}
			sv, err := catalogue.In(service.Mode{Strategy: name})
			if err != nil {
				t.Fatal(err)
			}
			sell := func() error {
				outcome, err := sv.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
				if err != nil {
					return err
				}
				return outcome.Rejected
			}
			if err := sell(); err != nil {
				t.Fatal(err)
			}
			_, _ = inventory.Restock(ctx, 1, 1, "") // its client has left
			if err := inventory.Close(); err != nil {
				t.Fatal(err)
			}
			if err := sell(); err != nil {
				t.Errorf("the unit of the restock is answered with %v", err)
			}
		})
	}
}
