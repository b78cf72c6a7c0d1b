package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/testlog"
)

// opened is a store of a migrated SQLite file.
func opened(t *testing.T, path string) *repo.Store {
	t.Helper()
	store, err := repo.Open(t.Context(), backend.SQLOptions{
		Driver: repo.SQLite, DSN: path, MaxOpen: 1, LockWait: 50 * time.Millisecond, ConnectTimeout: time.Second,
	}, repo.Options{})
	must.Do(t, err)
	must.Get(store.MigrateUp(t.Context()))(t)
	return store
}

// What another replica switched is logged once; so is a database that does not answer, however
// often it is asked, and what was known stays in force.
func TestAChangeOfTheSwitchesIsLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, other, log := opened(t, path), opened(t, path), new(testlog.Lines)
		c := &Catalogue{switches: newSwitches(store), log: slog.New(slog.NewTextHandler(log, nil))}
		must.Do(t, c.LookAtSwitches(t.Context()))
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go c.KeepSwitches(ctx)
		hang := func() error { c.switches.turn <- struct{}{}; return nil }
		goOn := func() error { <-c.switches.turn; return nil }
		for _, step := range []struct {
			name              string
			do                func() error
			switched, failing int
		}{
			{"nothing", func() error { return nil }, 0, 0},
			{"another replica switches", func() error { return other.SwitchOff(t.Context(), "naive", "it oversells") }, 1, 0},
			{"nothing more", other.Close, 1, 0},
			{"a look takes too long", hang, 1, 1},
			{"it is over", goOn, 1, 1},
			{"another takes too long", hang, 1, 2},
			{"it is over", goOn, 1, 2},
			{"the database is gone", store.Close, 1, 3},
		} {
			must.Do(t, step.do())
			time.Sleep(10 * switchesEvery)
			synctest.Wait()
			if switched, failing := log.Count("strategies were switched"), log.Count("cannot refresh"); switched != step.switched || failing != step.failing {
				t.Errorf("%s: the log has %d switches and %d failures, want %d and %d", step.name, switched, failing, step.switched, step.failing)
			}
		}
		if reason, off := c.SwitchedOff("naive"); !off || reason != "it oversells" || log.Count(`off.naive="it oversells"`) != 1 {
			t.Errorf("what is switched off is %q, %v, and the log has\n%s", reason, off, log)
		}
	})
}

// Of an item with units in Redis a replica knows that it exists, also where the database is gone.
func TestAnItemWithUnitsInRedisIsKnownWithoutTheDatabase(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	for id := range int64(3) {
		must.Do(t, store.CreateGoods(t.Context(), id, 10, fmt.Sprint("create ", id)))
	}
	known := newSwitches(store)
	if known.hasUnitsInRedis(1) {
		t.Error("units are known before the first look")
	}
	for _, allocation := range []string{"another", redisstock.Allocation} { // each look finds what there is by now
		must.Get(store.Fill(t.Context(), map[string]int64{"another": 2, redisstock.Allocation: 1}[allocation], allocation, 0))(t)
		must.Get(known.look(t.Context()))(t)
	}
	i := newItems(&Catalogue{store: store, switches: known, batch: 10, timeout: time.Second, log: slog.New(slog.DiscardHandler)})
	must.Do(t, store.Close())
	for id, want := range []bool{false, true, false} {
		if err := i.require(t.Context(), int64(id)); (err == nil) != want || errors.Is(err, stock.ErrUnknownGoods) {
			t.Errorf("item %d: %v, want that it is known: %v", id, err, want)
		}
	}
}

// A sweep follows the start after a minute, and each other after an hour; a failure is logged.
func TestASweepIsMadeEveryHour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, log := opened(t, path), new(testlog.Lines)
		db, dialect, err := backend.OpenPool(backend.SQLOptions{Driver: repo.SQLite, DSN: path, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: time.Second})
		must.Do(t, err)
		c := &Catalogue{store: store, clients: &backend.Clients{DB: db, Dialect: dialect}, log: slog.New(slog.NewTextHandler(log, nil))}
		ctx, end := context.WithCancel(t.Context())
		go c.KeepSweeping(ctx)
		for i, step := range []struct {
			after         time.Duration
			swept, failed int
		}{{sweepAfter - 1, 0, 0}, {1, 1, 0}, {sweepEvery - 1, 1, 0}, {1, 2, 0}, {sweepEvery, 2, 1}} {
			must.Get(db.ExecContext(t.Context(), `INSERT INTO lock_token (lock_name, token) VALUES (?, 1)`, fmt.Sprint("goods/", 10+i)))(t)
			if step.failed > 0 {
				must.Do(t, store.Close())
			}
			time.Sleep(step.after)
			synctest.Wait()
			if swept, failed := log.Count("locks swept"), log.Count("not swept"); swept != step.swept || failed != step.failed {
				t.Errorf("after step %d the log has %d sweeps and %d failures, want %+v", i, swept, failed, step)
			}
		}
		end()
		should.Do(t, db.Close())
	})
}

// An audit of all items is made at intervals, within a limit, and none is reported after the end.
func TestAuditsAreReportedAtIntervals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		type report struct {
			after time.Duration
			items int64
			err   error
		}
		store, begun := opened(t, path), time.Now()
		must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
		var reports []report
		i := &Inventory{store: store, catalogue: &Catalogue{log: slog.New(slog.DiscardHandler)}}
		ctx, end := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() {
			i.KeepAuditing(ctx, time.Minute, 5*time.Second, func(sums stock.Audits, err error) {
				reports = append(reports, report{time.Since(begun), sums.Goods, err})
			})
		})
		keep := func(from, to time.Duration) error { // the only connection, in the middle of an audit
			time.Sleep(time.Until(begun.Add(from)))
			return store.InTx(t.Context(), func(*repo.Tx) error {
				time.Sleep(time.Until(begun.Add(to)))
				return nil
			})
		}
		err := keep(119*time.Second, 127*time.Second)
		time.AfterFunc(59*time.Second, end) // a second after the third began
		should.Do(t, errors.Join(err, keep(184*time.Second, 188*time.Second), store.Close()))
		keeping.Wait()
		if len(reports) != 2 || reports[0] != (report{time.Minute, 1, nil}) || reports[1].after != 2*time.Minute+5*time.Second || !errors.Is(reports[1].err, context.DeadlineExceeded) {
			t.Errorf("the reports are %+v, want one after a minute, and one that took too long", reports)
		}
	})
}

// What is done in rounds logs each failure and goes on; a database that is busy is none.
func TestAFailureOfARoundIsLoggedAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		keep  func(ctx context.Context, c *Catalogue)
	}{
		"totals":       {settleEvery, keepTotals},
		"reservations": {expireEvery, keepExpiring},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			synctest.Test(t, func(t *testing.T) {
				store, writer, log := opened(t, path), opened(t, path), new(testlog.Lines)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				go c.keep(ctx, &Catalogue{store: store, log: slog.New(slog.NewTextHandler(log, nil))})
				time.Sleep(c.every / 2)
				if err := writer.InTx(t.Context(), func(*repo.Tx) error { time.Sleep(c.every); return nil }); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * c.every)
				synctest.Wait()
				should.Be(t, log.Count("msg="), 0, "failures of a database that answers")
				must.Do(t, errors.Join(writer.Close(), store.Close()))
				time.Sleep(3 * c.every)
				synctest.Wait()
				should.Be(t, log.Count("msg="), 3, "failures that are logged")
			})
		})
	}
}

func keepTotals(ctx context.Context, c *Catalogue) {
	(&Inventory{store: c.store, catalogue: c}).KeepTotals(ctx)
}

func keepExpiring(ctx context.Context, c *Catalogue) {
	(&Reservations{store: c.store, catalogue: c, observer: uncounted{}}).KeepExpiring(ctx)
}

// uncounted counts nothing.
type uncounted struct{}

func (uncounted) ReservationsEnded(stock.State, int) {}
func (uncounted) PaidLate()                          {}

// unresponsive is a strategy whose backend hangs.
type unresponsive struct {
	Ahead
	notified chan int64
}

func (u unresponsive) Restocked(ctx context.Context, goodsID, _ int64, _ ...string) error {
	u.notified <- goodsID
	<-ctx.Done()
	return context.Cause(ctx)
}

// Units of many items come back, and the backend of one strategy hangs: it is notified of each item, and the round
// that follows does not wait for that.
func TestARoundDoesNotWaitForABackendThatHangs(t *testing.T) {
	const items = 20
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, copied := opened(t, path), unresponsive{notified: make(chan int64, items)}
		for id := range int64(items) {
			number := fmt.Sprintf("00000000-0000-7000-8000-%012d", id)
			must.Get(hold(t.Context(), store, id+1, stock.Purchase{RequestID: number, Quantity: 1, TTL: time.Microsecond, Number: number}))(t)
		}
		log := slog.New(slog.DiscardHandler)
		r := NewReservations(store, &Catalogue{redis: copied, log: log}, time.Hour, uncounted{})
		begun := time.Now()
		if ended, err := r.Expire(t.Context()); err != nil || ended != items || time.Since(begun) > time.Second {
			t.Errorf("%d of %d reservations are ended after %s (%v)", ended, items, time.Since(begun), err)
		}
		for range items {
			<-copied.notified
		}
		should.Do(t, errors.Join(r.Close(), store.Close()))
	})
}

// hold makes an item, and holds a unit of it.
func hold(ctx context.Context, store *repo.Store, goodsID int64, p stock.Purchase) (held stock.Outcome, err error) {
	if err := store.CreateGoods(ctx, goodsID, 1, "item "+p.Number); err != nil {
		return held, err
	}
	err = store.InTx(ctx, func(tx *repo.Tx) error {
		orders, err := tx.Append(ctx, repo.Sale{GoodsID: goodsID, Batch: []stock.Purchase{p}})
		if err != nil {
			return err
		}
		held.Order = orders[0]
		_, _, err = tx.SubtractIfEnough(ctx, goodsID, 1)
		return err
	})
	return held, err
}

// What is under way when a replica ends is cut off, and that is no failure.
func TestTheEndOfAReplicaIsNoFailureOfARound(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // the first round is under way
		keep  func(ctx context.Context, c *Catalogue)
	}{
		"switches":     {3 * switchesEvery / 2, func(ctx context.Context, c *Catalogue) { c.KeepSwitches(ctx) }},
		"totals":       {3 * settleEvery / 2, keepTotals},
		"reservations": {3 * expireEvery / 2, keepExpiring},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			synctest.Test(t, func(t *testing.T) {
				store, log := opened(t, path), new(testlog.Lines)
				catalogue := &Catalogue{store: store, switches: newSwitches(store), log: slog.New(slog.NewTextHandler(log, nil))}
				ctx, end := context.WithCancel(t.Context())
				if err := store.InTx(t.Context(), func(*repo.Tx) error { // it keeps the only connection
					var keeping sync.WaitGroup
					keeping.Go(func() { c.keep(ctx, catalogue) })
					time.Sleep(c.after)
					end()
					keeping.Wait()
					return nil
				}); err != nil {
					t.Error(err)
				}
				if lines := log.Count("msg="); lines > 0 {
					t.Errorf("the log has\n%s", log)
				}
				should.Do(t, store.Close())
			})
		})
	}
}

// The database has gone between the write and the look: no client may learn that
// nothing happened, but for the one whose switch was not written.
func TestASwitchThatCannotBeSeenMayHaveHappened(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	must.Do(t, store.Close())
	c := &Catalogue{switches: newSwitches(store)}
	should.Fail(t, c.switchBy(t.Context(), nil), stock.ErrUnknownOutcome) // what was written and cannot be seen
	if err := c.switchBy(t.Context(), stock.ErrBusy); !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("what was not written is answered with %v, want %v", err, stock.ErrBusy)
	}
}

func TestKeepingTotalsOutlivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*settleEvery/2)
		defer cancel()
		log := new(testlog.Lines)
		NewInventory(nil, &Catalogue{log: slog.New(slog.NewTextHandler(log, nil))}).KeepTotals(ctx) // it has no store
		should.Be(t, log.Count("msg="+background.PanicMessage+" "), 2, "panics of two rounds")
		should.Be(t, log.Count(`msg="running totals not brought up to date"`), 2, "rounds that failed by them")
	})
}
