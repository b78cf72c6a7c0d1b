package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// guarded makes a strategy of any lock: acquire, check and write in a
// transaction, commit, release. The lock is taken outside the transaction, so
// that the next holder reads what this one has committed.
type guarded struct {
	store  site
	locker lock.Locker
	wait   time.Duration
	heard  Observer
	after  *aftermath
	// sell is what is done under the lock; nil: sellUnfenced.
	sell sell
}

func newGuarded(d Deps, locker lock.Locker) guarded {
	return guarded{store: d.site(), locker: d.site().record(locker), wait: d.LockWait, heard: d.Observer(), after: newAftermath(d.Log)}
}

// sell sells a batch under a lease. The context ends with the lease.
type sell func(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error)

func (g guarded) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	asked := time.Now()
	waiting, step := telemetry.StartSpan(ctx, "wait for lock")
	lease, err := g.acquire(waiting, goodsID)
	step.End()
	granted := time.Now()
	g.heard.Waited(granted.Sub(asked))
	if err != nil {
		return nil, err
	}
	outcomes, err = g.sellUnder(ctx, lease, goodsID, batch)
	held := time.Since(granted)
	g.heard.Held(held, errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	if errors.Is(err, stock.ErrFenced) {
		g.heard.Fenced()
	}
	for i := range outcomes {
		outcomes[i].Wait = granted.Sub(asked)
		outcomes[i].Hold = held
	}
	return outcomes, err
}

// sellUnder sells and gives the lock back, also where selling panics: nobody else
// would, and a lock that is renewed would never be free again.
func (g guarded) sellUnder(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	ctx, step := telemetry.StartSpan(ctx, "hold lock")
	defer step.End()
	defer g.release(ctx, lease)
	work, stop := lock.While(ctx, lease)
	defer stop()
	if g.sell == nil {
		outcomes, err = g.sellUnfenced(work, lease, goodsID, batch)
	} else {
		outcomes, err = g.sell(work, lease, goodsID, batch)
	}
	return outcomes, lostOr(lease, err)
}

func (g guarded) sellUnfenced(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return checkThenWrite(ctx, g.store, g.store.GoodsSettled, goodsID, batch, lease.Token(), setStock)
}

// lostOr names the loss of the lease as the reason where it ended the work.
func lostOr(lease lock.Lease, err error) error {
	cause := context.Cause(lease.Context())
	if err == nil || !errors.Is(cause, lock.ErrLost) || !errors.Is(err, lock.ErrLost) || errors.Is(err, stock.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", stock.ErrLeaseLost, err)
}

// acquire waits for the lock of a goods no longer than the wait limit, and
// tells that limit from the end of the request, and both from a backend that
// fails.
func (g guarded) acquire(ctx context.Context, goodsID int64) (lock.Lease, error) {
	waiting, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	lease, err := g.locker.Acquire(waiting, lockName(goodsID))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, stock.ErrBackendUnavailable):
		return nil, fmt.Errorf("lock %s: %w", lockName(goodsID), err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, fmt.Errorf("%w: the lock of goods %d was not free within %s: %w", stock.ErrBusy, goodsID, g.wait, err)
	default:
		return nil, fmt.Errorf("lock %s: %w", lockName(goodsID), err)
	}
}

func (g guarded) release(ctx context.Context, lease lock.Lease) {
	// The sale is committed or not, whatever becomes of the lock: a lock that
	// cannot be given back frees itself in time.
	g.after.do(ctx, "release lock", lease.Release)
}

// Close waits for releases, and closes the lock where it holds something open.
func (g guarded) Close() error {
	g.after.wait()
	if closer, ok := underneath(g.locker).(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// goodsPrefix begins the name of a goods' lock.
const goodsPrefix = "goods/"

// lockName is what is locked of a goods.
func lockName(goodsID int64) string { return goodsPrefix + strconv.FormatInt(goodsID, 10) }

// ItemOf is the item that a lock's name stands for.
func ItemOf(name string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(name, goodsPrefix), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not the lock of an item", name)
	}
	return id, nil
}
