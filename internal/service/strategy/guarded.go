package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// guarded makes a strategy of any lock: acquire, check and write in a transaction, commit,
// release. The lock is taken outside the transaction, so that the next holder reads what
// this one has committed.
type guarded struct {
	store    site
	locker   lock.Locker
	wait     time.Duration
	observer Observer
	jobs     *background.Jobs
	log      *slog.Logger
}

func newGuarded(d Deps, locker lock.Locker) guarded {
	return guarded{
		store: d.site(), locker: d.site().record(locker), wait: d.LockWait, observer: d.Observer(),
		jobs: background.NewJobs(d.Log), log: cmp.Or(d.Log, slog.Default()).With("strategy", d.Store.Strategy()),
	}
}

// leaseWork is what is done with a batch under a lease. The context ends with the lease.
type leaseWork func(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error)

func (g guarded) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return g.hold(ctx, goodsID, batch, g.unfenced)
}

func (g guarded) unfenced(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return readCheckWrite(ctx, g.store, g.store.GoodsSettled, goodsID, batch, lease.Token(), setStock)
}

func (g guarded) hold(ctx context.Context, goodsID int64, batch []stock.Purchase, work leaseWork) (outcomes []stock.Outcome, err error) {
	asked := time.Now()
	lease, err := g.acquire(ctx, goodsID, longestWait(g.wait, batch))
	granted := time.Now()
	g.observer.Waited(granted.Sub(asked))
	if err != nil {
		return nil, err
	}
	outcomes, err = g.workThenRelease(ctx, lease, goodsID, batch, work)
	held := time.Since(granted)
	g.observer.Held(held, errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	if errors.Is(err, stock.ErrFenced) {
		g.observer.Fenced()
	}
	for i := range outcomes {
		outcomes[i].Wait = granted.Sub(asked)
		outcomes[i].Hold = held
	}
	return outcomes, err
}

// workThenRelease releases the lock also where the work panics: a lock that is renewed
// would never be free again. The sale is committed or not, whatever becomes of the lock,
// and a lock that cannot be released frees itself in time.
func (g guarded) workThenRelease(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase, work leaseWork) ([]stock.Outcome, error) {
	ctx, step := telemetry.StartSpan(ctx, "hold lock")
	defer step.End()
	defer g.jobs.Finish(ctx, "release lock", func(ctx context.Context) error { return g.release(ctx, lease, goodsID) })
	working, stop := lock.While(ctx, lease)
	defer stop()
	outcomes, err := work(working, lease, goodsID, batch)
	return outcomes, lostOr(lease, err)
}

// release releases the lock. A release that fails blocks the item until it is repeated, or until the lock frees itself.
func (g guarded) release(ctx context.Context, lease lock.Lease, goodsID int64) error {
	err := lease.Release(ctx)
	if err != nil && !errors.Is(err, lock.ErrLost) {
		g.observer.ReleaseFailed()
		g.log.WarnContext(ctx, "lock not released", "item", goodsID, "error", err)
	}
	return err
}

// lostOr names the loss of the lease as the reason where it ended the work.
func lostOr(lease lock.Lease, err error) error {
	cause := context.Cause(lease.Context())
	if err == nil || !errors.Is(cause, lock.ErrLost) || !errors.Is(err, lock.ErrLost) || errors.Is(err, stock.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", stock.ErrLeaseLost, err)
}

func (g guarded) LockWait() time.Duration { return g.wait }

// longestWait is the wait limit of a batch. Purchases that wait together wait as long as the
// strategy says.
func longestWait(limit time.Duration, batch []stock.Purchase) time.Duration {
	if len(batch) == 1 && batch[0].MaxWait > 0 {
		return min(limit, batch[0].MaxWait)
	}
	return limit
}

// acquire waits for the lock of an item no longer than the wait limit, and distinguishes
// that limit from the end of the request, and both from a backend that fails.
func (g guarded) acquire(ctx context.Context, goodsID int64, wait time.Duration) (lock.Lease, error) {
	ctx, step := telemetry.StartSpan(ctx, "wait for lock")
	defer step.End()
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lease, err := g.locker.Acquire(limited, lockName(goodsID))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !errors.Is(err, stock.ErrBackendUnavailable):
		return nil, fmt.Errorf("%w: the lock of item %d was not free within %s: %w", stock.ErrBusy, goodsID, wait, err)
	default:
		return nil, fmt.Errorf("lock %s: %w", lockName(goodsID), err)
	}
}

// Close waits for releases, which have a limit of their own, and closes the lock where it
// holds something open.
func (g guarded) Close() error {
	err := g.jobs.Close(2 * background.FinishWithin)
	if closer, ok := unwrap(g.locker).(io.Closer); ok {
		return errors.Join(err, closer.Close())
	}
	return err
}

// itemPrefix begins the name of an item's lock.
const itemPrefix = "goods/"

func lockName(goodsID int64) string { return itemPrefix + strconv.FormatInt(goodsID, 10) }

// ItemOf is the item that a lock's name stands for.
func ItemOf(name string) (int64, error) {
	digits, ok := strings.CutPrefix(name, itemPrefix)
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is not the lock of an item", name)
	}
	return id, nil
}

func ofLock(l lock.Entry) Entry {
	guarantees := l.Guarantees
	guarantees.Fenceable = true
	return Entry{
		Name: l.Name, Family: Family(l.Family), Summary: l.Summary, Needs: l.Needs,
		Guarantees: guarantees, Watchdog: l.Watchdog, OneServer: l.OneServer, NotOnShards: l.NotOnShards,
		New: func(d Deps) Strategy {
			return fenceable{guarded: newGuarded(d, d.locker(l)), issue: d.Lock.Issue}
		},
	}
}

// locker makes a lock for the strategy that is made of these parts.
func (d Deps) locker(l lock.Entry) lock.Locker {
	deps := d.Lock
	deps.Floor, deps.TriedInVain, deps.Log = floorOf(d.Store), d.Observer().TriedInVain, d.Log
	return l.New(deps)
}

// floorOf returns which tokens of a lock the store has seen.
func floorOf(store *repo.Store) func(context.Context, string) (uint64, error) {
	return func(ctx context.Context, name string) (uint64, error) {
		goodsID, err := ItemOf(name)
		if err != nil {
			return 0, err
		}
		return store.Fence(ctx, goodsID)
	}
}

// fenceable is guarded by a lock that all replicas share, so that the store can also check
// its token.
type fenceable struct {
	guarded
	issue func(ctx context.Context, name string) (uint64, error)
}

func (f fenceable) DeductFenced(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return f.hold(ctx, goodsID, batch, f.fenced)
}

// fenced claims the fence before it reads, and requires it at the write. To check the
// token only at the write is not enough: a late holder would write between the next one's
// read and its write, with both tokens in order.
func (f fenceable) fenced(ctx context.Context, lease lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	token, err := f.token(ctx, lease, goodsID)
	if err != nil {
		return nil, err
	}
	claim, err := f.store.ClaimFence(ctx, goodsID, token)
	if err != nil {
		return nil, f.reseedAfter(ctx, goodsID, err)
	}
	return readCheckWrite(ctx, f.store, f.store.GoodsSettled, goodsID, batch, token,
		func(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
			return tx.SetStockIfClaimed(ctx, row, row.Stock-units, claim)
		})
}

// token is the lease's, or one that is issued now for a lock that has none. It fences as
// well: the last one to claim keeps all others out.
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

// reseeder is a lock whose counter of tokens may fall behind what the store has seen.
type reseeder interface {
	Reseed(ctx context.Context, name string) error
}

// reseedAfter lifts the tokens of a lock that issued one which the store has seen before,
// so that the next holder is not rejected.
func (f fenceable) reseedAfter(ctx context.Context, goodsID int64, rejected error) error {
	if r, ok := unwrap(f.locker).(reseeder); ok && errors.Is(rejected, stock.ErrFenced) {
		return errors.Join(rejected, r.Reseed(ctx, lockName(goodsID)))
	}
	return rejected
}
