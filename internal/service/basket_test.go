package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// holdBy holds the lines of baskets through a strategy of one replica.
func (s shop) holdBy(t *testing.T, replica int, name string) service.Hold {
	t.Helper()
	seller := s.strategy(t, replica, name)
	return func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		outcome, err := seller.Deduct(ctx, goodsID, p)
		if err == nil {
			err = outcome.Rejected
		}
		return outcome, err
	}
}

// basketOf has a unit of each of the items.
func basketOf(items ...int64) service.Basket {
	b := service.Basket{RequestID: rand.Text()}
	for _, id := range items {
		b.Lines = append(b.Lines, stock.Line{GoodsID: id, Quantity: 1})
	}
	return b
}

// till is a replica that sells baskets of items 1, 2 and so on, each line through sql-conditional.
type till struct {
	shop
	*service.Reservations
	counted *ends
	hold    service.Hold
}

// openTill has so many units of each item.
func openTill(t *testing.T, d *servers.Database, units ...int64) till {
	t.Helper()
	s := open(t, d, 1)
	all, counted := s.reservations(t, d)
	for i, n := range units {
		s.create(t, int64(i+1), n)
	}
	return till{s, all[0], counted, s.holdBy(t, 0, "sql-conditional")}
}

// leaves compares what is left of items when nothing is held any more.
func (s shop) leaves(t *testing.T, want map[int64]int64) {
	t.Helper()
	for id, left := range want {
		var audit service.Audit
		var err error
		if !labtest.Eventually(30*time.Second, func() bool {
			audit, err = s.inventory.AuditInFull(t.Context(), id)
			return err == nil && audit.Held == 0 && audit.Clean && audit.Pending != nil && *audit.Pending == 0
		}) || audit.Initial-audit.Sold != left {
			t.Errorf("item %d: %+v (%v), want %d left", id, audit, err, left)
		}
	}
}

// Baskets of overlapping items, given in any order, are sold by every strategy at once until one
// item is sold out: none is sold in part, and nothing stays held.
func TestBasketsAreSoldWholeByEveryStrategy(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	s := openAll(t, d)
	all, _ := s.reservations(t, d)
	for i, name := range []string{"sql-conditional", "sql-optimistic grouped", "sql-bucket", "redis-lua", "zk-sequential grouped", "redis-stock grouped"} {
		t.Run(name, func(t *testing.T) {
			first := int64(3*i + 1)
			for id, units := range []int64{12, 8, 12} {
				s.create(t, first+int64(id), units)
			}
			var sold, short atomic.Int64
			var buying sync.WaitGroup
			for buyer := range 6 {
				hold, r := s.holdBy(t, buyer%2, name), all[buyer%2]
				buying.Go(func() {
					for range 3 {
						items := []int64{first, first + 1, first + 2}
						mathrand.Shuffle(3, func(i, j int) { items[i], items[j] = items[j], items[i] })
						_, err := r.Sell(t.Context(), basketOf(items...), hold)
						line, _ := errors.AsType[*stock.LineError](err)
						switch {
						case err == nil:
							sold.Add(1)
						case errors.Is(err, stock.ErrInsufficientStock) && line != nil:
							short.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
			buying.Wait()
			left := 8 - sold.Load()
			if sold.Load()+short.Load() != 18 || left < 0 {
				t.Errorf("%d baskets of 8 are sold, and %d were short", sold.Load(), short.Load())
			}
			s.leaves(t, map[int64]int64{first: 4 + left, first + 1: left, first + 2: 4 + left})
			for range left { // a basket that was short may have kept a unit for a moment
				if _, err := all[0].Sell(t.Context(), basketOf(first, first+1, first+2), s.holdBy(t, 0, name)); err != nil {
					t.Errorf("of %d that are left: %v", left, err)
				}
			}
		})
	}
}

// Two copies of a basket make one order, whichever of them confirms.
func TestCopiesOfABasketAreOneOrder(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, 2)
		all, _ := s.reservations(t, d)
		s.create(t, 1, 100)
		s.create(t, 2, 100)
		for round := range 10 {
			b := basketOf(1, 2)
			var copies sync.WaitGroup
			numbers, errs := make([]string, 4), make([]error, 4)
			for i := range numbers {
				copies.Go(func() {
					for range 20 {
						sold, err := all[i%2].Sell(t.Context(), b, s.holdBy(t, i%2, "sql-conditional"))
						if numbers[i], errs[i] = sold.Number, err; !errors.Is(err, stock.ErrBusy) {
							return
						}
					}
				})
			}
			copies.Wait()
			for i, number := range numbers {
				if errs[i] != nil || number != numbers[0] {
					t.Errorf("round %d: copy %d is answered with %s (%v), and the first with %s", round, i, number, errs[i], numbers[0])
				}
			}
		}
		s.leaves(t, map[int64]int64{1: 90, 2: 90})
	})
}

// A copy of a basket that fails gives back only what it has held itself: what it has from the first copy,
// that one is still selling.
func TestACopyOfABasketThatFailsLeavesTheFirstItsLines(t *testing.T) {
	for name, c := range map[string]struct {
		second error // of the copy, for its second line
		want   error
	}{
		"at a line":           {stock.ErrBusy, stock.ErrBusy},
		"at the confirmation": {nil, stock.ErrUnknownReservation}, // of a line that is not there
	} {
		s, b := openTill(t, lab.Database(t, servers.SQLite), 1, 1), basketOf(1, 2)
		sold, err := s.Sell(t.Context(), b, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
			if goodsID == 1 {
				return s.hold(ctx, goodsID, p)
			}
			if _, err := s.Sell(ctx, b, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
				if goodsID == 1 {
					return s.hold(ctx, goodsID, p)
				}
				return stock.Outcome{Order: stock.Order{ID: p.Number}}, c.second
			}); !errors.Is(err, c.want) {
				t.Errorf("%s: the copy is answered with %v, want %v", name, err, c.want)
			}
			should.Reject(s.Sell(ctx, basketOf(1), s.hold))(t, stock.ErrInsufficientStock, "another basket is answered with", name)
			return s.hold(ctx, goodsID, p)
		})
		if err != nil || sold.Replayed || sold.Number != service.BasketNumber(b.RequestID, 0) {
			t.Errorf("%s: the first copy is answered with %+v (%v)", name, sold, err)
		}
	}
}

// A replica that dies between two lines leaves what it held to the sweepers, and the basket can be
// sold under the same key.
func TestALineOfABasketThatIsAbandonedComesBack(t *testing.T) {
	s, b, died := openTill(t, lab.Database(t, servers.MariaDB), 1, 1), basketOf(1, 2), errors.New("died")
	var first string
	ctx, die := context.WithCancel(t.Context())
	_, err := s.Sell(ctx, b, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		if goodsID == 2 {
			die()
			return stock.Outcome{}, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, died)
		}
		p.TTL, first = time.Second, p.Number
		return s.hold(ctx, goodsID, p)
	})
	should.Fail(t, err, stock.ErrUnknownOutcome, "answered")
	if !labtest.Eventually(30*time.Second, func() bool {
		_, err := s.Expire(t.Context())
		r, look := s.Read(t.Context(), first)
		return err == nil && look == nil && stock.IsOver(r.NotHeld()) && r.State != stock.Held
	}) {
		t.Error("the line that was held stays held")
	}
	if sold, err := s.Sell(t.Context(), b, s.hold); err != nil || sold.Replayed || len(sold.Lines) != 2 {
		t.Errorf("sent again it is answered with %+v (%v)", sold, err)
	}
	s.leaves(t, map[int64]int64{1: 0, 2: 0})
}

// Of a basket that is rejected all lines come back at once, also where one of them is over already.
func TestALineThatIsOverDoesNotKeepTheOthersHeld(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s, held := openTill(t, d, 1, 1, 1), make([]string, 4)
		_, err := s.Sell(t.Context(), basketOf(1, 2, 3), func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
			held[goodsID] = p.Number
			switch goodsID {
			case 1:
				p.TTL = time.Millisecond
				return s.hold(ctx, goodsID, p)
			case 2:
				return s.hold(ctx, goodsID, p)
			}
			if !labtest.Eventually(30*time.Second, func() bool {
				first, err := s.Read(ctx, held[1])
				return err == nil && first.NotHeld() != nil
			}) {
				t.Error("the first line does not expire")
			}
			return stock.Outcome{}, stock.ErrInsufficientStock
		})
		should.Fail(t, err, stock.ErrInsufficientStock, "answered")
		comesBack(t, s.Reservations, held[2])
		should.Be(t, must.Get(s.Expire(t.Context()))(t), 1, "lines expire")
		s.leaves(t, map[int64]int64{1: 1, 2: 1, 3: 1})
	})
}

// The row of a line is locked while its basket is rejected: the other lines are given back meanwhile.
func TestALineThatIsLockedDoesNotKeepTheOthersHeld(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	s, held := openTill(t, d, 1, 1, 1), make([]string, 4)
	lock, err := openPool(t, d).BeginTx(t.Context(), nil)
	must.Do(t, err)
	defer lock.Rollback()
	_, err = s.Sell(t.Context(), basketOf(1, 2, 3), func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		if held[goodsID] = p.Number; goodsID < 3 {
			return s.hold(ctx, goodsID, p)
		}
		if _, err := lock.ExecContext(ctx, `SELECT goods_id FROM tb_goods_stock WHERE goods_id = 1 FOR UPDATE`); err != nil {
			t.Error(err)
		}
		return stock.Outcome{}, stock.ErrInsufficientStock
	})
	should.Fail(t, err, stock.ErrInsufficientStock, "answered")
	comesBack(t, s.Reservations, held[2])
}

// comesBack waits until a line is released.
func comesBack(t *testing.T, r *service.Reservations, number string) {
	t.Helper()
	var line stock.Reservation
	var err error
	if !labtest.Eventually(30*time.Second, func() bool {
		line, err = r.Read(t.Context(), number)
		return err != nil || line.State != stock.Held
	}) || err != nil || line.State != stock.Released {
		t.Errorf("the second line is %s (%v), want it released", line.State, err)
	}
}

// A basket is one order of its buyer, in the order of the items, and is found by its number. Its key
// gets it again, and sells nothing else.
func TestABasketIsFoundByItsNumberAndByItsKey(t *testing.T) {
	s, b := openTill(t, lab.Database(t, servers.SQLite), 10, 10, 10), service.Basket{RequestID: rand.Text(), UserID: "ann"}
	for id := range int64(3) {
		b.Lines = append(b.Lines, stock.Line{GoodsID: 3 - id, Quantity: 4 - id})
	}
	sold, err := s.Sell(t.Context(), b, s.hold)
	if err != nil || sold.Replayed || len(sold.Lines) != 3 || s.counted.confirmed.Load() != 3 {
		t.Fatalf("it is answered with %+v, %v, and %d reservations are counted as confirmed", sold, err, s.counted.confirmed.Load())
	}
	for i, line := range sold.Lines {
		id := int64(i + 1)
		if line.GoodsID != id || line.Quantity != id+1 || line.UserID != "ann" || line.State != stock.Confirmed || line.Number != fmt.Sprintf("%s-%d-3", sold.Number, id) {
			t.Errorf("line %d is %+v", id, line)
		}
		if line.TTL <= 4*copiesWait || line.TTL%time.Second != 0 { // the timeout is twice that
			t.Errorf("line %d is held for %s, want whole seconds, and longer than a basket may take", id, line.TTL)
		}
	}
	if found, err := s.Basket(t.Context(), sold.Number); err != nil || found.Number != sold.Number || !slices.Equal(found.Lines, sold.Lines) {
		t.Errorf("by its number it is %+v, %v", found, err)
	}
	slices.Reverse(b.Lines)
	if again, err := s.Sell(t.Context(), b, s.hold); err != nil || !again.Replayed || again.Number != sold.Number || !slices.Equal(again.Lines, sold.Lines) {
		t.Errorf("again it is answered with %+v, %v", again, err)
	}
	for name, lines := range map[string][]stock.Line{
		"a line fewer": b.Lines[:2], "a line more": append(slices.Clone(b.Lines), stock.Line{GoodsID: 4, Quantity: 1}),
		"another quantity": {b.Lines[0], b.Lines[1], {GoodsID: 3, Quantity: 1}}, "other items": {b.Lines[1], b.Lines[2]},
	} {
		_, err := s.Sell(t.Context(), service.Basket{RequestID: b.RequestID, UserID: "ann", Lines: lines}, s.hold)
		if _, ok := errors.AsType[*stock.LineError](err); !errors.Is(err, stock.ErrKeyReused) || ok {
			t.Errorf("%s under its key: %v, want %v of no line", name, err, stock.ErrKeyReused)
		}
	}
	should.Be(t, s.counted.confirmed.Load(), 3, "reservations are counted as confirmed")
	s.leaves(t, map[int64]int64{1: 8, 2: 7, 3: 6})
	// A line that was confirmed alone is of no basket, as long as it has the number of one.
	alone := uuid.Must(uuid.NewV7()).String()
	must.Get(s.hold(t.Context(), 1, stock.Purchase{Quantity: 1, TTL: time.Hour, Number: alone + "-1-2"}))(t)
	must.Do(t, errOf(s.Confirm(t.Context(), alone+"-1-2", "paid")))
	for _, number := range []string{"", alone, sold.Number[:35], strings.ToUpper(sold.Number), sold.Lines[0].Number} {
		should.Reject(s.Basket(t.Context(), number))(t, stock.ErrUnknownOrder, "the basket of number", number)
	}
}

// A line may end before its basket is confirmed: then the others come back at once, and the basket is
// tried anew, but not for ever.
func TestABasketWhoseLineEndsIsTriedAnew(t *testing.T) {
	s := openTill(t, lab.Database(t, servers.SQLite), 10, 10, 10, 10, 10, 10)
	release := func(ctx context.Context, number string) error { return errOf(s.Release(ctx, number)) }
	for i, c := range []struct {
		ends, tries int // so many first lines end before the basket is confirmed
		want        error
	}{{1, 2, nil}, {service.BasketTries, service.BasketTries, stock.ErrKeyReused}} {
		first, second := int64(2*i+1), int64(2*i+2)
		lines, err := s.sellEnding(t, first, second, c.ends, release)
		if !errors.Is(err, c.want) || len(lines) != c.tries {
			t.Errorf("after %d lines that were released it is answered with %v after %d tries, want %v after %d", c.ends, err, len(lines), c.want, c.tries)
		}
		for try, number := range lines {
			want := stock.Released
			if try >= c.ends {
				want = stock.Confirmed
			}
			should.Be(t, must.Get(s.Read(t.Context(), number))(t).State, want, "the other line of try … is", try)
		}
	}
	confirm := func(ctx context.Context, number string) error {
		return errOf(s.Confirm(ctx, number, "paid alone"))
	}
	lines, err := s.sellEnding(t, 5, 6, 1, confirm)
	if !errors.Is(err, stock.ErrKeyReused) || len(lines) != 1 {
		t.Fatalf("with a line that was confirmed alone it is answered with %v after %d tries, want %v after one", err, len(lines), stock.ErrKeyReused)
	}
	should.Be(t, must.Get(s.Read(t.Context(), lines[0]))(t).State, stock.Released, "the line beside one that was confirmed alone is")
}

// The buyer leaves when all lines are held: they come back at once, and not when they expire.
func TestTheLinesOfABasketComeBackWhoseBuyerLeaves(t *testing.T) {
	s, gone := openTill(t, lab.Database(t, servers.SQLite), 10, 10), errors.New("the buyer hung up")
	ctx, leave := context.WithCancelCause(t.Context())
	var held []string
	_, err := s.Sell(ctx, basketOf(1, 2), func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		outcome, err := s.hold(ctx, goodsID, p)
		if held = append(held, outcome.Order.ID); len(held) == 2 {
			leave(gone)
		}
		return outcome, err
	})
	if !errors.Is(err, gone) || len(held) != 2 {
		t.Fatalf("with %d lines it is answered with %v, want %v", len(held), err, gone)
	}
	for _, number := range held {
		back := func() bool {
			r, err := s.Read(t.Context(), number)
			return err == nil && r.State == stock.Released
		}
		should.Be(t, labtest.Eventually(5*time.Second, back), true, "the line … stays held", number)
	}
}

// Whichever line ends before its basket is confirmed, those that are held come back at once, also where
// one of them was confirmed alone.
func TestWhicheverLineEndsTheOthersComeBack(t *testing.T) {
	s := openTill(t, lab.Database(t, servers.SQLite), 10, 10, 10)
	for name, c := range map[string]struct {
		end  func(ctx context.Context, numbers []string) error // when all three are held
		want []stock.State
		err  error
	}{
		"the last is released": {func(ctx context.Context, numbers []string) error {
			return errOf(s.Release(ctx, numbers[2]))
		}, []stock.State{stock.Released, stock.Released, stock.Released}, nil},
		"the first is confirmed alone, and there is no third": {func(ctx context.Context, numbers []string) error {
			_, released, err := s.Release(ctx, numbers[2])
			return errors.Join(err, errOf(s.Confirm(ctx, numbers[0], "paid alone")), map[bool]error{false: stock.ErrInsufficientStock}[released])
		}, []stock.State{stock.Confirmed, stock.Released, stock.Released}, stock.ErrInsufficientStock},
	} {
		var numbers []string
		_, err := s.Sell(t.Context(), basketOf(1, 2, 3), func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
			outcome, err := s.hold(ctx, goodsID, p)
			if numbers = append(numbers, p.Number); err == nil && len(numbers) == 3 {
				err = c.end(ctx, numbers)
			}
			return outcome, err
		})
		should.Fail(t, err, c.err, "answered with", name)
		for i, want := range c.want {
			should.Be(t, must.Get(s.Read(t.Context(), numbers[i]))(t).State, want, "line … is", name, i+1)
		}
	}
}

// sellEnding sells a unit of two items, and ends so many of the first lines before the basket is
// confirmed. lines are the numbers of the second ones.
func (s till) sellEnding(t *testing.T, first, second int64, ends int, end func(ctx context.Context, number string) error) (lines []string, err error) {
	t.Helper()
	number := ""
	_, err = s.Sell(t.Context(), basketOf(first, second), func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		outcome, err := s.hold(ctx, goodsID, p)
		if goodsID == first {
			number = p.Number
			return outcome, err
		}
		if lines = append(lines, p.Number); len(lines) <= ends {
			err = errors.Join(err, end(ctx, number))
		}
		return outcome, err
	})
	return lines, err
}

// errOf is the error of a call with two values.
func errOf[A, B any](_ A, _ B, err error) error { return err }

// A replica has died with all lines of a basket held, and one is over: the others are its retry's.
func TestABasketThatWasAbandonedIsSoldWithItsOwnUnits(t *testing.T) {
	s, b := openTill(t, lab.Database(t, servers.SQLite), 1, 1), basketOf(1, 2)
	number := service.BasketNumber(b.RequestID, 0)
	for id, key := range map[int64]string{1: b.RequestID, 2: stock.LineKey.Of(number + "-2")} {
		p := stock.Purchase{RequestID: key, Keyed: true, Number: fmt.Sprintf("%s-%d-2", number, id), Quantity: 1, TTL: time.Hour}
		must.Get(s.hold(t.Context(), id, p))(t)
	}
	must.Do(t, errOf(s.Release(t.Context(), number+"-1-2")))
	should.Be(t, must.Get(s.Sell(t.Context(), b, s.hold))(t).Number, service.BasketNumber(b.RequestID, 1), "sent again it is answered with")
	s.leaves(t, map[int64]int64{1: 0, 2: 0})
}

// Sent again under its key, a basket that was rejected holds each unit under the number alone that it can be sold
// under: what is given back first, another buyer may take meanwhile. It may be sent so twenty times.
func TestABasketThatWasRejectedHoldsNothingUnderItsOldNumber(t *testing.T) {
	s, b := openTill(t, lab.Database(t, servers.SQLite), 1, 0), basketOf(1, 2)
	for range 1 + 19 {
		should.Reject(s.Sell(t.Context(), b, s.hold))(t, stock.ErrInsufficientStock, "without a unit of item 2 it is answered with")
	}
	must.Get(s.inventory.Restock(t.Context(), 2, 1, "more"))(t)
	var held []string
	sold, err := s.Sell(t.Context(), b, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		outcome, err := s.hold(ctx, goodsID, p)
		if err == nil && !outcome.Replayed {
			held = append(held, p.Number)
		}
		return outcome, err
	})
	if err != nil || len(held) != 2 || !strings.HasPrefix(held[0], sold.Number) || !strings.HasPrefix(held[1], sold.Number) {
		t.Errorf("sold as %s (%v), it has held %q, want the two lines of that number", sold.Number, err, held)
	}
	s.leaves(t, map[int64]int64{1: 0, 2: 0})
}
