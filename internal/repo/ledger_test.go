package repo_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// recent fails where a time is not of the last minute, in whole microseconds of UTC.
func recent(t *testing.T, what string, at, from time.Time) {
	t.Helper()
	if at.Before(from.Truncate(time.Microsecond)) || at.Sub(from) > time.Minute || at.Location() != time.UTC || at.Nanosecond()%1000 != 0 {
		t.Errorf("%s is of %s, want UTC from %s on", what, at, from)
	}
}

// All that is written of an order is read again, however it is looked up. What each leaves was known when
// it was written, and stays whatever is sold later.
func TestAnOrderIsReadAsItWasWritten(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "replica-1").As("redis-lua")
		createItems(t, s, 2)
		from, held := time.Now(), uuid.Must(uuid.NewV7()).String()
		var written []stock.Order
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) (err error) {
			written, err = tx.Append(t.Context(),
				repo.Sale{GoodsID: 1, Token: 7, Left: new(int64(4)), Batch: []stock.Purchase{
					{RequestID: "a uann", Quantity: 2, UserID: "ann"}, {RequestID: "b", Quantity: 3}, {RequestID: "c", Quantity: 1},
				}},
				repo.Sale{GoodsID: 2, Left: new(int64(5)), Batch: []stock.Purchase{
					{RequestID: "d", Quantity: 5, UserID: "bob", TTL: 90 * time.Second, Number: held},
				}},
			)
			return err
		}))
		ids := make([]string, 0, 4)
		for i, want := range []stock.Order{
			{Kind: stock.Deduction, RequestID: "a uann", GoodsID: 1, Quantity: 2, UserID: "ann", Remaining: 8, Token: 7},
			{Kind: stock.Deduction, RequestID: "b", GoodsID: 1, Quantity: 3, Remaining: 5, Token: 7},
			{Kind: stock.Deduction, RequestID: "c", GoodsID: 1, Quantity: 1, Remaining: 4, Token: 7},
			{Kind: stock.Hold, RequestID: "d", GoodsID: 2, Quantity: 5, UserID: "bob", Remaining: 5, ID: held, TTL: 90 * time.Second},
		} {
			got := written[i]
			recent(t, want.RequestID, got.CreatedAt, from)
			want.Strategy, want.Replica, want.CreatedAt = "redis-lua", "replica-1", got.CreatedAt
			if want.ID == "" {
				want.ID = got.ID
			}
			if got != want || got.ID == "" || slices.Contains(ids, got.ID) {
				t.Errorf("%+v is written, want %+v", got, want)
			}
			ids, written[i].TTL = append(ids, got.ID), 0 // the ledger has it not
		}
		found, err := s.Orders(t.Context(), "a uann", "d", "404", "b", "c")
		if want := map[string]stock.Order{"a uann": written[0], "b": written[1], "c": written[2], "d": written[3]}; err != nil || !maps.Equal(found, want) {
			t.Errorf("by their requests they are %+v (%v), want %+v", found, err, want)
		}
		should.Be(t, len(must.Get(s.Orders(t.Context()))(t)), 0, "of no requests there are")
		// 1 is a restock.
		for _, none := range []string{"1", "404", "", "0x3", "+3", "03", strings.ToUpper(held), "naïve"} {
			if got, ok, err := s.Order(t.Context(), none); err != nil || ok {
				t.Errorf("%q is the order %+v, %v; want none", none, got, err)
			}
		}
		for i, order := range written {
			if got, ok, err := s.Order(t.Context(), order.ID); err != nil || ok != order.Sells() || ok && got != order {
				t.Errorf("by its number order %d is %+v, %v (%v), want %+v", i, got, ok, err, order)
			}
		}
		r, err := s.Reservation(t.Context(), held)
		want := stock.Reservation{
			Number: held, GoodsID: 2, Quantity: 5, UserID: "bob", Strategy: "redis-lua", State: stock.Held, TTL: 90 * time.Second,
			HeldAt: r.HeldAt, ExpiresAt: r.HeldAt.Add(90 * time.Second),
		}
		if err != nil || r != want {
			t.Errorf("what is held is %+v (%v), want %+v", r, err, want)
		}
	})
}

// The feed of all items has every row but restocks, where steps are asked for, and orders alone where not.
func TestTheFeedOfAllItemsHasEachOrderAsItWasWritten(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	createItems(t, s, 2)
	paid, held := hold(t, s, 1, 1, ""), hold(t, s, 2, 2, "")
	must.Do(t, sell(t.Context(), s, 2, "one"))
	must.Do(t, errOf(confirm(t, s, paid, "paid")))
	must.Get(s.GiveBack(t.Context(), paid, 0, stock.ReturnKey.Of("k"), false))(t)
	released, expired := hold(t, s, 1, 1, ""), hold(t, s, 1, 1, "")
	must.Do(t, errOf(s.Release(t.Context(), released)))
	over(t, s, expired)
	expireAll(t, s)
	for _, c := range []struct {
		kinds []stock.Kind
		want  string
	}{
		{nil, "deduct of 2, confirm of 1"},
		{stock.Steps(), "hold of 1, hold of 2, deduct of 2, confirm of 1, return of 1, hold of 1, hold of 1, release of 1, expire of 1"},
	} {
		for limit := 1; limit < 11; limit++ { // whatever the pages are, no order is skipped or repeated
			var got []string
			for after, more := int64(0), true; more; {
				page, next, err := s.OrdersAfter(t.Context(), 0, after, limit, c.kinds...)
				must.Do(t, err)
				for _, o := range page {
					got = append(got, fmt.Sprintf("%s of %d", o.Kind, o.GoodsID))
				}
				after, more = next, len(page) == limit
			}
			should.Be(t, strings.Join(got, ", "), c.want, "in pages of …, of kinds …, the feed", limit, c.kinds, got)
		}
	}
	should.Be(t, must.Get(s.Reservation(t.Context(), held))(t).State, stock.Held, "the other one is")
	// Of an order that was written before its row, what is left is what is there now.
	should.Be(t, must.Get(s.Orders(t.Context(), "one"))(t)["one"].Remaining, 10-2-1, "the order leaves")
}

// A restock, and each step of a reservation, is written by the replica that takes it, when it takes it. What a
// step left is not known, and is read as what is in stock, allocations included.
func TestStepsAreWrittenByWhoTakesThem(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s, other := labtest.Open(t, d, "one").As("mutex"), labtest.Open(t, d, "another").As("redis-stock")
	create(t, s, 1, 10)
	hold := func() string { t.Helper(); return hold(t, s, 1, 2, "ann") }
	paid, released, late := hold(), hold(), hold()
	over(t, s, late)
	must.Do(t, sell(t.Context(), s, 1, "bought"))
	orders, err := s.Orders(t.Context(), "bought")
	must.Do(t, err)
	bought := orders["bought"].ID
	from := time.Now()
	_, _, err = confirm(t, other, paid, "paid")
	_, _, err2 := other.Release(t.Context(), released)
	_, _, err3 := other.Expire(t.Context(), 10)
	back, err4 := other.GiveBack(t.Context(), bought, 1, stock.ReturnKey.Of("k"), false)
	_, err5 := other.Restock(t.Context(), 1, 3, stock.RestockKey.Of("k"))
	_, err6 := other.Fill(t.Context(), 1, "redis-stock", 0)
	must.Do(t, errors.Join(err, err2, err3, err4, err5, err6))
	for id, want := range map[string]stock.Order{
		stock.FinalKey.Of(paid):     {ID: paid, Kind: stock.Confirmation, Quantity: 2, UserID: "ann", Strategy: "mutex", Remaining: 11},
		stock.FinalKey.Of(released): {ID: released, Kind: stock.Release, Quantity: 2, UserID: "ann", Strategy: "mutex", Remaining: 11},
		stock.FinalKey.Of(late):     {ID: late, Kind: stock.Expiry, Quantity: 2, UserID: "ann", Strategy: "mutex", Remaining: 11},
		stock.ReturnKey.Of("k"):     {ID: bought, Kind: stock.Return, Quantity: 1, Strategy: "mutex", Remaining: 11},
		stock.RestockKey.Of("k"):    {Kind: stock.Restock, Quantity: 3, Remaining: 11},
	} {
		found, err := s.Orders(t.Context(), id)
		got := found[id]
		recent(t, id, got.CreatedAt, from)
		want.RequestID, want.GoodsID, want.Replica, want.CreatedAt = id, 1, "another", got.CreatedAt
		if want.Kind == stock.Restock {
			want.ID = got.ID
		}
		if err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", id, got, err, want)
		}
		if want.Kind == stock.Return {
			got.Remaining = back.Remaining
			should.Be(t, got, back, "the return is answered with")
		}
	}
	if got, ok, err := s.Order(t.Context(), released); err != nil || ok {
		t.Errorf("what was released is the order %+v (%v)", got, err)
	}
	must.Get(s.Restock(t.Context(), 1, 4, "for two more"))(t)
	left, expired := hold(), hold()
	over(t, s, expired)
	must.Do(t, s.DeleteItem(t.Context(), 1))
	should.Fail(t, errOf(s.Release(t.Context(), left)), nil, "of an item that was deleted a reservation is released")
	if ended, _, err := s.Expire(t.Context(), 10); err != nil || ended != 1 {
		t.Errorf("of an item that was deleted %d reservations expire (%v), want one", ended, err)
	}
	if got, ok, err := s.Order(t.Context(), paid); err != nil || !ok || got.Remaining != 0 {
		t.Errorf("of an item that was deleted the order is %+v, %v (%v)", got, ok, err)
	}
}

// An order of Redis has its number and what it left from there; a reservation of Redis is held in the database.
func TestWhatWasAcceptedElsewhereIsKeptAsItWas(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As("redis-stock")
	create(t, s, 1, 10)
	must.Get(s.Fill(t.Context(), 1, "redis-stock", 0))(t)
	at := time.UnixMilli(1_700_000_000_123).UTC()
	order := stock.Order{
		ID: uuid.Must(uuid.NewV7()).String(), Kind: stock.Deduction, RequestID: "a", GoodsID: 1, Quantity: 2, UserID: "ann",
		Remaining: 3, Strategy: "redis-stock", Replica: "another", CreatedAt: at,
	}
	held := order
	held.ID, held.Kind, held.RequestID, held.Quantity, held.TTL, held.Remaining = uuid.Must(uuid.NewV7()).String(), stock.Hold, "b", 1, time.Minute, 2
	should.Do(t, s.Keep(t.Context(), "redis-stock", nil))
	must.Do(t, s.Keep(t.Context(), "redis-stock", []repo.PendingOrder{{Order: order, Epoch: 1}, {Order: held, Epoch: 1}}))
	r, err := s.Reservation(t.Context(), held.ID)
	if err != nil || r.State != stock.Held || r.TTL != time.Minute || r.Quantity != 1 || r.UserID != "ann" || r.ExpiresAt.Sub(r.HeldAt) != time.Minute {
		t.Errorf("what is held is %+v (%v)", r, err)
	}
	held.TTL = 0 // the ledger has it not
	found, err := s.Orders(t.Context(), "a", "b")
	if want := map[string]stock.Order{"a": order, "b": held}; err != nil || !maps.Equal(found, want) {
		t.Errorf("they are %+v (%v), want %+v", found, err, want)
	}
	if got, ok, err := s.Order(t.Context(), order.ID); err != nil || !ok || got != order {
		t.Errorf("by its number it is %+v, %v (%v)", got, ok, err)
	}
	should.Equal(t, must.Get(s.UsersAfter(t.Context(), 1, ""))(t), nil, "the buyers of an item without a limit who are counted")
	for epoch := range int64(2) { // also where the allocation does not cover it any more
		should.Fail(t, s.Keep(t.Context(), "redis-stock", []repo.PendingOrder{{Order: order, Epoch: epoch}}), stock.ErrDuplicateRequest, "kept again in epoch …", epoch)
	}
	wantSums(t, s, 7, 1, 2, 0)
}

// The longest of each text is kept whole, and texts that differ in case are two.
func TestTheLongestTextsAreKeptWhole(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		longest := func(n int, one string) string { return strings.Repeat(one, n) }
		s := labtest.Open(t, d, longest(128, "小")).As(longest(64, "s"))
		create(t, s, 1, 10)
		user := longest(stock.MaxUserID, "😀")
		for i, one := range []string{"k", "K"} {
			number := fmt.Sprintf("%s-%d-32", uuid.Must(uuid.NewV7()), i)
			key, reference := stock.BuyerKey(longest(stock.MaxRequestID, one), user), longest(stock.MaxPaymentReference, one)
			batch := []stock.Purchase{{RequestID: key, Quantity: 1, UserID: user, TTL: time.Hour, Number: number}}
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
				if _, err := tx.CountIn(t.Context(), 1, 0, batch); err != nil {
					return err
				}
				_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: batch})
				return err
			}))
			if r, _, err := confirm(t, s, number, reference); err != nil || r.PaymentReference != reference {
				t.Errorf("confirmed under the longest reference it is %+v (%v)", r, err)
			}
			order, ok, err := s.Order(t.Context(), number)
			if err != nil || !ok || order.UserID != user || order.Strategy != s.Strategy() || order.Replica != s.Replica() {
				t.Errorf("the order is %+v, %v (%v)", order, ok, err)
			}
			should.Be(t, must.Get(s.Orders(t.Context(), key))(t)[key].RequestID, key, "by its request it is")
		}
		must.Do(t, s.SetLimit(t.Context(), 1, 5))
		should.Equal(t, must.Get(s.UsersAfter(t.Context(), 1, ""))(t), []repo.UserUnits{{User: user, Units: 2, Beside: 2}}, "the buyers are")
		reason := longest(200, "小")
		must.Do(t, s.SwitchOff(t.Context(), s.Strategy(), reason))
		should.Be(t, must.Get(s.SwitchedOff(t.Context()))(t)[s.Strategy()], reason, "what is off is")
		must.Get(s.Fill(t.Context(), 1, s.Strategy(), 0))(t)
	})
}

// What is counted is for sale and held. The audit has the correction, by totals, in full and from the archive.
func TestACorrectionIsItsOwnKindInLedgerFeedAndAudit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		must.Do(t, sell(t.Context(), s, 1, "sold"))
		held := stock.Purchase{RequestID: "held", Quantity: 2, TTL: 1 << 40, Number: "0198f0c2-0000-7000-8000-000000000001"}
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			left, _, err := tx.SubtractIfEnough(t.Context(), 1, 2)
			if err == nil {
				_, err = tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{held}, Left: &left})
			}
			return err
		}))
		for i, c := range []struct {
			to   stock.Correction
			by   int64
			left int64
		}{
			{stock.Correction{Counted: new(int64(6)), Reason: "été 夏"}, -3, 4}, // 7 for sale and 2 held
			{stock.Correction{Counted: new(int64(6)), Reason: "again"}, 0, 4},
			{stock.Correction{By: 5, Reason: "found"}, 5, 9},
			{stock.Correction{By: -9, Reason: "fire"}, -9, 0},
		} {
			id := stock.CorrectionKey.Of(string(rune('a' + i)))
			by, err := s.Correct(t.Context(), 1, c.to, id)
			if row, failed := s.Goods(t.Context(), 1); err != nil || failed != nil || by != c.by || row.Stock != c.left {
				t.Errorf("%+v: by %d (%v) to %d (%v); want by %d to %d", c.to, by, err, row.Stock, failed, c.by, c.left)
			}
			found := must.Get(s.Orders(t.Context(), id))(t)[id]
			if found.Kind != stock.Correct || found.Quantity != c.by || found.Correction == nil || !found.Correction.Is(c.to) {
				t.Errorf("the ledger has %+v with %+v, want %+v", found, found.Correction, c.to)
			}
			should.Reject(s.Correct(t.Context(), 1, c.to, id))(t, stock.ErrDuplicateRequest)
		}
		for want, to := range map[error]stock.Correction{
			&stock.BelowZeroError{Stock: 0, Held: 2, Sold: 1, By: -1}: {By: -1},
			&stock.BelowZeroError{Stock: 0, Held: 2, Sold: 1, By: -2}: {Counted: new(int64(0))},
		} {
			_, err := s.Correct(t.Context(), 1, to, "below")
			if below, ok := errors.AsType[*stock.BelowZeroError](err); !ok || below.Error() != want.Error() {
				t.Errorf("%+v: %v, want %v", to, err, want)
			}
		}
		should.Reject(s.Correct(t.Context(), 1, stock.Correction{By: stock.MaxStock - 1}, "above"))(t, stock.ErrStockLimit, "above the limit")
		should.Reject(s.Correct(t.Context(), 2, stock.Correction{By: 1}, "other"))(t, stock.ErrUnknownGoods, "an unknown item")
		audited := func(when string) {
			t.Helper()
			for _, of := range []func() (stock.Audit, error){
				func() (stock.Audit, error) { return s.Audit(t.Context(), 1) },
				func() (stock.Audit, error) { return s.AuditInFull(t.Context(), 1) },
			} {
				if a, err := of(); err != nil || !a.Clean || a.Corrected != -7 || a.Stock != 0 || a.Held != 2 || a.Sold != 1 || a.Initial != 10 {
					t.Errorf("%s the audit is %+v, %v", when, a, err)
				}
			}
			all := must.Get(s.AuditAll(t.Context()))(t)
			should.Be(t, all, stock.Audits{Goods: 1}, when+", all audits")
		}
		audited("at first")
		must.Do(t, s.SettleAll(t.Context()), s.Age(t.Context()), s.SettleAll(t.Context()))
		audited("by totals")
		if steps := allPages(t, s, 1, 10, stock.Steps()...); len(steps) != 6 || steps[2].Kind != stock.Correct || steps[5].Kind != stock.Correct {
			t.Errorf("the steps are %+v", steps)
		}
		should.Be(t, len(allPages(t, s, 1, 10)), 1, "orders beside corrections")
	})
}
