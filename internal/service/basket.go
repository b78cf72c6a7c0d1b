package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Basket is an order of several items, all of it or nothing.
type Basket struct {
	// Lines name each item once.
	Lines []stock.Line
	// RequestID is as that of a purchase.
	RequestID string
	UserID    string
	// Asked is the mode that its lines ask for.
	Asked stock.Choice
	// held reports that lines of it were held: the rate of its buyer has counted it.
	held bool
}

// HasHeld reports that lines of the basket were held, also where they were given back.
func (b *Basket) HasHeld() bool { return b.held }

// SoldBasket is a basket that was sold, now or earlier.
type SoldBasket struct {
	// Number is followed by "-", the number of the line, "-" and that of all in the numbers of
	// the lines.
	Number   string
	Lines    []stock.Reservation
	Replayed bool
}

// Hold makes a reservation of a line, through the strategy of its item.
type Hold func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error)

// BasketTries bounds how often a basket is tried under one key that was rejected before: once, and twenty times again.
const BasketTries = 21

// BasketNumber is the number of a basket under its request id, which was rejected as often as it was
// tried before.
func BasketNumber(requestID string, tried int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(requestID+" basket "+strconv.Itoa(tried))).String()
}

// BuyBasket sells a basket, each line as Buy does: see Reservations.Sell.
func (s *Shop) BuyBasket(ctx context.Context, b *Basket) (SoldBasket, error) {
	admitted := visits{requestID: b.RequestID}
	sold, err := s.reservations.Sell(ctx, *b, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
		outcome, err := s.Buy(ctx, Request{GoodsID: goodsID, Purchase: p, Asked: b.Asked, counted: b.held, basket: &admitted})
		b.held = b.held || err == nil && !outcome.Replayed
		return outcome, err
	})
	admitted.end(ctx, err)
	return sold, err
}

// Sell sells a basket: each line is held through the strategy of its item, in the order of the
// items' ids, and all are confirmed in one transaction. A line that does not fit gives the others
// back: until then, for as long as the basket takes, others may find their units gone. So do
// those of a basket whose replica dies, until they expire.
//
// The error is a *stock.LineError where an item is its cause: stock.ErrInsufficientStock and
// whatever else Hold may return. Nothing is sold then, but where it is stock.ErrUnknownOutcome: the
// basket may be sold, and the same again finds out. stock.ErrKeyReused: the key stands for another
// basket.
func (r *Reservations) Sell(ctx context.Context, b Basket, hold Hold) (sold SoldBasket, err error) {
	lines := slices.SortedFunc(slices.Values(b.Lines), func(a, b stock.Line) int { return cmp.Compare(a.GoodsID, b.GoodsID) })
	for try := range BasketTries {
		sold, err = r.sellOnce(ctx, BasketNumber(b.RequestID, try), firstKey(b.RequestID, try), lines, b.UserID, hold)
		// What has come back under this number was rejected before.
		if !stock.IsOver(err) {
			return sold, err
		}
	}
	return sold, fmt.Errorf("%w: its basket was rejected %d times", stock.ErrKeyReused, BasketTries)
}

// Basket finds a basket by its number. stock.ErrUnknownOrder: none was sold under it.
func (r *Reservations) Basket(ctx context.Context, number string) (SoldBasket, error) {
	if id, err := uuid.Parse(number); err != nil || id.String() != number { // the beginning of one finds nothing
		return SoldBasket{}, stock.ErrUnknownOrder
	}
	lines, err := r.store.ConfirmedLines(ctx, number)
	if err == nil && (len(lines) == 0 || !strings.HasSuffix(lines[0].Number, fmt.Sprintf("-%d", len(lines)))) {
		err = stock.ErrUnknownOrder // or lines of it were confirmed alone
	}
	return SoldBasket{Number: number, Lines: lines}, err
}

// BasketOf finds the basket that a buyer's key has sold, as Basket does. The buyer may be empty.
func (r *Reservations) BasketOf(ctx context.Context, key, buyer string) (SoldBasket, error) {
	id := stock.BuyerKey(key, buyer)
	numbers := make(map[string]string, BasketTries) // by the request id of the first line
	for try := range BasketTries {
		numbers[firstKey(id, try)] = BasketNumber(id, try)
	}
	held, err := r.store.Orders(ctx, slices.Collect(maps.Keys(numbers))...)
	if err != nil {
		return SoldBasket{}, err
	}
	for first := range held {
		basket, err := r.Basket(ctx, numbers[first])
		if !errors.Is(err, stock.ErrUnknownOrder) {
			return basket, err
		}
	}
	return SoldBasket{}, stock.ErrUnknownOrder
}

// firstKey is the request id of the first line of a basket: at the first try the basket's own, so that its key buys
// nothing at another door.
func firstKey(requestID string, try int) string {
	if try == 0 {
		return requestID
	}
	return lineKey(BasketNumber(requestID, try), 0)
}

func lineKey(number string, line int) string {
	return stock.LineKey.Of(number + "-" + strconv.Itoa(line+1))
}

// sellOnce tries a basket under one number; key is the request id of its first line. stock.IsOver: a line of it has
// come back.
func (r *Reservations) sellOnce(ctx context.Context, number, key string, lines []stock.Line, user string, hold Hold) (SoldBasket, error) {
	numbers, own := make([]string, len(lines)), make([]string, 0, len(lines))
	for i := range lines {
		numbers[i] = fmt.Sprintf("%s-%d-%d", number, i+1, len(lines))
	}
	ttl := (2*r.catalogue.timeout + 5*time.Second).Truncate(time.Second) // longer than a basket may take
	for i, line := range lines {
		if i > 0 {
			key = lineKey(number, i)
		}
		p := stock.Purchase{
			RequestID: key, Keyed: true, Number: numbers[i],
			Quantity: line.Quantity, UserID: user, TTL: ttl, Durable: stock.InSQL, // it is confirmed next
		}
		outcome, err := hold(ctx, line.GoodsID, p)
		if err == nil && outcome.Order.ID != p.Number {
			err = stock.ErrKeyReused // of a basket with more lines, or fewer
		}
		if err != nil {
			r.letGo(ctx, own)
			return SoldBasket{}, lineFault(line.GoodsID, err)
		}
		if !outcome.Replayed { // or a copy holds it, which may be about to confirm
			own = append(own, p.Number)
		} else if err := r.lineEnded(ctx, p.Number); err != nil { // what is held after it under this number is given back again
			return SoldBasket{}, r.notSold(ctx, err, numbers, own)
		}
	}
	confirmed, again, err := r.store.ConfirmAll(ctx, numbers)
	if err != nil {
		return SoldBasket{}, r.notSold(ctx, err, numbers, own)
	}
	if !again {
		r.observer.ReservationsEnded(stock.Confirmed, len(confirmed))
	}
	return SoldBasket{number, confirmed, again}, nil
}

// lineEnded is why a line that was held before cannot be confirmed with its basket any more, as repo.Store.ConfirmAll
// says it, or nil.
func (r *Reservations) lineEnded(ctx context.Context, number string) error {
	line, err := r.store.Reservation(ctx, number)
	if err == nil && line.State != stock.Held && line.PaymentReference != number {
		err = line.NotHeld()
	}
	return err
}

// notSold gives the lines of a basket back that is not confirmed, and returns why it is not.
func (r *Reservations) notSold(ctx context.Context, err error, numbers, own []string) error {
	switch {
	case stock.IsOver(err): // for every copy: under the next number all lines are held anew
		r.letGo(ctx, numbers)
	case !errors.Is(err, stock.ErrUnknownOutcome): // nothing was written
		r.letGo(ctx, own)
	}
	if errors.Is(err, stock.ErrConfirmed) {
		err = fmt.Errorf("%w: a line of its basket was confirmed alone", stock.ErrKeyReused)
	}
	return err
}

// lineFault names the item of an error. A key is that of the whole basket.
func lineFault(goodsID int64, err error) error {
	switch {
	case errors.Is(err, stock.ErrKeyReused):
		return err
	case errors.Is(err, stock.ErrUnknownGoods):
		err = stock.ErrUnknownGoods // what wraps it names the item, too
	}
	return &stock.LineError{GoodsID: goodsID, Err: err}
}

// letGo gives the units of lines back at once, each by itself: one whose row is locked keeps no other.
// Those for which that fails expire.
func (r *Reservations) letGo(ctx context.Context, numbers []string) {
	var lines sync.WaitGroup
	for _, number := range numbers {
		lines.Go(func() {
			r.jobs.Finish(ctx, "give a line of a basket back", func(ctx context.Context) error {
				released, again, err := r.release(ctx, number)
				if err == nil && !again {
					r.allCameBack(ctx, map[int64]repo.Back{released.GoodsID: {Units: released.Quantity, Buyers: []string{released.UserID}}})
				}
				return err
			})
		})
	}
	lines.Wait()
}
