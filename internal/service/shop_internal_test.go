package service

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// counter sells through a function, and remembers what its observer was notified of.
type counter struct {
	strategy.Observer
	strategy.Strategy

	ledger   map[string]stock.Order // by request id
	searches int
	broken   error // what a search ends with
	observed []stock.Outcome
	failures []error
	took     time.Duration // of the last
}

func (c *counter) Deducted(o stock.Outcome, err error, took time.Duration) {
	c.observed, c.failures, c.took = append(c.observed, o), append(c.failures, err), took
}

func (c *counter) find(_ context.Context, ids ...string) (map[string]stock.Order, error) {
	c.searches++
	if c.broken != nil {
		return nil, c.broken
	}
	found := map[string]stock.Order{}
	for _, id := range ids {
		if o, ok := c.ledger[id]; ok {
			found[id] = o
		}
	}
	return found, nil
}

// shop sells item 1 through a function that is called with the number of its calls.
func (c *counter) shop(deduct func(call int, p stock.Purchase) (stock.Outcome, error)) *Shop {
	log := slog.New(slog.DiscardHandler)
	catalogue := &Catalogue{store: new(repo.Store), timeout: time.Minute, log: log, switches: newSwitches(nil), standard: Mode{Strategy: "s"}, maxQuantity: 100}
	catalogue.looks = &looks{switches: catalogue.switches}
	catalogue.requests = share(c.find)
	none := func(context.Context, ...int64) (map[int64]bool, error) { return nil, nil }
	catalogue.unwritten = queue.Share(none, nil, queue.Options[int, []int64, map[int64]bool]{Most: 1, Within: time.Minute, Log: log})
	_, catalogue.items = newShelf(10, 1)
	catalogue.items.known.Add(1, struct{}{})
	calls := 0
	own := &offer{entry: strategy.Entry{Name: "s"}, strategy: c, observer: c}
	own.sellers = map[Mode]*Seller{catalogue.standard: {catalogue.standard, own, func(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
		calls++
		outcome, err := deduct(calls, batch[0])
		return []stock.Outcome{outcome}, err
	}}}
	catalogue.byName = map[string]*offer{"s": own}
	return NewShop(catalogue, nil, Admission{})
}

func (s *Shop) buy1(ctx context.Context, p stock.Purchase) (stock.Outcome, error) {
	return s.Buy(ctx, Request{GoodsID: 1, Purchase: p})
}

var keyed = stock.Purchase{RequestID: "k", Keyed: true, Quantity: 1}

func soldAs(id string) stock.Order {
	return stock.Order{ID: id, Kind: stock.Deduction, RequestID: "k", GoodsID: 1, Quantity: 1, Strategy: "s"}
}

// A copy of a purchase is answered as the first one was, however late that is found.
func TestACopyGetsTheAnswerOfTheFirst(t *testing.T) {
	out := stock.Outcome{Rejected: stock.ErrInsufficientStock}
	for name, c := range map[string]struct {
		purchase stock.Purchase
		deduct   func(c *counter, call int) (stock.Outcome, error)
		order    string
		err      error
		calls    int
	}{
		"a duplicate whose first is in the ledger": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "7", nil, 1},
		"a duplicate whose first is rolled back": {keyed, func(_ *counter, call int) (stock.Outcome, error) {
			if call < 3 {
				return stock.Outcome{}, stock.ErrDuplicateRequest
			}
			return stock.Outcome{Order: soldAs("8")}, nil
		}, "8", nil, 3},
		"a duplicate whose first keeps being rolled back": {keyed, func(*counter, int) (stock.Outcome, error) {
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "", stock.ErrBusy, tries},
		"a rejection because the first took the last unit": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return out, nil
		}, "7", nil, 1},
		"a rejection": {keyed, func(*counter, int) (stock.Outcome, error) { return out, nil }, "", stock.ErrInsufficientStock, 1},
		"a rejection of a purchase without a key": {stock.Purchase{RequestID: "k", Quantity: 1}, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return out, nil
		}, "", stock.ErrInsufficientStock, 1},
		"a rejection that may be none, and the ledger does not answer": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.broken = &stock.BackendError{Backend: "database", Err: errors.New("cut")}
			return stock.Outcome{Rejected: stock.ErrUnknownOutcome}, nil
		}, "", stock.ErrUnknownOutcome, 1},
		"a rejection, and the ledger does not answer": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.broken = stock.ErrBackendUnavailable
			return out, nil
		}, "", stock.ErrBackendUnavailable, 1},
		"a failure": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return stock.Outcome{}, stock.ErrLeaseLost
		}, "", stock.ErrLeaseLost, 1},
		"a key of another purchase": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			other := soldAs("7")
			other.GoodsID = 2
			c.ledger["k"] = other
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "", stock.ErrKeyReused, 1},
		"a key of another buyer": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			other := soldAs("7")
			other.UserID = "another"
			c.ledger["k"] = other
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "", stock.ErrKeyReused, 1},
	} {
		sold, calls := &counter{ledger: map[string]stock.Order{}}, 0
		s := sold.shop(func(call int, _ stock.Purchase) (stock.Outcome, error) {
			calls = call
			return c.deduct(sold, call)
		})
		got, err := s.buy1(t.Context(), c.purchase)
		if !errors.Is(err, c.err) || got.Order.ID != c.order || calls != c.calls || got.Replayed != (c.order == "7") {
			t.Errorf("%s: %+v, %v after %d tries; want order %q, %v after %d", name, got, err, calls, c.order, c.err, c.calls)
		}
		if len(sold.observed) != 1 || !errors.Is(errors.Join(sold.failures[0], sold.observed[0].Rejected), c.err) {
			t.Errorf("%s: it was observed %d times, with %v", name, len(sold.observed), sold.failures)
		}
		if !c.purchase.Keyed && sold.searches != 0 {
			t.Errorf("%s: the ledger was searched", name)
		}
	}
}

// A reservation has a number, its own or a new one, and is answered when the ledger has it.
func TestAReservationIsNumberedAndDurable(t *testing.T) {
	var sent []stock.Purchase
	s := new(counter).shop(func(_ int, p stock.Purchase) (stock.Outcome, error) {
		sent = append(sent, p)
		return stock.Outcome{}, nil
	})
	p := keyed
	for _, number := range []string{"", "", "own"} {
		p.TTL, p.Number = time.Hour, number
		must.Get(s.buy1(t.Context(), p))(t)
	}
	if sent[0].Number == "" || sent[0].Number == sent[1].Number || sent[2].Number != "own" {
		t.Errorf("they have the numbers %q, %q and %q", sent[0].Number, sent[1].Number, sent[2].Number)
	}
	for _, p := range sent {
		if p.Durable != stock.InSQL || p.TTL != time.Hour {
			t.Errorf("it is sold as %+v, want it in the ledger", p)
		}
	}
	if _, err := s.buy1(t.Context(), keyed); err != nil || sent[3].Number != "" || sent[3].Durable != "" {
		t.Errorf("what is no reservation is sold as %+v (%v)", sent[3], err)
	}
}

// A repeated purchase is found before anything is sold, and counts as one of the strategy that sold it.
func TestAReplayIsCountedForTheStrategyThatSold(t *testing.T) {
	other, unkeyed := keyed, keyed
	other.Quantity, unkeyed.Keyed = 2, false
	for name, c := range map[string]struct {
		purchase stock.Purchase
		ledger   map[string]stock.Order
		replayed bool
		err      error
	}{
		"it is in the ledger":      {keyed, map[string]stock.Order{"k": soldAs("7")}, true, nil},
		"it is not":                {keyed, nil, false, stock.ErrBusy},
		"it is another purchase":   {other, map[string]stock.Order{"k": soldAs("7")}, false, stock.ErrKeyReused},
		"a purchase without a key": {unkeyed, map[string]stock.Order{"k": soldAs("7")}, false, stock.ErrBusy},
	} {
		sold := &counter{ledger: c.ledger}
		got, err := sold.shop(func(int, stock.Purchase) (stock.Outcome, error) { return stock.Outcome{}, stock.ErrBusy }).buy1(t.Context(), c.purchase)
		if got.Replayed != c.replayed || !errors.Is(err, c.err) || c.replayed && got.Order != soldAs("7") || c.replayed && len(sold.observed) != 1 {
			t.Errorf("%s: %+v, %v, observed %d times; want replayed %v, %v", name, got, err, len(sold.observed), c.replayed, c.err)
		}
	}
}

// An item whose row is gone is looked for again, and one that was never there is not sold.
func TestAnItemThatIsGoneIsForgotten(t *testing.T) {
	sold, gone := &counter{}, false
	s := sold.shop(func(int, stock.Purchase) (stock.Outcome, error) {
		if gone {
			return stock.Outcome{}, stock.ErrUnknownGoods
		}
		return stock.Outcome{}, stock.ErrBusy
	})
	if _, err := s.buy1(t.Context(), keyed); !errors.Is(err, stock.ErrBusy) || !s.items.known.Contains(1) {
		t.Errorf("busy: %v, and the item is known: %v", err, s.items.known.Contains(1))
	}
	gone = true
	if _, err := s.buy1(t.Context(), keyed); !errors.Is(err, stock.ErrUnknownGoods) || s.items.known.Contains(1) {
		t.Errorf("gone: %v, and the item is known: %v", err, s.items.known.Contains(1))
	}
}

// A client may invent any number of items: no strategy makes locks, queues or copies for them.
func TestAnUnknownItemReachesNoStrategy(t *testing.T) {
	s := new(counter).shop(func(int, stock.Purchase) (stock.Outcome, error) {
		t.Error("the strategy is asked")
		return stock.Outcome{}, nil
	})
	var empty *shelf
	empty, s.items = newShelf(10)
	close(empty.opened)
	_, err := s.buy1(t.Context(), keyed)
	should.Fail(t, err, stock.ErrUnknownGoods)
}

// box is an outbox with one pending order.
type box struct {
	Ahead

	pending stock.Order
	err     error
	awaited int
}

func (b *box) Pending(context.Context, int64) (int64, error) { return b.pending.Quantity, b.err }

func (b *box) FindRequest(_ context.Context, id string) (stock.Order, bool, error) {
	return b.pending, b.err == nil && id == b.pending.RequestID, b.err
}

func (*box) Lag(context.Context) (redisstock.Lag, error) { return redisstock.Lag{Orders: 3}, nil }

func (b *box) Await(context.Context, stock.Order) error {
	b.awaited++
	return b.err
}

// Each row is what is pending when a purchase under the key k is repeated, by another strategy, which has its answer, or
// sells, where the item may have orders in Redis; and in vain, beyond the limit of its buyer.
func TestAPendingPurchaseIsReplayed(t *testing.T) {
	down := &stock.BackendError{Backend: "redis", Err: errors.New("refused")}
	other := soldAs("7")
	other.Quantity = 2
	durable, unkeyed := keyed, keyed
	durable.Durable, unkeyed.Keyed = stock.InSQL, false
	for name, c := range map[string]struct {
		box      *box
		purchase stock.Purchase
		order    string
		where    stock.Durability
		err      error // where it would be rejected
		awaited  int
	}{
		"it is":                            {&box{pending: soldAs("7")}, keyed, "7", stock.InRedis, nil, 0},
		"it is, and must be in the ledger": {&box{pending: soldAs("7")}, durable, "7", stock.InSQL, nil, 1},
		"it is not":                        {&box{}, keyed, "new", "", stock.ErrUserLimit, 0},
		"another purchase":                 {&box{pending: other}, keyed, "", "", stock.ErrKeyReused, 0},
		"the outbox does not answer":       {&box{err: down}, keyed, "new", "", stock.ErrUnknownOutcome, 0},
		"a purchase without a key":         {&box{pending: soldAs("7")}, unkeyed, "new", "", stock.ErrUserLimit, 0},
		"there is no outbox":               {nil, keyed, "new", "", stock.ErrUserLimit, 0},
	} {
		for _, limited := range []bool{false, true} {
			for _, inRedis := range []bool{false, true} {
				sold := &counter{}
				s := sold.shop(func(int, stock.Purchase) (stock.Outcome, error) {
					if limited {
						return stock.Outcome{Rejected: stock.ErrUserLimit}, nil
					}
					return stock.Outcome{Order: soldAs("new")}, nil
				})
				if c.box != nil {
					b := *c.box
					s.redis = &b
				}
				s.switches.last.Store(&sight{inRedis: map[int64]bool{1: inRedis}})
				order, where, want := c.order, c.where, error(nil)
				switch {
				case !inRedis && limited:
					order, where, want = "", "", stock.ErrUserLimit
				case !inRedis:
					order, where = "new", ""
				case order == "" || limited && order == "new":
					order, want = "", c.err
				}
				got, err := s.buy1(t.Context(), c.purchase)
				if !errors.Is(err, want) || err == nil && (got.Order.ID != order || got.Durable != where || got.Replayed != (order == "7")) {
					t.Errorf("%s, units in Redis %t, limited %t: %+v, %v; want %q in %q, %v", name, inRedis, limited, got, err, order, where, want)
				}
			}
		}
	}
}

// A request that has ended sells nothing, where it is unknown what is pending.
func TestARequestThatHasEndedSellsNothing(t *testing.T) {
	s := new(counter).shop(nil)
	s.redis = &box{err: &stock.BackendError{Backend: "redis", Err: context.Canceled}}
	s.switches.last.Store(&sight{inRedis: map[int64]bool{1: true}})
	s.requests = share(func(context.Context, ...string) (map[string]stock.Order, error) { return nil, nil })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.buy1(ended, keyed); err == nil {
		t.Error("it is sold")
	}
}

// An order that is on its way to the ledger is in the one or in the other.
func TestAnOrderIsLookedForInTheLedgerBeforeAndAfter(t *testing.T) {
	type answer struct {
		ok   bool
		err  error
		kind stock.Kind
	}
	down := errors.New("down")
	yes, no, fails, held := answer{ok: true, kind: stock.Deduction}, answer{}, answer{err: down}, answer{ok: true, kind: stock.Hold}
	for name, c := range map[string]struct {
		outbox        bool
		ledger        []answer
		pending       answer
		where         stock.Durability
		err           error
		ledgers, sent int
	}{
		"in the ledger":              {true, []answer{yes}, no, stock.InSQL, nil, 1, 0},
		"pending":                    {true, []answer{no}, yes, stock.InRedis, nil, 1, 1},
		"held, and pending":          {true, []answer{no, no}, held, "", stock.ErrUnknownOrder, 2, 1},
		"moved meanwhile":            {true, []answer{no, yes}, no, stock.InSQL, nil, 2, 1},
		"nowhere":                    {true, []answer{no, no}, no, "", stock.ErrUnknownOrder, 2, 1},
		"nowhere, without an outbox": {false, []answer{no}, no, "", stock.ErrUnknownOrder, 1, 0},
		"the ledger fails":           {true, []answer{fails}, no, stock.InSQL, down, 1, 0},
		"the outbox fails":           {true, []answer{no}, fails, stock.InRedis, down, 1, 1},
		"the ledger fails later":     {true, []answer{no, fails}, no, stock.InSQL, down, 2, 1},
	} {
		catalogue := &Catalogue{}
		if c.outbox {
			catalogue.redis = &box{}
		}
		ledgers, sent := 0, 0
		got, err := catalogue.find(t.Context(), func() (stock.Order, bool, error) {
			a := c.ledger[ledgers]
			ledgers++
			return stock.Order{Kind: a.kind}, a.ok, a.err
		}, func() (stock.Order, bool, error) {
			sent++
			return stock.Order{Kind: c.pending.kind}, c.pending.ok, c.pending.err
		})
		if got.Durable != c.where || !errors.Is(err, c.err) || ledgers != c.ledgers || sent != c.sent {
			t.Errorf("%s: in %q, %v after %d and %d looks; want %q, %v after %d and %d", name, got.Durable, err, ledgers, sent, c.where, c.err, c.ledgers, c.sent)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	none := func() (stock.Order, bool, error) { return stock.Order{}, false, nil }
	if _, err := (&Catalogue{}).find(ended, none, none); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrUnknownOrder) {
		t.Errorf("a search that was cut off: %v", err)
	}
}

// A purchase is answered from where it asks for at least, also where it repeats one that is only
// accepted. Its request id is known also where it is not written in time: so what became of it is found.
func TestAPurchaseIsStoredAsDurablyAsItAsks(t *testing.T) {
	accepted := stock.Outcome{Order: soldAs("7"), Durable: stock.InRedis}
	repeated := accepted
	repeated.Replayed = true
	another := soldAs("8")
	another.Quantity = 2
	for name, c := range map[string]struct {
		outcome stock.Outcome
		durable stock.Durability
		lost    error       // of the wait for the ledger
		ledger  stock.Order // under the key
		where   stock.Durability
		awaited int
		err     error
	}{
		"an acceptance":                        {accepted, "", nil, stock.Order{}, stock.InRedis, 0, nil},
		"an acceptance, redis is enough":       {accepted, stock.InRedis, nil, stock.Order{}, stock.InRedis, 0, nil},
		"an acceptance, for the ledger":        {accepted, stock.InSQL, nil, stock.Order{}, stock.InSQL, 1, nil},
		"an acceptance that is not written":    {accepted, stock.InSQL, stock.ErrUnknownOutcome, stock.Order{}, "", 1, stock.ErrUnknownOutcome},
		"a repeated one":                       {repeated, "", nil, stock.Order{}, stock.InRedis, 0, nil},
		"a repeated one, for the ledger":       {repeated, stock.InSQL, nil, stock.Order{}, stock.InSQL, 1, nil},
		"a repeated one that is not written":   {repeated, stock.InSQL, stock.ErrUnknownOutcome, stock.Order{}, "", 1, stock.ErrUnknownOutcome},
		"a rejection, for the ledger":          {stock.Outcome{Rejected: stock.ErrInsufficientStock}, stock.InSQL, nil, stock.Order{}, "", 0, stock.ErrInsufficientStock},
		"an order that is in the ledger again": {stock.Outcome{Order: soldAs("7"), Durable: stock.InSQL}, stock.InSQL, nil, stock.Order{}, stock.InSQL, 0, nil},
		"a copy was sold beside it":            {accepted, stock.InSQL, stock.ErrKeyReused, soldAs("8"), stock.InSQL, 1, nil},
		"a copy was sold beside a repeat":      {repeated, stock.InSQL, stock.ErrKeyReused, soldAs("8"), stock.InSQL, 1, nil},
		"its key is another purchase's":        {accepted, stock.InSQL, stock.ErrKeyReused, another, "", 1, stock.ErrKeyReused},
	} {
		sold, out := &counter{ledger: map[string]stock.Order{"k": c.ledger}}, &box{err: c.lost}
		if c.ledger.ID == "" {
			sold.ledger = nil
		}
		s := sold.shop(func(int, stock.Purchase) (stock.Outcome, error) { return c.outcome, nil })
		s.redis = out
		got, err := s.buy1(t.Context(), stock.Purchase{RequestID: "k", Quantity: 1, Durable: c.durable})
		if got.Durable != c.where || out.awaited != c.awaited || !errors.Is(err, c.err) || err == nil && got.Replayed != (c.outcome.Replayed || c.ledger.ID != "") || err == nil && c.ledger.ID != "" && got.Order.ID != c.ledger.ID {
			t.Errorf("%s: %+v, %v after %d waits; want k in %q, %v after %d", name, got, err, out.awaited, c.where, c.err, c.awaited)
		}
	}
}

// An order is stored with the tag of its buyer, and shown to that buyer.
func TestAnOrderOfAKeyIsShownToItsBuyerAlone(t *testing.T) {
	stored := func(key, buyer string, kind stock.Kind) stock.Order {
		return stock.Order{ID: "7", Kind: kind, RequestID: stock.BuyerKey(key, buyer), UserID: buyer}
	}
	for name, c := range map[string]struct {
		order stock.Order
		buyer string // who finds it
		none  bool   // no one does
	}{
		"of a buyer":      {stored("k", "ann", stock.Deduction), "ann", false},
		"without a buyer": {stored("k", "", stock.Deduction), "", false},
		"a reservation":   {stored("k", "ann", stock.Hold), "", true},
		"of another key":  {stored("other", "ann", stock.Deduction), "", true},
	} {
		ledger := &counter{ledger: map[string]stock.Order{c.order.RequestID: c.order}}
		for where, catalogue := range map[stock.Durability]*Catalogue{
			stock.InSQL:   {requests: share(ledger.find)},
			stock.InRedis: {requests: share((&counter{}).find), redis: &box{pending: c.order}},
		} {
			for _, buyer := range []string{"", "ann", "bob"} {
				got, err := catalogue.OrderOf(t.Context(), "k", buyer)
				if found := !c.none && buyer == c.buyer; found != (err == nil && got.ID == "7" && got.Durable == where) || !found && !errors.Is(err, stock.ErrUnknownOrder) {
					t.Errorf("an order %s in %s is found for %q: %+v, %v", name, where, buyer, got, err)
				}
			}
		}
	}
}

// A key that several buyers have used is ambiguous, unless one of its orders is of no buyer. What is
// pending has no buyer.
func TestAnOrderOfAKeyAloneIsThatOfItsOnlyBuyer(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	c := &Catalogue{
		store: store, requests: share(store.Orders),
		redis: &box{pending: stock.Order{ID: "pending", Kind: stock.Deduction, RequestID: "late"}},
	}
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
	for _, step := range []struct {
		key, buyer, want string // whose order is found
		err              error
	}{
		{"k", "ann", "ann", nil},
		{"k", "bob", "", ErrSeveralBuyers},
		{"k", "", "", nil},
		{"other", "bob", "bob", nil},
	} {
		if err := store.InTx(t.Context(), func(tx *repo.Tx) error {
			_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: stock.BuyerKey(step.key, step.buyer), UserID: step.buyer, Quantity: 1}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		got, err := c.OrderOfAny(t.Context(), step.key)
		if !errors.Is(err, step.err) || got.UserID != step.want || err == nil && (stock.KeyOf(got.RequestID) != step.key || got.Durable != stock.InSQL) {
			t.Errorf("after a purchase of %q under %q the key alone finds %+v, %v; want that of %q, %v", step.buyer, step.key, got, err, step.want, step.err)
		}
	}
	if got, err := c.OrderOfAny(t.Context(), "late"); err != nil || got.ID != "pending" || got.Durable != stock.InRedis {
		t.Errorf("what is pending is found as %+v, %v", got, err)
	}
	should.Reject(c.OrderOfAny(t.Context(), "none"))(t, stock.ErrUnknownOrder, "an unknown key finds")
	should.Do(t, store.Close())
}

func TestADeductionIsAStepOfItsTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, request := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
	defer request.End()
	s := new(counter).shop(func(int, stock.Purchase) (stock.Outcome, error) { return stock.Outcome{}, nil })
	if _, err := s.buy1(ctx, stock.Purchase{RequestID: "k", Quantity: 1}); err != nil {
		t.Error(err)
	}
	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Name() != "deduct" || !slices.Contains(ended[0].Attributes(), attribute.String("stockd.strategy", "s")) {
		t.Errorf("the steps that have ended are %v, want a deduction through s", ended)
	}
}

// An order is unknown only where both the ledger and what is pending were searched.
func TestAnOrderThatCannotBeSearchedForIsNotUnknown(t *testing.T) {
	down := &stock.BackendError{Backend: "any", Err: errors.New("refused")}
	broken := func(context.Context, ...string) (map[string]stock.Order, error) { return nil, down }
	for where, catalogue := range map[string]*Catalogue{
		"the ledger": {requests: share(broken), redis: &box{}},
		"the outbox": {requests: share((&counter{}).find), redis: &box{err: down}},
	} {
		if got, err := catalogue.OrderOf(t.Context(), "k", "ann"); !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOrder) {
			t.Errorf("while %s is down: %+v, %v; want %v", where, got, err, stock.ErrBackendUnavailable)
		}
	}
}

// A rejection is final after two recalls in a row that returned nothing, where no unit was moved
// meanwhile and all that is allocated is pending.
func TestARejectionIsFinalAfterTwoVainRecalls(t *testing.T) {
	short := func(units, rowVersion int64) *stock.AllocatedError {
		return &stock.AllocatedError{Units: units, Version: rowVersion}
	}
	recalled := func(returned, pending int64) RecalledItem {
		return RecalledItem{Recalled: stock.Recalled{Returned: returned, Pending: pending}}
	}
	type recall struct {
		after *stock.AllocatedError
		found RecalledItem
	}
	for name, c := range map[string]struct {
		recalls []recall
		then    *stock.AllocatedError
		final   bool
	}{
		"none":                                {nil, short(3, 1), false},
		"one":                                 {[]recall{{short(3, 1), recalled(0, 3)}}, short(3, 1), false},
		"two":                                 {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(0, 3)}}, short(3, 1), true},
		"two, and fewer are allocated":        {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(0, 3)}}, short(2, 1), true},
		"two, and more are allocated":         {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(0, 3)}}, short(4, 1), false},
		"two, and fewer are pending by now":   {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(0, 2)}}, short(3, 1), false},
		"two, and units were moved afterward": {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(0, 3)}}, short(3, 2), false},
		"two, and units were moved between":   {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 2), recalled(0, 3)}}, short(3, 2), false},
		"two after units were moved":          {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 2), recalled(0, 3)}, {short(3, 2), recalled(0, 3)}}, short(3, 2), true},
		"one after units came back":           {[]recall{{short(3, 1), recalled(0, 3)}, {short(3, 1), recalled(1, 3)}, {short(3, 1), recalled(0, 3)}}, short(3, 1), false},
		"two after units came back":           {[]recall{{short(4, 1), recalled(1, 3)}, {short(3, 2), recalled(0, 3)}, {short(3, 2), recalled(0, 3)}}, short(3, 2), true},
	} {
		var vain vainRecalls
		for _, r := range c.recalls {
			vain.add(r.after, r.found)
		}
		should.Be(t, vain.prove(c.then), c.final, name)
	}
}

// fencedStrategy is a strategy that can be fenced.
type fencedStrategy struct {
	strategy.Strategy
	strategy.Fencer
}

// What is asked for wins over what is chosen for the item, and that over the default.
func TestAModeIsAskedForOrChosenOrTheDefault(t *testing.T) {
	yes, no := new(true), new(false)
	c := &Catalogue{
		standard: Mode{Strategy: "fenced", Group: true, Fence: true}, switches: newSwitches(nil), maxQuantity: 50,
		byName: map[string]*offer{"fenced": {strategy: fencedStrategy{}}, "plain": {strategy: &counter{}}},
	}
	for name, row := range map[string]struct {
		asked, chosen stock.Choice
		mode, own     Mode
	}{
		"nothing":                   {stock.Choice{}, stock.Choice{}, c.standard, c.standard},
		"chosen":                    {stock.Choice{}, stock.Choice{Strategy: "plain", Group: no}, Mode{"plain", false, false}, Mode{"plain", false, false}},
		"asked":                     {stock.Choice{Strategy: "plain", Group: no}, stock.Choice{}, Mode{"plain", false, false}, c.standard},
		"asked and chosen":          {stock.Choice{Strategy: "fenced", Group: yes}, stock.Choice{Strategy: "plain", Group: no}, Mode{"fenced", true, true}, Mode{"plain", false, false}},
		"a fence that is asked for": {stock.Choice{Strategy: "plain", Fence: yes}, stock.Choice{}, Mode{"plain", true, true}, c.standard},
		"a fence that is chosen":    {stock.Choice{}, stock.Choice{Strategy: "plain", Fence: yes}, Mode{"plain", true, false}, Mode{"plain", true, false}},
		"no fence is asked for":     {stock.Choice{Fence: no}, stock.Choice{}, Mode{"fenced", true, false}, c.standard},
		"an unknown strategy":       {stock.Choice{Strategy: "hope"}, stock.Choice{}, Mode{"hope", true, true}, c.standard},
	} {
		c.switches.last.Store(&sight{choices: map[int64]stock.Choice{1: row.chosen}})
		if mode, own := c.Mode(1, row.asked); mode != row.mode || own != row.own {
			t.Errorf("%s: %s, and its own %s; want %s and %s", name, mode, own, row.mode, row.own)
		}
	}
	for most, want := range map[*int64]int64{nil: 50, new(int64(3)): 3, new(int64(80)): 80} {
		c.switches.last.Store(&sight{choices: map[int64]stock.Choice{1: {MaxQuantity: most}}})
		if got := c.MaxQuantity(1); got != want || c.MaxQuantity(2) != 50 {
			t.Errorf("the most units are %d, want %d; of another item %d", got, want, c.MaxQuantity(2))
		}
	}
}

// closing is a strategy that may fail to be closed.
type closing struct {
	strategy.Strategy

	err    error
	closed bool
}

func (s *closing) Close() error {
	s.closed = true
	return s.err
}

// Every strategy is closed, whatever another one fails with.
func TestEveryStrategyIsClosed(t *testing.T) {
	fails, works := &closing{err: errors.New("no answer")}, &closing{}
	waits := &offer{batchers: []*strategy.Batcher{strategy.NewBatcher(nil, nil, strategy.Group{Queue: 1})}, strategy: &counter{}}
	c := &Catalogue{offers: []*offer{{strategy: fails}, {strategy: works}, waits}}
	if err := c.Close(); !errors.Is(err, fails.err) || !fails.closed || !works.closed {
		t.Errorf("closed %v and %v with %v", fails.closed, works.closed, err)
	}
	should.Reject(waits.batchers[0].Deduct(t.Context(), 1, []stock.Purchase{keyed}))(t, stock.ErrBusy, "a queue of a closed catalogue answers")
}

// What is pending is the outbox's to say, nothing where there is none, and unknown where it
// does not answer.
func TestAnAuditSaysWhatIsPending(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	defer store.Close() //nolint:errcheck // the test is over
	for name, c := range map[string]struct {
		outbox Ahead
		want   *int64
	}{
		"some":        {&box{pending: stock.Order{Quantity: 3}}, new(int64(3))},
		"no outbox":   {nil, new(int64(0))},
		"it is down":  {&box{err: errors.New("down")}, nil},
		"none of any": {&box{}, new(int64(0))},
	} {
		got := (&Inventory{store: store, catalogue: &Catalogue{redis: c.outbox}}).pending(t.Context(), 1)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The lag is the outbox's to say, and without one there is none.
func TestTheLagIsThatOfTheOutbox(t *testing.T) {
	should.Reject(new(Catalogue).Lag(t.Context()))(t, ErrNoOutbox)
	should.Be(t, must.Get((&Catalogue{redis: &box{}}).Lag(t.Context()))(t).Orders, 3)
}

// meeting closes when all have begun to close.
type meeting struct {
	strategy.Strategy
	all *sync.WaitGroup
}

func (m meeting) Close() error {
	m.all.Done()
	m.all.Wait()
	return nil
}

func TestAStrategyThatHangsDelaysNoOtherClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both sync.WaitGroup
		both.Add(2)
		c := &Catalogue{offers: []*offer{{strategy: meeting{all: &both}}, {strategy: meeting{all: &both}}}}
		should.Do(t, c.Close())
	})
}

// uncertain is an allocator whose first recall has an unknown outcome.
type uncertain struct {
	strategy.Strategy
	recalls int
}

func (u *uncertain) Recall(context.Context, int64) (stock.Recalled, error) {
	if u.recalls++; u.recalls == 1 {
		return stock.Recalled{}, stock.ErrUnknownOutcome
	}
	return stock.Recalled{Returned: 3}, nil
}

// What became of a recall is found out by the next one; of the purchase nothing was sent.
func TestARecallOfUnknownOutcomeIsNoneOfThePurchase(t *testing.T) {
	other, sold := &uncertain{}, &counter{}
	s := sold.shop(func(int, stock.Purchase) (stock.Outcome, error) {
		if other.recalls < 2 {
			return stock.Outcome{Rejected: &stock.AllocatedError{Units: 3, Version: 1}}, nil
		}
		return stock.Outcome{Order: soldAs("7")}, nil
	})
	s.recalls = &recaller{
		holders: func(context.Context, int64) ([]string, error) { return []string{"other"}, nil },
		offers:  map[string]*offer{"other": {strategy: other}}, log: s.log,
	}
	if got, err := s.buy1(t.Context(), keyed); err != nil || got.Order.ID != "7" || other.recalls != 2 {
		t.Errorf("after %d recalls it is answered with %+v, %v; want it sold after two", other.recalls, got, err)
	}
}

// What does not sell on a database is rejected by its name, before it answers that it does not know.
func TestAStrategyIsRejectedWhereItsDatabaseRulesItOut(t *testing.T) {
	for _, entry := range strategy.Registry() {
		should.Be(t, notHere(entry, "", false, false), "", entry.Name)
		should.Be(t, notHere(entry, "Galera", false, false) != "", entry.OneServer, entry.Name, "on Galera")
		should.Be(t, notHere(entry, "Galera", false, true), "", entry.Name, "in an experiment")
		should.Be(t, notHere(entry, "", true, false) != "", entry.Name == "sql-procedure" || entry.Name == "sql-named-lock", entry.Name, "on shards")
	}
}
