package strategy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func sqlOptimistic() Entry {
	return Entry{
		Name:       "sql-optimistic",
		Family:     SQL,
		Summary:    "read the version, write where it still holds, else try again after a pause; a bounded number of tries",
		Guarantees: Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New: func(d Deps) Strategy {
			return optimistic{store: d.site(), observer: d.Observer(), tries: d.Retry.Tries, pace: &pace{step: d.Retry.Step, most: d.Retry.Max}}
		},
	}
}

// Retry bounds the tries of an optimistic writer.
type Retry struct {
	// Tries is the most that one batch is tried, at least 1.
	Tries int
	// Step is how much longer the pause of losers gets with each lost race, Max bounds
	// every pause.
	Step, Max time.Duration
}

type optimistic struct {
	store    site
	observer Observer
	tries    int
	pace     *pace
}

// errStale rolls back a transaction whose read is out of date.
var errStale = errors.New("the row has changed since it was read")

func (s optimistic) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	for range s.tries {
		outcomes, err := readCheckWrite(ctx, s.store, s.store.Goods, goodsID, batch, noToken, setStockIfUnchanged)
		if !errors.Is(err, errStale) {
			s.pace.won()
			return outcomes, err
		}
		s.observer.RaceLost()
		if err := pause.For(ctx, s.pace.lost()); err != nil {
			return nil, fmt.Errorf("retry deduction of item %d: %w", goodsID, err)
		}
	}
	return nil, fmt.Errorf("%w: item %d changed during each of %d tries", stock.ErrBusy, goodsID, s.tries)
}

func setStockIfUnchanged(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
	written, err := tx.SetStockIfVersion(ctx, row, row.Stock-units)
	if err == nil && !written {
		err = errStale
	}
	return err
}

// pace decides how long losers pause, so that about as many of them retry at a time as the
// row can serve, however many there are and however fast it is. All writers of a replica
// share it: where each knew only its own lost races, some would wait for seconds.
type pace struct {
	step, most time.Duration

	mu     sync.Mutex
	window time.Duration
}

func (p *pace) lost() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window = min(p.window+p.step, p.most)
	return rand.N(p.window + 1)
}

// won narrows the window by a sixteenth: with as many races won as lost, it
// settles at sixteen steps.
func (p *pace) won() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window -= p.window / 16
}
