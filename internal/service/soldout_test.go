package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A crowd on both replicas asks for more than there ever is, so that reads of the item are always under way. What
// one replica has put back is sold by the next purchase at the other one.
func TestAUnitThatIsBackIsSoldAtOnceAmidARejectedCrowd(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	s := openAll(t, d)
	reservations, _ := s.reservations(t, d)
	for goods, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-optimistic", "redis-lua", "mutex"} {
		t.Run(name, func(t *testing.T) {
			goods := int64(goods + 1)
			s.create(t, goods, 0)
			ctx, leave := context.WithCancel(t.Context())
			var crowd sync.WaitGroup
			var rejected atomic.Int64
			for i := range 8 {
				crowd.Go(func() {
					for ctx.Err() == nil {
						p := stock.Purchase{Quantity: 2, RequestID: rand.Text(), Keyed: i%3 == 0}
						outcome, err := s.strategy(t, i%2, name).Deduct(ctx, goods, p)
						if ctx.Err() == nil && (err != nil || !errors.Is(outcome.Rejected, stock.ErrInsufficientStock)) {
							t.Errorf("one of the crowd gets %+v (%v)", outcome, err)
						}
						rejected.Add(1)
					}
				})
			}
			sold := func(how string) string {
				outcome, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
				if err != nil || outcome.Rejected != nil {
					t.Fatalf("after a %s: %v, %v", how, err, outcome.Rejected)
				}
				return outcome.Order.ID
			}
			for range 100 {
				must.Get(s.inventory.Restock(t.Context(), goods, 1, ""))(t)
				order := sold("restock")
				_, _, err := reservations[1].GiveBack(t.Context(), order, 1, "", false)
				must.Do(t, err)
				sold("return")
			}
			leave()
			crowd.Wait()
			if rejected.Load() < 100 {
				t.Errorf("the crowd was rejected %d times", rejected.Load())
			}
			assertSold(t, s, goods, 200)
		})
	}
}

// waits counts waits for locks.
type waits struct {
	strategy.Observer

	locks atomic.Int64
}

func (w *waits) Waited(time.Duration) { w.locks.Add(1) }

// frozen is a replica on a database whose replies can be held up.
type frozen struct {
	shop
	*waits
	*servers.Proxy

	asked func() int // how many statements the database has got
}

func openFrozen(t *testing.T) frozen {
	t.Helper()
	direct := lab.Database(t, servers.MariaDB)
	d, proxy := labtest.Through(t, direct)
	store, w := labtest.Open(t, d, "replica-1"), &waits{Observer: strategy.Deps{}.Observer()}
	catalogue := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{
		Store: store, LockWait: 5 * time.Second, Lock: lab.Locks(t, d, backend.Redis), Group: strategy.Group{Batch: 50, Units: 1000, Queue: 200},
		Observe: func(string) strategy.Observer { return w }, Retry: strategy.Retry{Tries: 5, Max: time.Millisecond},
	}, 5*time.Second)
	closeAfter(t, catalogue)
	pool := openPool(t, direct)
	return frozen{shop{service.NewInventory(store, catalogue), []*service.Catalogue{catalogue}, 1}, w, proxy, func() int {
		var name string
		var n int
		must.Do(t, pool.QueryRowContext(t.Context(), `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n))
		return n
	}}
}

// crowd has so many callers ask while no reply comes, and returns how many statements answer all of them.
func (f frozen) crowd(callers int, ask func(i int)) (statements int) {
	before := f.asked()
	f.Freeze()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { ask(i) })
	}
	time.Sleep(100 * time.Millisecond) // those that ask later are another read
	f.Thaw()
	all.Wait()
	return f.asked() - before - 1
}

func TestACrowdThatGetsNothingTakesNoLockAndSharesItsReads(t *testing.T) {
	const callers = 200
	f := openFrozen(t)
	for goods, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-optimistic", "sql-for-update", "mutex", "redis-lua", "redis-lua grouped"} {
		goods := int64(goods + 1)
		f.create(t, goods, 1)
		buyers := f.strategy(t, 0, name)
		for _, key := range []string{"first", "rejected"} {
			must.Get(buyers.Deduct(t.Context(), goods, keyed(fmt.Sprint(key, goods), 1)))(t)
		}
		buy := func(key func(i int) string) int {
			f.locks.Store(0)
			return f.crowd(callers, func(i int) {
				p := keyed(key(i), 1)
				p.Keyed = p.RequestID != ""
				outcome, err := buyers.Deduct(t.Context(), goods, p)
				if first := p.RequestID == fmt.Sprint("first", goods); err != nil || outcome.Replayed != first || errors.Is(outcome.Rejected, stock.ErrInsufficientStock) == first {
					t.Errorf("%s: %+v (%v)", name, outcome, err)
				}
			})
		}
		unkeyed := buy(func(int) string { return "" })
		withKeys := buy(func(i int) string {
			if i == 7 {
				return fmt.Sprint("first", goods)
			}
			return rand.Text()
		})
		// One read is under way when the others come; keys are searched for by fifty.
		if unkeyed > callers/10 || withKeys > callers/5 || f.locks.Load() != 0 {
			t.Errorf("%s: %d rejections take %d statements, with keys %d, and %d locks", name, callers, unkeyed, withKeys, f.locks.Load())
		}
	}
	shown := f.crowd(callers, func(int) {
		should.Be(t, must.Get(f.inventory.Goods(t.Context(), 1))(t).Stock, 0, "its units")
	})
	if shown > callers/10 {
		t.Errorf("%d looks at an item take %d statements", callers, shown)
	}
}

// They see what changes, and cost one read in a while. One that leaves disturbs no other.
func TestAllWhoWaitForAChangeShareTheLooks(t *testing.T) {
	const clients = 100
	f := openFrozen(t)
	f.create(t, 1, 1)
	var all sync.WaitGroup
	before, began := f.asked(), time.Now()
	for i := range clients {
		all.Go(func() {
			ctx, leave := context.WithTimeout(t.Context(), time.Minute)
			defer leave()
			if i%10 == 0 {
				ctx, leave = context.WithTimeout(ctx, 300*time.Millisecond)
				defer leave()
			}
			for {
				item, err := f.inventory.Next(ctx, 1, false)
				if left := errors.Is(err, context.DeadlineExceeded); left != (i%10 == 0) || !left && err != nil {
					t.Errorf("client %d gets %+v (%v)", i, item, err)
				}
				if err != nil || item.Stock == 6 {
					return
				}
			}
		})
	}
	time.Sleep(1200 * time.Millisecond)
	must.Get(f.inventory.Restock(t.Context(), 1, 5, ""))(t)
	all.Wait()
	const restock = 20 // statements
	if took, statements := time.Since(began), f.asked()-before; statements > restock+int(took/(500*time.Millisecond)) {
		t.Errorf("%d clients that wait cost %d statements in %s", clients, statements, took)
	}
}

func TestADatabaseThatFailsIsNeverSoldOut(t *testing.T) {
	f := openFrozen(t)
	for goods, name := range []string{"sql-conditional", "sql-conditional grouped", "mutex", "redis-lua"} {
		goods := int64(goods + 1)
		f.create(t, goods, 0)
		buyers := f.strategy(t, 0, name)
		must.Get(buyers.Deduct(t.Context(), goods, stock.Purchase{Quantity: 1}))(t)
		f.Cut()
		for _, p := range []stock.Purchase{{Quantity: 1}, keyed(rand.Text(), 1)} {
			outcome, err := buyers.Deduct(t.Context(), goods, p)
			if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != "mysql" || outcome.Rejected != nil {
				t.Errorf("%s: %+v (%v), want the database named", name, outcome, err)
			}
		}
		must.Do(t, f.Mend())
		f.Freeze()
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		patient := make(chan error, 1)
		go func() {
			outcome, err := buyers.Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
			patient <- errors.Join(outcome.Rejected, err)
		}()
		should.Reject(buyers.Deduct(ctx, goods, stock.Purchase{Quantity: 1}))(t, context.DeadlineExceeded, name, "one that leaves gets")
		leave()
		f.Thaw()
		should.Fail(t, <-patient, stock.ErrInsufficientStock, "the one that stays gets", name)
	}
}

// The buyer at its limit, the one without a name and the one for whom nothing is left are distinguished as before, and
// units that another strategy has allocated are recalled.
func TestWhatIsRejectedIsRejectedForTheSameReason(t *testing.T) {
	s := openAll(t, lab.Database(t, servers.MariaDB))
	must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 1, PerUser: 1}, ""))(t)
	conditional := s.strategy(t, 0, "sql-conditional")
	for range 3 { // it sells, is not known to be sold out, and then is
		for user, want := range map[string]error{"": stock.ErrUserUnknown, "at its limit": stock.ErrUserLimit, "late": stock.ErrInsufficientStock} {
			must.Get(conditional.Deduct(t.Context(), 1, heldBy("at its limit", 1)))(t)
			outcome := must.Get(conditional.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1, UserID: user}))(t)
			should.Fail(t, outcome.Rejected, want, "buyer", user)
		}
	}
	s.create(t, 2, 4)
	s.sells(t, "sql-bucket", 2, 1)
	outcome := must.Get(conditional.Deduct(t.Context(), 2, stock.Purchase{Quantity: 100}))(t)
	should.Fail(t, outcome.Rejected, stock.ErrInsufficientStock, "more than there is")
	s.sells(t, "sql-conditional", 2, 1, 1, 1)
	s.rejects(t, "sql-conditional", 2)
}
