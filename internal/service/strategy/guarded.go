package strategy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// releaseWithin bounds the release of a lock, which must not depend on the
// request that has perhaps just been cancelled.
const releaseWithin = 2 * time.Second

// guarded makes a strategy of any lock: acquire, check and write in a
// transaction, commit, release. The lock is taken outside the transaction, so
// that the next holder reads what this one has committed.
type guarded struct {
	store  *repo.Store
	locker lock.Locker
	wait   time.Duration
}

func (g guarded) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	asked := time.Now()
	lease, err := g.acquire(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	granted := time.Now()
	work, stop := lock.While(ctx, lease)
	outcomes, err = checkThenWrite(work, g.store, goodsID, batch, setStock)
	stop()
	g.release(ctx, lease)
	for i := range outcomes {
		outcomes[i].Wait = granted.Sub(asked)
		outcomes[i].Hold = time.Since(granted)
	}
	return outcomes, err
}

// acquire waits for the lock of a goods no longer than the wait limit, and
// tells that limit from the end of the request.
func (g guarded) acquire(ctx context.Context, goodsID int64) (lock.Lease, error) {
	waiting, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	lease, err := g.locker.Acquire(waiting, "goods/"+strconv.FormatInt(goodsID, 10))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, fmt.Errorf("%w: the lock of goods %d was not free within %s: %w", stock.ErrBusy, goodsID, g.wait, err)
	default:
		return nil, fmt.Errorf("lock goods %d: %w", goodsID, err)
	}
}

func (g guarded) release(ctx context.Context, lease lock.Lease) {
	letGo, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	// The sale is committed or not, whatever becomes of the lock: a lock that
	// cannot be given back frees itself in time.
	_ = lease.Release(letGo)
}
