package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// locked makes the entry of a strategy of that of a lock.
func locked(l lock.Entry) Entry {
	return Entry{
		Name:    l.Name,
		Family:  Family(l.Family),
		Summary: l.Summary,
		Needs:   l.Needs,
		Claims: Claims{
			ExclusiveInProcess:      l.Claims.Exclusive,
			ExclusiveAcrossReplicas: l.Claims.Exclusive,
			SurvivesCrash:           l.Claims.SurvivesCrash,
			Renews:                  l.Claims.Renews,
			Reentrant:               l.Claims.Reentrant,
			Fair:                    l.Claims.Fair,
			Fences:                  l.Claims.Fences,
			ReleasesOnlyItsOwn:      l.Claims.ReleasesOnlyItsOwn,
			SignalsLoss:             l.Claims.SignalsLoss,
			Fenceable:               true,
		},
		New: func(d Deps) Strategy { return newLocked(l, d) },
	}
}

// newLocked makes the strategy, or one that says which backend it lacks.
func newLocked(l lock.Entry, d Deps) Strategy {
	for _, need := range l.Needs {
		if err := d.Lock.Has(need); err != nil {
			return unavailable{err}
		}
	}
	deps := d.Lock
	deps.Floor, deps.TriedInVain = floorOf(d.Store), d.Observer().TriedInVain
	return fenceable{
		guarded: newGuarded(d, l.New(deps)),
		issue:   deps.Issue,
	}
}

// floorOf tells locks which tokens the store has seen.
func floorOf(store *repo.Store) func(context.Context, string) (uint64, error) {
	return func(ctx context.Context, name string) (uint64, error) {
		goodsID, err := ItemOf(name)
		if err != nil {
			return 0, err
		}
		return store.Fence(ctx, goodsID)
	}
}

// unavailable is a strategy whose backend nobody has configured.
type unavailable struct{ reason error }

func (u unavailable) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, u.reason
}

// Recall tells why it cannot recall what another replica has allocated.
func (u unavailable) Recall(context.Context, int64) (stock.Recalled, error) {
	return stock.Recalled{}, u.reason
}

// Fenced is the same: what is not there cannot be fenced either.
func (u unavailable) Fenced() Strategy { return u }

// fenceable is a guarded strategy that can also have the store check the token.
type fenceable struct {
	guarded
	issue func(ctx context.Context, name string) (uint64, error)
}

// Fenced is the strategy on the same lock, with its writes fenced.
func (f fenceable) Fenced() Strategy {
	fenced := f.guarded
	fenced.sell = f.sellFenced
	return fenced
}

// sellFenced claims the fence before it reads, and requires it at the write. To
// check the token only at the write is not enough: a holder that was late would
// write between the next one's read and its write, with both tokens in order.
func (f fenceable) sellFenced(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	token, err := f.token(ctx, lease, goodsID)
	if err != nil {
		return nil, err
	}
	claim, err := f.store.ClaimFence(ctx, goodsID, token)
	if err != nil {
		return nil, f.reseedAfter(ctx, goodsID, err)
	}
	return checkThenWrite(ctx, f.store, f.store.GoodsSettled, goodsID, batch, token,
		func(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
			return tx.SetStockIfClaimed(ctx, read, read.Stock-units, claim)
		})
}

// token is the lease's, or one that is issued now for a lock that has none. It
// fences as well: whoever claims last keeps all others out, whoever they are.
func (f fenceable) token(ctx context.Context, lease lock.Lease, goodsID int64) (uint64, error) {
	if token := lease.Token(); token > 0 {
		return token, nil
	}
	token, err := f.issue(ctx, lockName(goodsID))
	if err != nil {
		return 0, fmt.Errorf("issue a fencing token: %w", err)
	}
	return token, nil
}

// reseeder is a lock whose counter of tokens may fall behind what the store has
// seen.
type reseeder interface {
	Reseed(ctx context.Context, name string) error
}

// reseedAfter lifts the tokens of a lock that gave one which the store has seen
// before, so that the next holder is not refused.
func (f fenceable) reseedAfter(ctx context.Context, goodsID int64, refused error) error {
	if r, can := underneath(f.locker).(reseeder); can && errors.Is(refused, stock.ErrFenced) {
		return errors.Join(refused, r.Reseed(ctx, lockName(goodsID)))
	}
	return refused
}
