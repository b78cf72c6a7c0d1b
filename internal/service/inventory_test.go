package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// cancelling cancels a request when it is notified of a restock, which is after the
// commit.
type cancelling struct {
	strategy.Strategy
	service.Ahead
	cancel context.CancelFunc
	ended  error // what it sees of that
	units  int64
}

func (c *cancelling) Restocked(ctx context.Context, _, units int64, _ ...string) error {
	c.cancel()
	c.ended, c.units = context.Cause(ctx), units
	return c.ended
}

func TestARestockReachesTheCopyOfACancelledRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	copied := &cancelling{cancel: cancel}
	s := openBeside(t, copied)
	s.create(t, 1, 1)
	_, _ = s.inventory.Restock(ctx, 1, 3, "") // its client has left
	must.Do(t, s.inventory.Close())
	if copied.ended != nil || copied.units != 3 {
		t.Errorf("it was notified of %d units for no longer than the request lasts: %v", copied.units, copied.ended)
	}
}

// openBeside opens a replica on SQLite that has sql-conditional and one strategy more.
func openBeside(t *testing.T, another strategy.Strategy) shop {
	t.Helper()
	entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != "sql-conditional" })
	entries = append(entries, strategy.Entry{Name: "another", New: func(strategy.Deps) strategy.Strategy { return another }})
	store, catalogue := openEntries(t, entries...)
	return shop{service.NewInventory(store, catalogue), []*service.Catalogue{catalogue}, 1}
}

// notifiedLate is a copy of the stock that cannot be notified at first.
type notifiedLate struct {
	strategy.Strategy
	service.Ahead
	notified []int64
}

func (n *notifiedLate) Restocked(_ context.Context, _, units int64, _ ...string) error {
	if n.notified = append(n.notified, units); len(n.notified) == 1 {
		return stock.ErrBackendUnavailable
	}
	return nil
}

// A restock that could not notify a copy of the stock is sent again under its key: the
// copy is notified, and the units are added once.
func TestARepeatedRestockNotifiesTheCopies(t *testing.T) {
	copied := &notifiedLate{}
	s := openBeside(t, copied)
	s.create(t, 1, 5)
	should.Reject(s.inventory.Restock(t.Context(), 1, 3, "delivery"))(t, stock.ErrUnknownOutcome, "a restock that could not notify a copy is answered with")
	goods := must.Get(s.inventory.Restock(t.Context(), 1, 3, "delivery"))(t)
	should.Be(t, goods.Stock, 8, "again it is answered with, in units,")
	should.Equal(t, copied.notified, []int64{3, 3}, "the copy was notified of")
}

// Once nothing is pending, the audit has every order.
func TestAnAuditWithNothingPendingHasEveryOrder(t *testing.T) {
	pending := new(outbox)
	s := openBeside(t, pending)
	for goods, audit := range map[int64]func(context.Context, int64) (service.Audit, error){1: s.inventory.Audit, 2: s.inventory.AuditInFull} {
		s.create(t, goods, 5)
		pending.settle = func() { s.sells(t, "sql-conditional", goods, 1) }
		got, err := audit(t.Context(), goods)
		if err != nil || *got.Pending != 0 || got.Orders != 1 {
			t.Errorf("the audit of item %d has %d orders, and %d are pending (%v); want 1 and 0", goods, got.Orders, *got.Pending, err)
		}
	}
}

// limits is a strategy that checks the limit of a buyer by itself, and cannot be notified at first.
type limits struct {
	strategy.Strategy
	service.Ahead
	notified []int64
	left     time.Duration // that it had for the last
}

func (l *limits) LimitChanged(ctx context.Context, goodsID int64) error {
	until, _ := ctx.Deadline()
	l.left = time.Until(until)
	if l.notified = append(l.notified, goodsID); len(l.notified) == 1 {
		return stock.ErrBackendUnavailable
	}
	return nil
}

// A limit is checked everywhere, or it is unknown whether it is; setting it again finds out.
func TestALimitThatWasNotNotifiedIsUnknown(t *testing.T) {
	elsewhere := &limits{}
	s := openBeside(t, elsewhere)
	s.create(t, 7, 5)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.inventory.SetLimit(ended, 7, 2); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("a request that has ended is answered with %v, want %v", err, context.Canceled)
	}
	if goods, err := s.inventory.Goods(t.Context(), 7); err != nil || goods.PerUser != 0 || len(elsewhere.notified) != 0 {
		t.Errorf("it has begun something: %+v, %v", goods, err)
	}
	if _, err := s.inventory.SetLimit(t.Context(), 7, 2); !errors.Is(err, stock.ErrUnknownOutcome) || !errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("a limit that is not checked everywhere is answered with %v, want %v with the cause", err, stock.ErrUnknownOutcome)
	}
	if goods, err := s.inventory.SetLimit(t.Context(), 7, 2); err != nil || goods.PerUser != 2 || !slices.Equal(elsewhere.notified, []int64{7, 7}) {
		t.Errorf("again it is answered with %+v, %v, and notified of %v", goods, err, elsewhere.notified)
	}
	if elsewhere.left > 30*time.Second {
		t.Errorf("the notification may take %s", elsewhere.left)
	}
}

// Each row is sent after item 1 was created with 10 units under "c", and got 5 more under "r".
func TestAKeyOfTheAdminStandsForOneWrite(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) { assertKeysStandForOneWrite(t, open(t, d, 1)) })
}

func assertKeysStandForOneWrite(t *testing.T, s shop) {
	t.Helper()
	create := func(goodsID, units int64, choice stock.Choice, key string) func() (stock.Goods, error) {
		return func() (stock.Goods, error) {
			return s.inventory.Create(t.Context(), stock.NewItem{GoodsID: goodsID, Units: units, Choice: choice}, key)
		}
	}
	restock := func(goodsID, units int64, key string) func() (stock.Goods, error) {
		return func() (stock.Goods, error) { return s.inventory.Restock(t.Context(), goodsID, units, key) }
	}
	buckets, fenced := stock.Choice{Strategy: "sql-bucket"}, stock.Choice{Strategy: "sql-bucket", Fence: new(true)}
	for _, c := range []struct {
		name  string
		write func() (stock.Goods, error)
		want  error
		left  int64 // of item 1
	}{
		{"a creation", create(1, 10, buckets, "c"), nil, 10},
		{"the same again", create(1, 10, buckets, "c"), nil, 10},
		{"the same again, with a choice that is not possible", create(1, 10, fenced, "c"), nil, 10},
		{"its key with other units", create(1, 11, buckets, "c"), stock.ErrKeyReused, 10},
		{"its key for another item", create(2, 10, buckets, "c"), stock.ErrKeyReused, 10},
		{"another creation of it", create(1, 10, buckets, "d"), stock.ErrGoodsExist, 10},
		{"another creation of it without a key", create(1, 10, buckets, ""), stock.ErrGoodsExist, 10},
		{"a creation with a choice that is not possible", create(3, 10, fenced, "e"), service.ErrNotFenceable, 10},
		{"a restock", restock(1, 5, "r"), nil, 15},
		{"the restock again", restock(1, 5, "r"), nil, 15},
		{"its key with other units ", restock(1, 6, "r"), stock.ErrKeyReused, 15},
		{"its key for an unknown item", restock(9, 5, "r"), stock.ErrKeyReused, 15},
		{"the key of the creation", restock(1, 6, "c"), stock.ErrKeyReused, 15},
		{"the key of the creation, with its units", restock(1, 10, "c"), stock.ErrKeyReused, 15},
		{"a creation under the key of the restock, with its units", create(1, 5, stock.Choice{}, "r"), stock.ErrKeyReused, 15},
		{"a creation of another item under the key of the restock", create(2, 5, stock.Choice{}, "r"), stock.ErrKeyReused, 15},
		{"a restock without a key", restock(1, 1, ""), nil, 16},
		{"another one without a key", restock(1, 1, ""), nil, 17},
		{"a restock of an unknown item", restock(9, 5, "u"), stock.ErrUnknownGoods, 17},
		{"a restock beyond the limit", restock(1, stock.MaxStock, "m"), stock.ErrStockLimit, 17},
		{"an item beside it", create(4, 3, stock.Choice{}, "o"), nil, 17},
		{"the key of the restock for that item", restock(4, 5, "r"), stock.ErrKeyReused, 17},
	} {
		answer, err := c.write()
		if !errors.Is(err, c.want) || err == nil && answer.ID == 1 && answer.Stock != c.left {
			t.Errorf("%s: %+v, %v, want %d units, %v", c.name, answer, err, c.left, c.want)
		}
		should.Be(t, must.Get(s.inventory.Goods(t.Context(), 1))(t).Stock, c.left, "after … there are", c.name)
	}
	should.Be(t, must.Get(s.inventory.Goods(t.Context(), 4))(t).Stock, 3, "of item 4 there are")
	if o, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, keyed("c", 10)); err != nil || o.Rejected != nil || o.Replayed {
		t.Errorf("the key of the creation is answered to a buyer with %+v, %v; want a sale", o, err)
	}
	should.Be(t, must.Get(s.inventory.Drift(t.Context(), 1))(t), (redisstock.Drift{GoodsID: 1}), "without units in Redis the drift is")
	for _, unknown := range []int64{2, 3, 9} {
		should.Reject(s.inventory.Goods(t.Context(), unknown))(t, stock.ErrUnknownGoods, "item …", unknown)
		should.Reject(s.inventory.Audit(t.Context(), unknown))(t, stock.ErrUnknownGoods, "the audit of item …", unknown)
		should.Reject(s.inventory.Recall(t.Context(), unknown))(t, stock.ErrUnknownGoods, "the recall of item …", unknown)
		should.Reject(s.inventory.Drift(t.Context(), unknown))(t, stock.ErrUnknownGoods, "the drift of item …", unknown)
	}
	if audit, err := s.inventory.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Initial != 17 || audit.Sold != 10 || audit.Pending == nil || *audit.Pending != 0 {
		t.Errorf("the audit is %+v, %v", audit, err)
	}
}

// A copy of a write that is not committed yet waits for it, and is answered as it is.
func TestACopyOfAWriteThatIsInFlightIsOneWrite(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	through, way := labtest.Through(t, d)
	slow, s := open(t, through, 1), open(t, d, 1)
	for _, c := range []struct {
		name  string
		write func(s shop) (stock.Goods, error)
		left  int64
	}{
		{"a creation", func(s shop) (stock.Goods, error) {
			return s.inventory.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10}, "c")
		}, 10},
		{"a restock", func(s shop) (stock.Goods, error) { return s.inventory.Restock(t.Context(), 1, 5, "r") }, 15},
	} {
		answers := make(chan error, 2)
		write := func(s shop) {
			item, err := c.write(s)
			if err == nil && item.Stock != c.left {
				err = fmt.Errorf("it leaves %d units, want %d", item.Stock, c.left)
			}
			answers <- err
		}
		held := way.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
		go write(slow)
		labtest.AwaitReached(t, held)
		go write(s)
		labtest.AwaitRowWait(t, d, "%", answers)
		held.Pass()
		should.Fail(t, errors.Join(<-answers, <-answers), nil, "… and its copy", c.name)
	}
}

// A change of which the second half failed is not one that nothing came of.
func TestAChangeThatWasHalfMadeIsUnknown(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	s.create(t, 1, 10)
	must.Get(openPool(t, d).ExecContext(t.Context(), `DROP TABLE tb_stock_user`))(t)
	limit := service.Change{PerUser: new(int64(2))}
	if _, err := s.inventory.Change(t.Context(), 1, limit); err == nil || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("a limit that could not be set: %v, want a failure of which nothing came", err)
	}
	limit.Choice = func(stock.Choice) stock.Choice { return stock.Choice{Strategy: "mutex"} }
	should.Reject(s.inventory.Change(t.Context(), 1, limit))(t, stock.ErrUnknownOutcome)
	_, own := s.replicas[0].Mode(1, stock.Choice{})
	should.Be(t, own.Strategy, "mutex", "it is sold by")
}

// A choice that is set, and cannot be read again, is not one that failed.
func TestAChoiceThatCannotBeReadAgainIsUnknown(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	s.create(t, 1, 10)
	must.Get(openPool(t, d).ExecContext(t.Context(), `DROP TABLE tb_strategy_off`))(t)
	change := service.Change{Choice: func(stock.Choice) stock.Choice { return stock.Choice{Strategy: "mutex"} }}
	should.Reject(s.inventory.Change(t.Context(), 1, change))(t, stock.ErrUnknownOutcome)
	should.Reject(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: 2, Units: 10, Choice: stock.Choice{Strategy: "mutex"}}, ""))(t, stock.ErrUnknownOutcome, "the item was created, and the answer is")
}

// An item is created with its limit, which its key does not set again. A maximum of its own does not ask
// whether the strategy is possible.
func TestAnItemIsCreatedWithItsLimit(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	c := s.replicas[0]
	must.Do(t, errors.Join(c.SetDefault(service.Mode{Strategy: "sql-conditional"}), c.SwitchOff(t.Context(), "sql-conditional", "late")))
	for _, perUser := range []int64{3, 5} {
		goods, err := s.inventory.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10, PerUser: perUser, Choice: stock.Choice{MaxQuantity: new(perUser)}}, "key")
		if err != nil || goods.PerUser != 3 || c.MaxQuantity(1) != 3 {
			t.Errorf("created with a limit of %d it is %+v (%v), of %d units at most; want 3", perUser, goods, err, c.MaxQuantity(1))
		}
	}
}

// What is chosen with a creation or a change is how the item is sold at once, and what is not
// possible changes nothing.
func TestAChoiceIsCheckedAndHoldsAtOnce(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	c := s.replicas[0]
	must.Do(t, c.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10, Choice: stock.Choice{Strategy: "mutex", MaxQuantity: new(int64(4))}}, ""))(t)
	own := func() service.Mode {
		_, own := c.Mode(1, stock.Choice{})
		return own
	}
	change := func(change service.Change) error {
		_, err := s.inventory.Change(t.Context(), 1, change)
		return err
	}
	to := func(choice stock.Choice) service.Change {
		return service.Change{Choice: func(stock.Choice) stock.Choice { return choice }}
	}
	if own().Strategy != "mutex" || c.MaxQuantity(1) != 4 {
		t.Errorf("created, it is sold by %s, %d units at most", own(), c.MaxQuantity(1))
	}
	for name, c := range map[string]struct {
		change service.Change
		want   error
	}{
		"an unknown strategy":              {to(stock.Choice{Strategy: "hope"}), service.ErrUnknownStrategy},
		"no fence":                         {to(stock.Choice{Strategy: "sql-conditional", Fence: new(true)}), service.ErrNotFenceable},
		"no backend":                       {to(stock.Choice{Strategy: "redis-lua"}), service.ErrStrategyRejected},
		"a limit, and an unknown strategy": {service.Change{PerUser: new(int64(2)), Choice: func(stock.Choice) stock.Choice { return stock.Choice{Strategy: "hope"} }}, service.ErrUnknownStrategy},
	} {
		if err := change(c.change); !errors.Is(err, c.want) || own().Strategy != "mutex" {
			t.Errorf("%s: %v, want %v; it is sold by %s", name, err, c.want, own())
		}
	}
	should.Be(t, must.Get(s.inventory.Goods(t.Context(), 1))(t).PerUser, 0, "the limit after a change that was rejected")
	if err := change(service.Change{PerUser: new(int64(2)), Choice: func(before stock.Choice) stock.Choice { before.Strategy = "sql-bucket"; return before }}); err != nil {
		t.Fatal(err)
	}
	if item, err := s.inventory.Goods(t.Context(), 1); err != nil || item.PerUser != 2 || own().Strategy != "sql-bucket" || c.MaxQuantity(1) != 4 {
		t.Errorf("changed to %+v (%v), sold by %s, %d units at most", item, err, own(), c.MaxQuantity(1))
	}
	// What else is set of an item does not ask whether its strategy is possible.
	must.Do(t, c.SwitchOff(t.Context(), "sql-bucket", "late"))
	must.Do(t, change(service.Change{Choice: func(before stock.Choice) stock.Choice { before.MaxQuantity = nil; return before }}))
	should.Be(t, c.MaxQuantity(1), stock.MaxQuantity, "the most units of a purchase")
	if got := c.Unserved(); len(got) != 1 || c.ItemsThrough("sql-bucket") != 1 || c.ItemsThrough("mutex") != 0 {
		t.Errorf("%v are not served, %d items are sold through sql-bucket, %d through mutex", got, c.ItemsThrough("sql-bucket"), c.ItemsThrough("mutex"))
	}
	if goods, err := s.inventory.Change(t.Context(), 1, service.Change{PerUser: new(int64(3))}); err != nil || goods.ID != 1 || goods.PerUser != 3 || own().Strategy != "sql-bucket" {
		t.Errorf("a limit of 3 was set: %+v, %v, and it is sold by %s", goods, err, own())
	}
	should.Reject(s.inventory.Change(t.Context(), 9, service.Change{PerUser: new(int64(3))}))(t, stock.ErrUnknownGoods, "a limit of an unknown item")
	should.Reject(s.inventory.Change(t.Context(), 9, to(stock.Choice{Strategy: "mutex"})))(t, stock.ErrUnknownGoods, "an unknown item")
}

// A limit that goes on without its request is shown in progress, then as failed until it is made again, here or by
// another replica, which cannot know of either.
func TestALimitInTheBackgroundIsShown(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	locking := labtest.Open(t, d, "locking")
	s, other := open(t, d, 1), open(t, d, 1)
	s.create(t, 1, 10)
	state := func(of shop) string {
		changes := must.Get(of.inventory.Item(t.Context(), 1))(t).Changes
		if len(changes) == 0 {
			return ""
		}
		if c := changes[0]; len(changes) > 1 || c.Kind != stock.ChangeOfLimit || c.PerUser != 2 || c.Since.IsZero() || (c.Err != nil) != (c.State == stock.ChangeFailed) {
			t.Errorf("it has %+v, want a limit of 2", changes)
		}
		return changes[0].State
	}
	failed := func() bool { return state(s) == stock.ChangeFailed }
	fail := func() {
		must.Do(t, locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.inventory.SetLimit(soon, 1, 2); err == nil {
				t.Error("a limit of a locked item is set")
			}
			if got, elsewhere := state(s), state(other); got != stock.ChangeInProgress || elsewhere != "" {
				t.Errorf("it is %q, and %q at another replica; want it in progress here", got, elsewhere)
			}
			should.Be(t, labtest.Eventually(20*time.Second, failed), true, "it is …, want it failed", state(s))
			return nil
		}))
	}
	fail()
	if !failed() {
		t.Error("the failure is forgotten")
	}
	must.Get(s.inventory.SetLimit(t.Context(), 1, 2))(t)
	should.Be(t, state(s), "", "made again it is")
	if _, err := s.inventory.SetLimit(t.Context(), 1, 0); err != nil {
		t.Error(err)
	}
	fail()
	must.Get(other.inventory.SetLimit(t.Context(), 1, 2))(t)
	should.Be(t, state(s), "", "made by another replica it is")
}

// Units that a strategy has allocated are recalled for a correction, by whatever strategy the item is sold.
func TestACorrectionReachesUnitsInEveryAllocation(t *testing.T) {
	s := openAll(t, lab.Database(t, servers.MariaDB))
	for i, name := range []string{"sql-conditional", "sql-bucket", "sql-unit", "redis-stock", "redis-decr"} {
		t.Run(name, func(t *testing.T) {
			goods := int64(i + 1)
			s.create(t, goods, 20)
			s.sells(t, name, goods, 1, 1)
			s.settles(t, goods, 2)
			for _, c := range []struct {
				to   stock.Correction
				by   int64
				left int64
			}{
				{stock.Correction{By: -15, Reason: "fire"}, -15, 3},
				{stock.Correction{By: 4, Reason: "found"}, 4, 7},
				{stock.Correction{Counted: new(int64(5)), Reason: "counted"}, -2, 5},
				{stock.Correction{Counted: new(int64(6)), Reason: "counted again"}, 1, 6},
			} {
				for range 2 { // under one key once
					row, by, err := s.inventory.Correct(t.Context(), goods, c.to, name+c.to.Reason)
					if err != nil || by != c.by || row.Stock != c.left {
						t.Fatalf("%+v: by %d to %d (%v), want by %d to %d", c.to, by, row.Stock, err, c.by, c.left)
					}
				}
				should.Fail(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: 1, Reason: "other"}, name+c.to.Reason)), stock.ErrKeyReused, "the key with another correction")
				s.sells(t, name, goods, 1) // and the strategy allocates again
				soon(t, "the orders in the ledger", func() bool {
					audit, err := s.inventory.Audit(t.Context(), goods)
					return err == nil && audit.Pending != nil && *audit.Pending == 0
				})
				should.Fail(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: -c.left, Reason: "too much"}, "")), stock.ErrBelowZero, "one unit more than there are")
				must.Do(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: 1, Reason: "back"}, "")))
			}
			s.settles(t, goods, 6)
		})
	}
}
