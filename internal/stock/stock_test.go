package stock_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func batch(quantities ...int64) []stock.Purchase {
	list := make([]stock.Purchase, len(quantities))
	for i, q := range quantities {
		list[i].Quantity = q
	}
	return list
}

func TestAllotIsFirstComeFirstServed(t *testing.T) {
	for _, c := range []struct {
		available int64
		batch     []stock.Purchase
		fits      []bool
	}{
		{5, batch(3, 4, 2), []bool{true, false, true}},
		{5, batch(5), []bool{true}},
		{5, batch(6), []bool{false}},
		{0, batch(1, 1), []bool{false, false}},
		{-3, batch(1), []bool{false}},
		{3, batch(1, 1, 1, 1), []bool{true, true, true, false}},
		{3, nil, []bool{}},
	} {
		got := make([]bool, len(c.batch))
		for i, rejected := range stock.Allot(c.available, c.batch, stock.Limit{}) {
			got[i] = rejected == nil
		}
		should.Equal(t, got, c.fits, c.available, "for", c.batch, "fits")
	}
}

// Each purchase is named by its buyer and its quantity, and answered by what it is
// rejected for.
func TestAllotKeepsEachBuyerToTheLimit(t *testing.T) {
	by := func(user string, units int64) stock.Purchase { return stock.Purchase{UserID: user, Quantity: units} }
	list := []stock.Purchase{by("a", 2), by("b", 4), by("a", 2), by("a", 1), by("", 1), by("c", 1), by("b", 3), by("c", 3)}
	rejected := stock.Allot(6, list, stock.Limit{PerUser: 3, Has: map[string]int64{"c": 3}})
	for i, want := range []error{
		nil, &stock.UserLimitError{PerUser: 3}, &stock.UserLimitError{PerUser: 3, Has: 2}, nil,
		stock.ErrUserUnknown, &stock.UserLimitError{PerUser: 3, Has: 3}, nil, &stock.UserLimitError{PerUser: 3, Has: 3},
	} {
		if !reflect.DeepEqual(rejected[i], want) {
			t.Errorf("purchase %d of %v is answered with %v, want %v", i, list[i], rejected[i], want)
		}
	}
	// A purchase that is rejected for the limit takes nothing from later ones, and one that is
	// rejected for the stock does not count against its buyer's limit.
	rejected = stock.Allot(2, []stock.Purchase{by("a", 9), by("b", 3), by("b", 2)}, stock.Limit{PerUser: 3})
	if !errors.Is(rejected[0], stock.ErrUserLimit) || !errors.Is(rejected[1], stock.ErrInsufficientStock) || rejected[2] != nil {
		t.Errorf("9, 3 and 2 of 2 are answered with %v", rejected)
	}
}

// A purchase that would fit with the units of other allocations is distinguished from one that fits
// nowhere, and takes nothing from later purchases.
func TestAllotReportsWhatIsAllocatedElsewhere(t *testing.T) {
	item := stock.Goods{Stock: 3, Allocated: 4, Version: 9}
	allocated := &stock.AllocatedError{Units: 4, Version: 9}
	for i, want := range []error{allocated, nil, stock.ErrInsufficientStock, allocated, nil, allocated} {
		list := batch(7, 2, 8, 5, 1, 4)
		if got := item.Allot(list, stock.Limit{}); !reflect.DeepEqual(got[i], want) {
			t.Errorf("%d units, the purchase %d of 7, 2, 8, 5, 1, 4: %v, want %v", list[i].Quantity, i, got[i], want)
		}
	}
	below := stock.Goods{Stock: -3, Allocated: 2}
	if got := below.Allot(batch(2, 3), stock.Limit{}); !errors.Is(got[0], stock.ErrAllocated) || !errors.Is(got[1], stock.ErrInsufficientStock) {
		t.Errorf("2 and 3 of -3 in the row and 2 elsewhere: %v", got)
	}
}

func TestTurnsTakeHalfAndBeginAnEpoch(t *testing.T) {
	for _, c := range []struct {
		units        int64
		writer       string
		share, epoch int64
	}{
		{5, "", 5, 7}, {5, "own", 5, 7}, {5, "other", 3, 8}, {1, "other", 1, 8}, {4, "other", 2, 8}, {0, "other", 0, 8}, {-2, "", 0, 7}, {-2, "other", 0, 8},
	} {
		item := stock.Goods{Stock: c.units, Writer: c.writer, WriterEpoch: 7}
		if share, epoch := item.Share("own"), item.EpochFor("own"); share != c.share || epoch != c.epoch {
			t.Errorf("of %d units that %q has sold last in epoch 7: %d in epoch %d, want %d in %d", c.units, c.writer, share, epoch, c.share, c.epoch)
		}
	}
}

func TestAnAuditIsCleanWhereItsBuyersAre(t *testing.T) {
	clean, lost := stock.NewAudit(1, 4, 10, 6, 6), stock.NewAudit(1, 7, 10, 6, 6)
	for _, c := range []struct {
		of     stock.Audit
		buyers stock.Buyers
		clean  bool
	}{
		{clean, stock.Buyers{}, true}, {clean, stock.Buyers{Miscounted: 1}, false}, {clean, stock.Buyers{BeyondLimit: 1}, false}, {lost, stock.Buyers{}, false},
	} {
		if got := c.of.With(c.buyers); got.Clean != c.clean || got.Buyers == nil || *got.Buyers != c.buyers || got.Lost != c.of.Lost {
			t.Errorf("%+v with buyers %+v is %+v, want clean %v", c.of, c.buyers, got, c.clean)
		}
	}
}

func TestAvailabilityIsAWordForTheUnitsLeft(t *testing.T) {
	for units, want := range map[int64]string{-1: "sold-out", 0: "sold-out", 1: "few-left", 10: "few-left", 11: "in-stock"} {
		should.Be(t, (stock.Goods{Stock: units}).Availability(), want, units, "units are")
	}
	start, end := time.Unix(10, 0), time.Unix(20, 0)
	for now, want := range map[int64]string{9: "not-started", 10: "in-stock", 19: "in-stock", 20: "ended"} {
		g := stock.Goods{Stock: 100, Sale: stock.Sale{StartsAt: &start, EndsAt: &end, Now: time.Unix(now, 0)}}
		if got := g.Availability(); got != want || g.Available() != (want == "in-stock") {
			t.Errorf("in second %d of 10 to 20 it is %s, available %v", now, got, g.Available())
		}
	}
}

func TestTheUnitsOfABatchAreAllOfThem(t *testing.T) {
	if got := stock.Units(batch(3, 4, 2)); got != 9 || stock.Units(nil) != 0 {
		t.Errorf("3, 4 and 2 are %d, and none are %d", got, stock.Units(nil))
	}
}

func TestAChoiceWithoutQuantityKeepsTheRest(t *testing.T) {
	on, most := true, int64(3)
	choice := stock.Choice{Strategy: "s", Group: &on, Fence: &on, MaxQuantity: &most}
	if got := choice.WithoutQuantity(); got != (stock.Choice{Strategy: "s", Group: &on, Fence: &on}) || choice.MaxQuantity == nil {
		t.Errorf("%+v without its quantity is %+v", choice, got)
	}
}

func TestAuditTellsTheThreeFailuresApart(t *testing.T) {
	for _, c := range []struct {
		name                            string
		left, restocked, sold, rejected int64
		oversold, lost, undersold       int64
		clean                           bool
	}{
		{name: "sold out", restocked: 10, sold: 10, rejected: 5, clean: true},
		{name: "not sold out", left: 4, restocked: 10, sold: 6, clean: true},
		{name: "oversold", restocked: 10, sold: 12, oversold: 2, lost: 2},
		{name: "updates lost", left: 7, restocked: 10, sold: 6, lost: 3},
		{name: "gone without a purchase", left: 2, restocked: 10, sold: 6, lost: -2},
		{name: "below zero", left: -2, restocked: 10, sold: 12, oversold: 2},
		{name: "rejected while left", left: 4, restocked: 10, sold: 6, rejected: 9, undersold: 4, clean: true},
		{name: "one rejected while left", left: 4, restocked: 10, sold: 6, rejected: 1, undersold: 1, clean: true},
	} {
		a := stock.NewAudit(1, c.left, c.restocked, c.sold, c.sold)
		if a.Oversold != c.oversold || a.Lost != c.lost || a.Clean != c.clean || a.Undersold(c.rejected) != c.undersold {
			t.Errorf("%s: %+v and %d undersold, want %d oversold, %d lost, %d undersold, clean %v",
				c.name, a, a.Undersold(c.rejected), c.oversold, c.lost, c.undersold, c.clean)
		}
	}
}

func TestAuditSinceAnEarlierOne(t *testing.T) {
	earlier := stock.NewAudit(1, 7, 10, 5, 5) // two updates were lost before
	later := stock.NewAudit(1, 5, 13, 10, 9)  // 3 more came, 5 more were sold
	since := later.Since(earlier)
	if want := stock.NewAudit(1, 5, 10, 5, 4); since != want || !since.Clean {
		t.Errorf("since then %+v, want %+v", since, want)
	}
	// What had come back before was in stock then.
	earlier = stock.AuditOf(1, 8, stock.Sums{Restocked: 10, Sold: 4, Orders: 4, Held: 1, Returned: 3})
	later = stock.AuditOf(1, 6, stock.Sums{Restocked: 11, Sold: 7, Orders: 6, Held: 3, Returned: 5})
	want := stock.Audit{GoodsID: 1, Stock: 6, Initial: 10, Sold: 3, Orders: 2, Held: 3, Returned: 2, Clean: true}
	should.Be(t, later.Since(earlier), want, "with reservations and returns, since then")
}

// An audit has every sum of the ledger, and what came back can be sold again.
func TestAnAuditHasEverySum(t *testing.T) {
	got := stock.AuditOf(7, 12, stock.Sums{Restocked: 20, Sold: 9, Orders: 5, Held: 2, Returned: 3})
	want := stock.Audit{GoodsID: 7, Stock: 12, Initial: 20, Sold: 9, Orders: 5, Held: 2, Returned: 3, Clean: true}
	if got != want || got.Undersold(100) != 12 {
		t.Errorf("the audit is %+v, and %d are undersold; want %+v and 12", got, got.Undersold(100), want)
	}
	for _, c := range []struct{ left, sold, oversold int64 }{{0, 23, 2}, {-1, 22, 1}, {0, 21, 0}} {
		got := stock.AuditOf(7, c.left, stock.Sums{Restocked: 20, Sold: c.sold, Held: 2, Returned: 3})
		if got.Oversold != c.oversold || got.Clean != (c.oversold == 0) || got.Undersold(5) != 0 {
			t.Errorf("%d sold and 2 held of 20 and 3 that came back: %+v, and %d undersold", c.sold, got, got.Undersold(5))
		}
	}
}

func TestABackendErrorIsItsKindAndItsCause(t *testing.T) {
	cause := errors.New("connection refused")
	err := error(&stock.BackendError{Backend: "mysql", Err: cause})
	if !errors.Is(err, stock.ErrBackendUnavailable) || !errors.Is(err, cause) || err.Error() != "mysql: connection refused" {
		t.Errorf("%v", err)
	}
}

// What was held at the earlier audit was there to be sold, like what was in stock.
func TestAuditSinceOneWithOpenReservations(t *testing.T) {
	earlier := stock.AuditOf(1, 6, stock.Sums{Restocked: 10, Held: 4})
	later := stock.AuditOf(1, 6, stock.Sums{Restocked: 10, Sold: 4, Orders: 4})
	if since := later.Since(earlier); !since.Clean || since.Initial != 10 || since.Sold != 4 {
		t.Errorf("since then %+v, want 4 of 10 sold, and nothing oversold", since)
	}
}

// A reservation is extended up to its longest from its begin, however often, and never shortened.
func TestAReservationIsHeldNoLongerThanItsLongest(t *testing.T) {
	held := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := stock.Reservation{HeldAt: held, ExpiresAt: held.Add(4 * time.Minute)}
	for _, c := range []struct{ at, ttl, longest, want time.Duration }{
		{3 * time.Minute, 90 * time.Second, 5 * time.Minute, 270 * time.Second},
		{3 * time.Minute, 10 * time.Minute, 5 * time.Minute, 5 * time.Minute},
		{time.Minute, time.Minute, 5 * time.Minute, 4 * time.Minute},
		{3 * time.Minute, 10 * time.Minute, 2 * time.Minute, 4 * time.Minute}, // it was longer when it was held
	} {
		if got := r.Until(held.Add(c.at), c.ttl, c.longest); !got.Equal(held.Add(c.want)) {
			t.Errorf("after %s extended by %s until %s, want %s", c.at, c.ttl, got.Sub(held), c.want)
		}
	}
}

// What is held is neither sold nor there to be sold: a rejection is right.
func TestHeldUnitsAreNotUndersold(t *testing.T) {
	a := stock.AuditOf(1, 0, stock.Sums{Restocked: 10, Sold: 6, Held: 3})
	for rejected, want := range map[int64]int64{0: 0, 1: 1, 5: 1} {
		should.Be(t, a.Undersold(rejected), want, rejected, "rejected of 10, with 6 sold and 3 held, are undersold by")
	}
}

// A reservation that ended twice: row and ledger agree, and neither can be right.
func TestAnAuditWithLessThanNothingHeldIsNotClean(t *testing.T) {
	if a := stock.AuditOf(1, 11, stock.Sums{Restocked: 10, Held: -1}); a.Clean || a.Lost != 0 || a.Oversold != 0 {
		t.Errorf("the audit is %+v", a)
	}
}

// Each state says what its reservation is rejected with, and which of these are for good.
func TestAReservationThatIsNotHeldSaysWhy(t *testing.T) {
	for state, want := range map[stock.State]error{
		stock.Confirmed: stock.ErrConfirmed, stock.Released: stock.ErrReleased, stock.Expired: stock.ErrExpired,
		stock.Held: stock.ErrExpired, // its time was over just now
	} {
		err := stock.Reservation{State: state}.NotHeld()
		if !errors.Is(err, want) || stock.IsOver(err) != (state != stock.Confirmed) {
			t.Errorf("one that is %s: %v, over: %v; want %v", state, err, stock.IsOver(err), want)
		}
	}
	if stock.IsOver(nil) || stock.IsOver(stock.ErrUnknownReservation) || !stock.IsOver(&stock.LineError{Err: stock.ErrReleased}) {
		t.Error("what is over is not what was released or has expired")
	}
}

// Units are sold with a deduction and with a confirmation, and with no other row. A purchase with a time is held.
func TestOnlyDeductionsAndConfirmationsSell(t *testing.T) {
	for _, kind := range []stock.Kind{stock.Deduction, stock.Restock, stock.Hold, stock.Confirmation, stock.Release, stock.Expiry, stock.Return} {
		should.Be(t, (stock.Order{Kind: kind}).Sells(), kind == stock.Deduction || kind == stock.Confirmation, kind, "sells")
	}
	for ttl, want := range map[time.Duration]stock.Kind{0: stock.Deduction, 1: stock.Hold} {
		should.Be(t, (stock.Purchase{TTL: ttl}).Kind(), want, "a purchase for", ttl, "is a")
	}
}

// An error with figures is of its kind alone, and shows its figures.
func TestAnErrorShowsItsFigures(t *testing.T) {
	kinds := []error{stock.ErrUserLimit, stock.ErrAllocated, stock.ErrReturned, stock.ErrInsufficientStock, stock.ErrBackendUnavailable}
	for _, c := range []struct {
		err  error
		want error
		text string
	}{
		{&stock.UserLimitError{PerUser: 3, Has: 2}, stock.ErrUserLimit, "limit of one buyer exceeded: one buyer may have 3, and has 2"},
		{&stock.AllocatedError{Units: 4, Version: 9}, stock.ErrAllocated, "the units left are allocated to another strategy: 4"},
		{&stock.LineError{GoodsID: 7, Err: stock.ErrReturned}, stock.ErrReturned, "item 7: more units than are left of the order"},
	} {
		for _, kind := range kinds {
			should.Be(t, errors.Is(c.err, kind), errors.Is(c.want, kind), c.err, "is", kind)
		}
		should.Be(t, c.err.Error(), c.text, "it reads")
	}
}

// The limits are those that the API documents.
func TestTheLimitsAreThoseOfTheAPI(t *testing.T) {
	for name, c := range map[string]struct{ got, want int64 }{
		"quantity": {stock.MaxQuantity, 1_000_000}, "stock": {stock.MaxStock, 1_000_000_000_000}, "per_user": {stock.MaxPerUser, 1_000_000_000},
		"key": {stock.MaxRequestID, 128}, "user": {stock.MaxUserID, 64}, "payment_reference": {stock.MaxPaymentReference, 128}, "lines": {stock.MaxLines, 32},
	} {
		should.Be(t, c.got, c.want, "the limit of", name, "is")
	}
}

// Names of JSON are a contract; what is internal is not shown.
func TestTheNamesOfJSON(t *testing.T) {
	for want, value := range map[string]any{
		`{"goods_id":1,"stock":2,"version":3,"fence":4,"per_user":5}`: stock.Goods{
			ID: 1, Stock: 2, Version: 3, Fence: 4, PerUser: 5, Allocated: 6, Writer: "w", WriterEpoch: 7,
		},
		`{"goods_id":1,"stock":2,"initial":3,"sold":4,"orders":5,"held":6,"returned":7,"oversold":8,"lost":9,"clean":true}`: stock.Audit{
			GoodsID: 1, Stock: 2, Initial: 3, Sold: 4, Orders: 5, Held: 6, Returned: 7, Oversold: 8, Lost: 9, Clean: true,
		},
		`{"miscounted":1,"beyond_limit":2}`:                             stock.Buyers{Miscounted: 1, BeyondLimit: 2},
		`{"returned":1,"pending":2}`:                                    stock.Recalled{Returned: 1, Pending: 2},
		`{"strategy":"s","group":true,"fenced":false,"max_quantity":3}`: stock.Choice{Strategy: "s", Group: new(true), Fence: new(false), MaxQuantity: new(int64(3))},
		`{}`: stock.Choice{},
	} {
		should.Be(t, string(must.Get(json.Marshal(value))(t)), want, value, "in JSON")
	}
}

// A close is written to the microsecond, and times are read to the millisecond: what was exported is imported as the same.
func TestATimeIsKeptToTheMillisecond(t *testing.T) {
	now := time.Date(2026, 11, 27, 20, 0, 0, 123_456_000, time.UTC)
	read, other := now.Truncate(time.Millisecond), now.Add(time.Millisecond)
	for change, want := range map[stock.SaleChange]bool{{}: true, {EndsAt: &read}: true, {EndsAt: &other}: false, {StartsAt: &read}: false, {StartsAt: new(time.Time)}: true} {
		should.Be(t, change.Keeps(stock.Sale{EndsAt: &now}), want, change, "keeps it")
	}
}
