package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/stock"
)

func redisStock() Entry {
	return Entry{
		Name:    hot.Place,
		Family:  Hot,
		Summary: "one script in Redis decides and appends the order to a stream; consumers write it to the ledger, exactly once",
		Needs:   []backend.Name{backend.Redis},
		Claims:  Claims{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New: func(d Deps) Strategy {
			if err := d.Lock.Has(backend.Redis); err != nil {
				return unavailable{err}
			}
			o := d.Hot
			o.Replica = d.Store.Replica()
			return hot.New(d.Store, d.Lock.Clients, o)
		},
	}
}

// Promiser is a strategy that may answer before the ledger has the order.
type Promiser interface {
	// Promised is how many units of a goods are promised and not in the ledger yet.
	Promised(ctx context.Context, goodsID int64) (units int64, err error)
	// Await returns when the ledger has the order. stock.ErrUnknownOutcome: it does
	// not when ctx ends, and may have it later.
	Await(ctx context.Context, order stock.Order) error
	// FindRequest finds an accepted order by its request id, and FindOrder by its
	// number, where the ledger does not have it yet. An order that the ledger has may be
	// found as well. stock.ErrBackendUnavailable: it is not known whether there is one.
	FindRequest(ctx context.Context, requestID string) (order stock.Order, ok bool, err error)
	FindOrder(ctx context.Context, number string) (order stock.Order, ok bool, err error)
	// Drift compares what may still be promised with what the ledger leaves.
	Drift(ctx context.Context, goodsID int64) (hot.Drift, error)
	// Lag is how far the ledger is behind what was promised.
	Lag(ctx context.Context) (hot.Lag, error)
}
