package strategy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/testlog"
)

// failing is a lock whose Acquire returns err, or is never free.
type failing struct {
	lock.Locker
	err error
}

func (f failing) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	if f.err != nil {
		return nil, f.err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A lock that is not free in time is busy. A lock server that does not answer in time is not,
// nor is a request that ends.
func TestOnlyALockThatIsTakenIsBusy(t *testing.T) {
	unconnected := &stock.BackendError{Backend: "redis", Err: context.DeadlineExceeded}
	for name, c := range map[string]struct {
		locker failing
		ends   time.Duration // the request
		want   error
		busy   bool
	}{
		"a lock that is taken":                 {failing{}, time.Minute, stock.ErrBusy, true},
		"a server that cannot be reached":      {failing{err: unconnected}, time.Minute, stock.ErrBackendUnavailable, false},
		"a request that ends before the limit": {failing{}, time.Second, context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				_, err := guarded{locker: c.locker, wait: 3 * time.Second}.acquire(ctx, 1, 3*time.Second)
				if !errors.Is(err, c.want) || errors.Is(err, stock.ErrBusy) != c.busy {
					t.Errorf("it fails with %v, want %v", err, c.want)
				}
			})
		})
	}
}

// A purchase waits as long as it asks for, within lock.wait; one that waits with others does not.
func TestOnlyAPurchaseThatIsAloneChoosesItsWait(t *testing.T) {
	const limit = 3 * time.Second
	asks := func(wait time.Duration) stock.Purchase { return stock.Purchase{MaxWait: wait} }
	for _, c := range []struct {
		batch []stock.Purchase
		want  time.Duration
	}{
		{[]stock.Purchase{asks(0)}, limit},
		{[]stock.Purchase{asks(time.Second)}, time.Second},
		{[]stock.Purchase{asks(time.Minute)}, limit},
		{[]stock.Purchase{asks(time.Second), asks(time.Second)}, limit},
	} {
		should.Be(t, longestWait(limit, c.batch), c.want, c.batch)
	}
}

// Work that ended because its lease was lost says so; what may have been committed stays unknown.
func TestAnErrorIsTheLossOfTheLeaseWhereThatEndedTheWork(t *testing.T) {
	failed := errors.New("the database is gone")
	ended := fmt.Errorf("write: %w", lock.ErrLost)
	unknown := fmt.Errorf("%w: commit: %w", stock.ErrUnknownOutcome, lock.ErrLost)
	for name, c := range map[string]struct {
		lost bool
		err  error
		want bool
	}{
		"it did not fail":               {true, nil, false},
		"the loss ended it":             {true, ended, true},
		"it failed by itself":           {true, failed, false},
		"another lease was lost":        {false, ended, false},
		"it failed under its own lease": {false, failed, false},
		"it may have been committed":    {true, unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			lease := lock.NewHeld(1, func(context.Context) error { return nil })
			if c.lost {
				lease.Lose()
			}
			got := lostOr(lease, c.err)
			if errors.Is(got, stock.ErrLeaseLost) != c.want || !errors.Is(got, c.err) {
				t.Errorf("%v is answered as %v, want the loss of the lease: %v", c.err, got, c.want)
			}
		})
	}
}

// granted is a lock that is free.
type granted struct{ lease *lock.Held }

func (g granted) Acquire(context.Context, string) (lock.Lease, error) { return g.lease, nil }

// losses notes how leases ended.
type losses struct {
	unobserved
	lost               []bool
	fenced, unreleased int
}

func (l *losses) Held(_ time.Duration, lost bool) { l.lost = append(l.lost, lost) }
func (l *losses) Fenced()                         { l.fenced++ }
func (l *losses) ReleaseFailed()                  { l.unreleased++ }

// A release that the backend does not answer blocks the item: it is counted, and the log has it.
func TestAReleaseThatFailsIsReported(t *testing.T) {
	for failed, want := range map[error]int{nil: 0, lock.ErrLost: 0, lock.Released("redis", false, io.EOF): 1} {
		var lines testlog.Lines
		seen := new(losses)
		lease := lock.NewHeld(1, func(context.Context) error { return failed })
		g := newGuarded(Deps{Store: new(repo.Store).As("redis-lua"), LockWait: time.Second, Log: slog.New(slog.NewTextHandler(&lines, nil))}, granted{lease})
		g.observer = seen
		_, err := g.hold(t.Context(), 7, nil, func(context.Context, lock.Lease, int64, []stock.Purchase) ([]stock.Outcome, error) { return nil, nil })
		said := strings.Contains(lines.String(), "strategy=redis-lua item=7")
		if err := errors.Join(err, g.Close()); err != nil || seen.unreleased != want || said != (want > 0) {
			t.Errorf("a release with %v is counted %d times, and the log is %q (%v)", failed, seen.unreleased, lines.String(), err)
		}
	}
}

// A lease is reported with its loss, also where the work did not fail, and a late write once.
func TestTheEndOfALeaseIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		lost   bool
		err    error
		fenced int
	}{
		"it was held":               {false, nil, 0},
		"it was lost":               {true, nil, 0},
		"its write came too late":   {false, fmt.Errorf("write: %w", stock.ErrFenced), 1},
		"the database has rejected": {false, stock.ErrBusy, 0},
	} {
		released, seen := 0, new(losses)
		lease := lock.NewHeld(1, func(context.Context) error { released++; return nil })
		g := newGuarded(Deps{Store: new(repo.Store), LockWait: time.Second}, granted{lease})
		g.observer = seen
		outcomes, err := g.hold(t.Context(), 1, make([]stock.Purchase, 1), func(context.Context, lock.Lease, int64, []stock.Purchase) ([]stock.Outcome, error) {
			if c.lost {
				lease.Lose()
			}
			if released > 0 {
				t.Error("the lock is released before the work is done")
			}
			return make([]stock.Outcome, 1), c.err
		})
		if !errors.Is(err, c.err) || len(outcomes) != 1 || len(seen.lost) != 1 || seen.lost[0] != c.lost || seen.fenced != c.fenced {
			t.Errorf("%s: %v, %v; it is reported as lost %v and %d times as late", name, outcomes, err, seen.lost, seen.fenced)
		}
		if err := g.Close(); err != nil || released != 1 && !c.lost {
			t.Errorf("%s: released %d times, closed with %v", name, released, err)
		}
	}
}

// closing is a lock that does not close.
type closing struct{ failing }

func (c closing) Close() error { return c.err }

func TestClosingAStrategyClosesItsLock(t *testing.T) {
	stuck := errors.New("the session does not end")
	should.Fail(t, newGuarded(Deps{Store: new(repo.Store)}, closing{failing{err: stuck}}).Close(), stuck)
}

// closable is a lock that notes when it is closed.
type closable struct {
	granted
	closed func() error
}

func (c closable) Close() error { return c.closed() }

// A release that goes on after its purchase is waited for before the lock is closed.
func TestALockIsClosedAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []string
		lease := lock.NewHeld(1, func(context.Context) error {
			time.Sleep(time.Second)
			steps = append(steps, "released")
			return nil
		})
		g := newGuarded(Deps{Store: new(repo.Store), LockWait: time.Second}, closable{granted{lease}, func() error {
			steps = append(steps, "closed")
			return nil
		}})
		if _, err := g.hold(t.Context(), 1, nil, func(context.Context, lock.Lease, int64, []stock.Purchase) ([]stock.Outcome, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		must.Do(t, g.Close())
		should.Equal(t, steps, []string{"released", "closed"}, "the lock is")
	})
}

// What this replica sold is off its estimate at once, and one purchase in 50 ms reads the row.
func TestAnEstimateIsNeverAboveWhatIsLeftAndIsReadAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(gauges)
		g.saw(stock.Goods{ID: 1, Stock: 10})
		for i, c := range []struct {
			after  time.Duration
			units  int64
			before int64
			ok     bool
		}{
			{0, 3, 10, true},
			{0, 3, 7, true},
			{0, 5, 0, false}, // more than there is
			{readEvery, 1, 4, true},
			{1, 1, 0, false}, // is too old: this one reads
			{0, 1, 3, true},  // and the others go on
			{0, 2, 2, true},
			{0, 1, 0, false},
		} {
			time.Sleep(c.after)
			if before, ok := g.spend(1, c.units); ok != c.ok || before.Stock != c.before {
				t.Errorf("purchase %d of %d units is estimated from %d, %v; want %d, %v", i, c.units, before.Stock, ok, c.before, c.ok)
			}
		}
		g.saw(stock.Goods{ID: 1, Stock: 10})
		g.doubt(1)
		if _, ok := g.spend(1, 1); ok {
			t.Error("an estimate that is doubted is used")
		}
	})
}

// An item that was too short is read before it is written to, until it is not any more, and so is
// the limit of its buyers.
func TestWhatWasReadOfAnItemIsRemembered(t *testing.T) {
	c := newConditional(site{}, nil)
	for _, step := range []struct {
		perUser  int64
		rejected error
		short    bool
	}{
		{2, nil, false},
		{0, stock.ErrInsufficientStock, true},
		{3, stock.ErrAllocated, true},
		{0, stock.ErrUserLimit, false},
	} {
		c.remember(stock.Goods{ID: 1, PerUser: step.perUser}, []error{nil, step.rejected})
		_, short := c.short.Load(int64(1))
		if limit := c.limit(1); limit != step.perUser || short != step.short {
			t.Errorf("after %+v the limit is %d and the item short: %v", step, limit, short)
		}
	}
}

func TestAnEmptyBucketIsReplacedByTheNextThatHasEnough(t *testing.T) {
	buckets := repo.Buckets{"bucket/0": 5, "bucket/1": 0, "bucket/2": 3, "bucket/3": 4}
	for _, c := range []struct {
		own    int
		units  int64
		number int
		ok     bool
	}{
		{1, 3, 2, true},
		{1, 4, 3, true},
		{1, 5, 0, true},
		{3, 5, 0, true},
		{2, 4, 3, true},
		{1, 6, 0, false}, // none has so many
		{0, 5, 0, false}, // the own one has been tried
		{4, 1, 0, false}, // does not exist: the stock is to be spread anew
	} {
		if number, ok := (bucketed{count: 4}).other(buckets, c.own, c.units); ok != c.ok || number != c.number {
			t.Errorf("instead of bucket %d, %d units are taken from %d (%v), want %d (%v)", c.own, c.units, number, ok, c.number, c.ok)
		}
	}
}

func TestAStrategyIsMadeWithWhatIsConfigured(t *testing.T) {
	d := Deps{Store: new(repo.Store), Retry: Retry{Tries: 3, Step: time.Millisecond, Max: time.Second}}
	if o, ok := sqlOptimistic().New(d).(optimistic); !ok || o.tries != 3 || o.pace.step != time.Millisecond || o.pace.most != time.Second {
		t.Errorf("an optimistic writer has %d tries, and pauses between %s and %s", o.tries, o.pace.step, o.pace.most)
	}
	for rows, want := range map[int]struct {
		buckets int
		units   int64
	}{-1: {1, 1}, 0: {1, 1}, 5: {5, 5}, repo.MaxUnitRows + 1: {repo.MaxUnitRows + 1, repo.MaxUnitRows}} {
		d.Buckets, d.UnitRows = rows, rows
		buckets, _ := sqlBucket().New(d).(bucketed)
		units, _ := sqlUnit().New(d).(unitRows)
		if buckets.count != want.buckets || units.most != want.units {
			t.Errorf("configured for %d rows, there are %d buckets and %d unit rows; want %+v", rows, buckets.count, units.most, want)
		}
	}
}

func TestTheNameOfALockIsThatOfItsItem(t *testing.T) {
	for _, id := range []int64{1, 1 << 40} {
		should.Be(t, must.Get(ItemOf(lockName(id)))(t), id, lockName(id), "is of item")
	}
	for _, name := range []string{"", "7", "goods/", "goods/x", "orders/7"} {
		if got, err := ItemOf(name); err == nil {
			t.Errorf("%q is of item %d", name, got)
		}
		if floor, err := floorOf(nil)(t.Context(), name); err == nil {
			t.Errorf("the store has seen token %d of %q", floor, name)
		}
	}
}

// The pauses of losers fit the number of races that they lose, and are bounded.
func TestTheWindowOfPausesSettlesAtSixteenSteps(t *testing.T) {
	p := &pace{step: time.Millisecond, most: time.Minute}
	for range 1000 {
		p.lost()
		p.won()
	}
	if p.window < 14*p.step || p.window > 16*p.step {
		t.Errorf("with as many races won as lost, pauses are drawn from %s", p.window)
	}
	p.most = 20 * p.step
	for range 1000 {
		if pause := p.lost(); pause > p.most {
			t.Errorf("a pause takes %s, want at most %s", pause, p.most)
		}
	}
	for range 1000 {
		p.won()
	}
	if p.window > p.step {
		t.Errorf("after a thousand races won, pauses are drawn from %s", p.window)
	}
}

// A sale that loses no race narrows the window.
func TestASaleNarrowsTheWindowOfPauses(t *testing.T) {
	store := labtest.Open(t, &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "s.db")}, "replica-1")
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
	s := optimistic{store: site{Store: store}, observer: unobserved{}, tries: 1, pace: &pace{step: time.Millisecond, most: time.Second, window: 16 * time.Millisecond}}
	must.Get(s.Deduct(t.Context(), 1, []stock.Purchase{{RequestID: "k", Quantity: 1}}))(t)
	should.Be(t, s.pace.window, 15*time.Millisecond, "after a sale pauses are drawn from")
}

// A sale from a copy ends with the lease that it is made under.
func TestASaleFromACopyEndsWithItsLease(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	client := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		<-over // Redis does not answer
		return nil, errors.New("over")
	}})
	lease := lock.NewHeld(1, func(context.Context) error { return nil })
	lease.Lose()
	g := newGuarded(Deps{Store: new(repo.Store), LockWait: time.Second}, granted{lease})
	s := lockedGetSet{g, reserving{kept: &preheater{client: client, wait: 300 * time.Millisecond, log: slog.New(slog.DiscardHandler)}}}
	should.Reject(s.Deduct(t.Context(), 1, make([]stock.Purchase, 1)))(t, stock.ErrLeaseLost)
}

// Locked makes an entry of a lock that only a test has.
var Locked = ofLock

// ErrDoesNotFit is what a test returns that takes no units.
var ErrDoesNotFit = errDoesNotFit

// Conditional takes units as a test does.
func Conditional(store *repo.Store, take func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, err error)) Strategy {
	return newConditional(site{Store: store}, take)
}

// Idle reports whether a Batcher keeps nothing of any item.
func TakeFromBucket(ctx context.Context, s Strategy, goodsID, units int64) error {
	b := s.(bucketed) //nolint:forcetypeassert // a panic fails the test as well
	return b.store.InTx(ctx, func(tx *repo.Tx) error { return b.take(ctx, tx, stock.Goods{ID: goodsID}, units) })
}
