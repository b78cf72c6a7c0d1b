package repo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// soon is how long after a deadline an answer may come.
const soon = 900 * time.Millisecond

// bounded is a store whose transactions end within a time, reached through a proxy.
func bounded(t *testing.T, d *servers.Database, longest time.Duration) (*repo.Store, *servers.Proxy) {
	t.Helper()
	create(t, labtest.Open(t, d, "r"), 1, 10)
	through, proxy := labtest.Through(t, d)
	s := open(t, through, backend.SQLOptions{MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: 5 * time.Second, TxTimeout: longest}, repo.Options{})
	return s, proxy
}

// ends fails where something does not end between two moments from now.
func ends(t *testing.T, from, to time.Duration, do func() error) error {
	t.Helper()
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if took := time.Since(start); took < from {
			t.Errorf("it ended after %s, want %s at least", took, from)
		}
		return err
	case <-time.After(to):
		t.Fatalf("it has not ended after %s", to)
		return nil
	}
}

// way is one to sell, and the statement that makes a sale definite.
type way struct {
	ends string
	sell func(ctx context.Context, s *repo.Store, requestID string) error
}

// eachWay runs a test for a transaction and for the procedure, which commits by itself.
func eachWay(t *testing.T, test func(t *testing.T, d *servers.Database, by way)) {
	t.Helper()
	for name, by := range map[string]way{
		"Transaction": {"COMMIT", func(ctx context.Context, s *repo.Store, id string) error { return sell(ctx, s, 1, id) }},
		"Procedure":   {"CALL stockd_sell", func(ctx context.Context, s *repo.Store, id string) error { return call(ctx, s, 1, one(id)) }},
	} {
		t.Run(name, func(t *testing.T) { lab.EachServer(t, func(t *testing.T, d *servers.Database) { test(t, d, by) }) })
	}
}

// Without its answer a sale is unknown, and the same request id finds out.
func TestAnUnansweredSaleIsUnknownInTime(t *testing.T) {
	const deadline = 500 * time.Millisecond
	for name, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"AtTheDeadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, deadline)
		},
		"WithoutContext": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"WhenCanceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(deadline, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, d *servers.Database, by way) {
				s, proxy := bounded(t, d, time.Second)
				held := proxy.Arm(servers.Rule{Sent: by.ends, Do: servers.HoldReply})
				defer held.Pass()
				ctx, cancel := limit(t.Context())
				defer cancel()
				err := ends(t, 0, time.Second+soon, func() error { return by.sell(ctx, s, "held") })
				if backend, ok := errors.AsType[*stock.BackendError](err); !errors.Is(err, stock.ErrUnknownOutcome) || !ok || backend.Backend != repo.MySQL {
					t.Errorf("an unanswered sale is %v, want %v of the database", err, stock.ErrUnknownOutcome)
				}
				should.Fail(t, by.sell(t.Context(), s, "held"), stock.ErrDuplicateRequest, "again")
				wantOrders(t, s, 1)
			})
		})
	}
}

// A transaction ends with its caller, and with its time. A statement that finds it ended, while its own context has not, is
// answered why that was.
func TestATransactionThatHasEndedSaysWhy(t *testing.T) {
	const longest = 100 * time.Millisecond
	gone := errors.New("the buyer hung up")
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, _ := bounded(t, d, longest)
		ctx, hangUp := context.WithCancelCause(t.Context())
		for _, end := range []struct {
			come func()
			why  error
		}{
			{func() { time.Sleep(2 * longest) }, stock.ErrBusy},
			{func() { hangUp(gone) }, gone},
		} {
			err := s.InTx(ctx, func(tx *repo.Tx) (err error) {
				for end.come(); err == nil; {
					_, err = tx.Goods(context.WithoutCancel(ctx), 1)
				}
				return err
			})
			if !errors.Is(err, end.why) || errors.Is(err, stock.ErrBackendUnavailable) {
				t.Errorf("it ends with %v, want %v", err, end.why)
			}
		}
	})
}

// A client that hangs up while its sale is being committed does not make it unknown.
func TestAHangUpDoesNotCutASale(t *testing.T) {
	eachWay(t, func(t *testing.T, d *servers.Database, by way) {
		s, proxy := bounded(t, d, 5*time.Second)
		held := proxy.Arm(servers.Rule{Sent: by.ends, Do: servers.HoldReply})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- by.sell(ctx, s, "held") }()
		labtest.AwaitReached(t, held)
		cancel()
		held.Pass()
		should.Do(t, <-done)
		wantOrders(t, s, 1)
	})
}

// The running totals rely on it: a row that the server inserts after the deadline
// of its transaction is never committed, however the server and the replica were
// paused.
func TestARowInsertedAfterItsDeadlineIsNeverCommitted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, proxy := bounded(t, d, 500*time.Millisecond)
		held := proxy.Arm(servers.Rule{Sent: "INSERT INTO tb_stock_ledger", Do: servers.Hold})
		err := ends(t, 500*time.Millisecond, 500*time.Millisecond+soon, func() error { return sell(t.Context(), s, 1, "late") })
		if !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("it failed with %v, want %v", err, stock.ErrBackendUnavailable)
		}
		held.Pass() // now the server gets it
		should.Do(t, sell(t.Context(), s, 1, "late"))
		if quick, full := bothAudits(t, s, 1); quick.Orders != 1 || full.Orders != 1 || !full.Clean {
			t.Errorf("the audit is %+v, in full %+v; want one sale", quick, full)
		}
	})
}

// A process that was paused may see its deadline late. What it has in hand is not
// committed all the same.
func TestNothingIsCommittedAfterTheDeadline(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, _ := bounded(t, d, 300*time.Millisecond)
		err := s.InTx(t.Context(), func(tx *repo.Tx) error {
			_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "late", Quantity: 1}}})
			time.Sleep(400 * time.Millisecond) // the pause
			return err
		})
		if err == nil || errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("it ended with %v, want an error that is not %v", err, stock.ErrUnknownOutcome)
		}
		should.Be(t, len(must.Get(s.Orders(t.Context(), "late"))(t)), 0, "the ledger has")
	})
}

// An id is only settled when no transaction that was handed it can still insert it.
func TestAnIDIsSettledAfterTheLongestTransaction(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		const longest = 40 * time.Second
		s, _ := bounded(t, d, longest)
		must.Do(t, s.SettleAll(t.Context()))
		for _, step := range []struct {
			age       time.Duration
			unsettled int64
		}{{longest, 1}, {10 * time.Second, 0}} {
			must.Do(t, s.AgeBy(t.Context(), step.age))
			must.Do(t, s.SettleAll(t.Context()))
			should.Be(t, unsettled(t, s), step.unsettled, "later … ids are not settled", step.age)
		}
	})
}

// A commit may happen after its purchase was answered with unknown. The next holder
// of its lock reads what it leaves.
func TestAPendingCommitIsWaitedForUnderALock(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, proxy := bounded(t, d, 400*time.Millisecond)
		direct := labtest.Open(t, d, "r2")
		held := proxy.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
		should.Fail(t, sell(t.Context(), s, 1, "pending"), stock.ErrUnknownOutcome, "the sale is")
		time.AfterFunc(200*time.Millisecond, held.Pass)
		goods := must.Get(direct.GoodsSettled(t.Context(), 1))(t)
		should.Be(t, goods.Stock, 9, "the next holder reads")
	})
}
