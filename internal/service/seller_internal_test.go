package service

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
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

// seller sells item 1 through a function that is called with the number of its calls.
func (c *counter) seller(deduct func(call int, p stock.Purchase) (stock.Outcome, error)) *Seller {
	log := slog.New(slog.DiscardHandler)
	catalogue := &Catalogue{timeout: time.Minute, log: log, switches: newSwitches(nil)}
	catalogue.requests = share(c.find)
	_, catalogue.items = newShelf(10, 1)
	catalogue.items.remember(1)
	own := &offer{entry: strategy.Entry{Name: "s"}, strategy: c, observer: c}
	catalogue.byName = map[string]*offer{"s": own}
	calls := 0
	return &Seller{offer: own, catalogue: catalogue, deduct: func(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
		calls++
		outcome, err := deduct(calls, batch[0])
		return []stock.Outcome{outcome}, err
	}}
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
		rejected error
		err      error
		calls    int
	}{
		"a duplicate whose first is in the ledger": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "7", nil, nil, 1},
		"a duplicate whose first is rolled back": {keyed, func(_ *counter, call int) (stock.Outcome, error) {
			if call < 3 {
				return stock.Outcome{}, stock.ErrDuplicateRequest
			}
			return stock.Outcome{Order: soldAs("8")}, nil
		}, "8", nil, nil, 3},
		"a duplicate whose first keeps being rolled back": {keyed, func(*counter, int) (stock.Outcome, error) {
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "", nil, stock.ErrBusy, replays},
		"a rejection because the first took the last unit": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return out, nil
		}, "7", nil, nil, 1},
		"a rejection": {keyed, func(*counter, int) (stock.Outcome, error) { return out, nil }, "", stock.ErrInsufficientStock, nil, 1},
		"a rejection of a purchase without a key": {stock.Purchase{RequestID: "k", Quantity: 1}, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return out, nil
		}, "", stock.ErrInsufficientStock, nil, 1},
		"a rejection that may be none, and the ledger does not answer": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.broken = &stock.BackendError{Backend: "database", Err: errors.New("cut")}
			return stock.Outcome{Rejected: stock.ErrUnknownOutcome}, nil
		}, "", stock.ErrUnknownOutcome, nil, 1},
		"a rejection, and the ledger does not answer": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.broken = stock.ErrBackendUnavailable
			return out, nil
		}, "", nil, stock.ErrBackendUnavailable, 1},
		"a failure": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			c.ledger["k"] = soldAs("7")
			return stock.Outcome{}, stock.ErrLeaseLost
		}, "", nil, stock.ErrLeaseLost, 1},
		"a key of another purchase": {keyed, func(c *counter, _ int) (stock.Outcome, error) {
			other := soldAs("7")
			other.GoodsID = 2
			c.ledger["k"] = other
			return stock.Outcome{}, stock.ErrDuplicateRequest
		}, "", nil, stock.ErrKeyReused, 1},
	} {
		sold, calls := &counter{ledger: map[string]stock.Order{}}, 0
		s := sold.seller(func(call int, _ stock.Purchase) (stock.Outcome, error) {
			calls = call
			return c.deduct(sold, call)
		})
		got, err := s.Deduct(t.Context(), 1, c.purchase)
		if !errors.Is(err, c.err) || !errors.Is(got.Rejected, c.rejected) || got.Order.ID != c.order || calls != c.calls || got.Replayed != (c.order == "7") {
			t.Errorf("%s: %+v, %v after %d tries; want order %q, rejected %v, %v after %d", name, got, err, calls, c.order, c.rejected, c.err, c.calls)
		}
		if got.Order.RequestID != "k" || len(sold.observed) != 1 || !errors.Is(sold.failures[0], c.err) {
			t.Errorf("%s: the outcome is of request %q and was observed %d times, with %v", name, got.Order.RequestID, len(sold.observed), sold.failures)
		}
		if !c.purchase.Keyed && sold.searches != 0 {
			t.Errorf("%s: the ledger was searched", name)
		}
	}
}

func TestAPurchaseWithoutAKeyGetsOneOfItsBuyer(t *testing.T) {
	sold := &counter{}
	s := sold.seller(func(_ int, p stock.Purchase) (stock.Outcome, error) {
		return stock.Outcome{Order: stock.Order{ID: p.RequestID}}, nil
	})
	seen := map[string]bool{}
	for range 3 {
		got, err := s.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1, UserID: "ann"})
		if key := stock.KeyOf(got.Order.RequestID); err != nil || key == "" || got.Order.RequestID != stock.BuyerKey(key, "ann") || got.Order.ID != got.Order.RequestID || seen[key] {
			t.Errorf("sold as %q and answered as %q (%v)", got.Order.ID, got.Order.RequestID, err)
		} else {
			seen[key] = true
		}
	}
}

// waits is a strategy whose purchases wait for a lock.
type waits struct{ *counter }

func (waits) LockWait() time.Duration { return 3 * time.Second }

// A purchase can choose its wait for a lock where it waits alone.
func TestOnlyAPurchaseThatIsNotGroupedHasAWait(t *testing.T) {
	for _, c := range []struct {
		strategy strategy.Strategy
		group    bool
		want     time.Duration
	}{{waits{}, false, 3 * time.Second}, {waits{}, true, 0}, {&counter{}, false, 0}} {
		s := &Seller{Mode: Mode{Group: c.group}, offer: &offer{strategy: c.strategy}}
		if got := s.LockWait(); got != c.want {
			t.Errorf("%T, grouped %v, waits for %s, want %s", c.strategy, c.group, got, c.want)
		}
	}
}

// A strategy that does not end is left at the time limit, and the observer gets how long that took.
func TestAPurchaseHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sold := &counter{}
		s := sold.seller(nil)
		s.deduct = func(ctx context.Context, _ int64, _ []stock.Purchase) ([]stock.Outcome, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		ctx, cancel := s.catalogue.Within(t.Context())
		defer cancel()
		if _, err := s.Deduct(ctx, 1, keyed); !errors.Is(err, context.DeadlineExceeded) || sold.took != s.catalogue.timeout || !errors.Is(sold.failures[0], err) {
			t.Errorf("after %s it is answered with %v, and observed with %v", sold.took, err, sold.failures)
		}
	})
}

// A reservation has a number, its own or a new one, and is answered when the ledger has it.
func TestAReservationIsNumberedAndDurable(t *testing.T) {
	var sent []stock.Purchase
	s := new(counter).seller(func(_ int, p stock.Purchase) (stock.Outcome, error) {
		sent = append(sent, p)
		return stock.Outcome{}, nil
	})
	p := keyed
	for _, number := range []string{"", "", "own"} {
		p.TTL, p.Number = time.Hour, number
		if _, err := s.Deduct(t.Context(), 1, p); err != nil {
			t.Fatal(err)
		}
	}
	if sent[0].Number == "" || sent[0].Number == sent[1].Number || sent[2].Number != "own" {
		t.Errorf("they have the numbers %q, %q and %q", sent[0].Number, sent[1].Number, sent[2].Number)
	}
	for _, p := range sent {
		if p.Durable != stock.InSQL || p.TTL != time.Hour {
			t.Errorf("it is sold as %+v, want it in the ledger", p)
		}
	}
	if _, err := s.Deduct(t.Context(), 1, keyed); err != nil || sent[3].Number != "" || sent[3].Durable != "" {
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
		"it is not":                {keyed, nil, false, nil},
		"it is another purchase":   {other, map[string]stock.Order{"k": soldAs("7")}, false, stock.ErrKeyReused},
		"a purchase without a key": {unkeyed, map[string]stock.Order{"k": soldAs("7")}, false, nil},
	} {
		sold := &counter{ledger: c.ledger}
		got, err := sold.seller(nil).catalogue.Replay(t.Context(), 1, c.purchase)
		if got.Replayed != c.replayed || !errors.Is(err, c.err) || c.replayed && got.Order != soldAs("7") || (len(sold.observed) == 1) != c.replayed {
			t.Errorf("%s: %+v, %v, observed %d times; want replayed %v, %v", name, got, err, len(sold.observed), c.replayed, c.err)
		}
	}
}

// An item whose row is gone is looked for again, and one that was never there is not sold.
func TestAnItemThatIsGoneIsForgotten(t *testing.T) {
	sold, gone := &counter{}, false
	s := sold.seller(func(int, stock.Purchase) (stock.Outcome, error) {
		if gone {
			return stock.Outcome{}, stock.ErrUnknownGoods
		}
		return stock.Outcome{}, stock.ErrBusy
	})
	if _, err := s.Deduct(t.Context(), 1, keyed); !errors.Is(err, stock.ErrBusy) || !s.catalogue.items.isKnown(1) {
		t.Errorf("busy: %v, and the item is known: %v", err, s.catalogue.items.isKnown(1))
	}
	gone = true
	if _, err := s.Deduct(t.Context(), 1, keyed); !errors.Is(err, stock.ErrUnknownGoods) || s.catalogue.items.isKnown(1) {
		t.Errorf("gone: %v, and the item is known: %v", err, s.catalogue.items.isKnown(1))
	}
}

// box is an outbox with one pending order.
type box struct {
	strategy.Outbox

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

// Each row is what is pending when a purchase under the key k is repeated.
func TestAPendingPurchaseIsReplayed(t *testing.T) {
	down := &stock.BackendError{Backend: "redis", Err: errors.New("refused")}
	other := soldAs("7")
	other.Quantity = 2
	durable, unkeyed := keyed, keyed
	durable.Durable, unkeyed.Keyed = stock.InSQL, false
	for name, c := range map[string]struct {
		box      *box
		purchase stock.Purchase
		replayed bool
		where    stock.Durability
		err      error
		awaited  int
	}{
		"it is":                            {&box{pending: soldAs("7")}, keyed, true, stock.InRedis, nil, 0},
		"it is, and must be in the ledger": {&box{pending: soldAs("7")}, durable, true, stock.InSQL, nil, 1},
		"it is not":                        {&box{}, keyed, false, "", nil, 0},
		"another purchase":                 {&box{pending: other}, keyed, false, "", stock.ErrKeyReused, 0},
		"the outbox does not answer":       {&box{err: down}, keyed, false, "", stock.ErrUnknownOutcome, 0},
		"a purchase without a key":         {&box{pending: soldAs("7")}, unkeyed, false, "", nil, 0},
		"there is no outbox":               {nil, keyed, false, "", nil, 0},
	} {
		sold := &counter{}
		s := sold.seller(nil)
		if c.box != nil {
			s.catalogue.outbox = c.box
		}
		// A rejection costs no question where nothing of the item is pending.
		if got, err := s.catalogue.ReplayPending(t.Context(), 1, c.purchase); got.Replayed || err != nil {
			t.Errorf("%s, and the item has no units in Redis: %+v, %v", name, got, err)
		}
		s.catalogue.switches.inRedis.Store(&map[int64]bool{1: true})
		got, err := s.catalogue.ReplayPending(t.Context(), 1, c.purchase)
		if got.Replayed != c.replayed || got.Durable != c.where || !errors.Is(err, c.err) || c.box != nil && c.box.awaited != c.awaited {
			t.Errorf("%s: %+v, %v; want replayed %v in %q, %v", name, got, err, c.replayed, c.where, c.err)
		}
		if (len(sold.observed) == 1) != c.replayed {
			t.Errorf("%s: observed %d times", name, len(sold.observed))
		}
		// Another strategy looks only where the item has units in Redis, and sells on without Redis.
		for _, inRedis := range []bool{true, false} {
			s.catalogue.switches.inRedis.Store(&map[int64]bool{1: inRedis})
			elsewhere, err := s.catalogue.ReplayElsewhere(t.Context(), s, 1, c.purchase)
			wantErr := c.err
			if !inRedis || errors.Is(c.err, stock.ErrUnknownOutcome) {
				wantErr = nil
			}
			if elsewhere.Replayed != (c.replayed && inRedis) || !errors.Is(err, wantErr) {
				t.Errorf("%s, units in Redis %v: %+v, %v, want %v", name, inRedis, elsewhere, err, wantErr)
			}
		}
	}
}

// A strategy finds its own pending orders by itself, and a request that has ended sells nothing.
func TestNothingIsLookedForElsewhereByTheOutboxItself(t *testing.T) {
	down := &box{err: &stock.BackendError{Backend: "redis", Err: context.Canceled}}
	s := new(counter).seller(nil)
	s.catalogue.outbox = down
	s.catalogue.switches.inRedis.Store(&map[int64]bool{1: true})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.catalogue.ReplayElsewhere(ended, s, 1, keyed); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("a request that has ended is answered with %v, want %v", err, stock.ErrUnknownOutcome)
	}
	s.strategy, down.pending, down.err = struct {
		strategy.Strategy
		strategy.Outbox
	}{s.strategy, down}, soldAs("7"), nil
	if got, err := s.catalogue.ReplayElsewhere(t.Context(), s, 1, keyed); err != nil || got.Replayed {
		t.Errorf("the outbox is answered with %+v, %v before it is asked", got, err)
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
			catalogue.outbox = &box{}
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
		"a rejection, for the ledger":          {stock.Outcome{Rejected: stock.ErrInsufficientStock}, stock.InSQL, nil, stock.Order{}, "", 0, nil},
		"an order that is in the ledger again": {stock.Outcome{Order: soldAs("7"), Durable: stock.InSQL}, stock.InSQL, nil, stock.Order{}, stock.InSQL, 0, nil},
		"a copy was sold beside it":            {accepted, stock.InSQL, stock.ErrKeyReused, soldAs("8"), "", 1, nil},
		"a copy was sold beside a repeat":      {repeated, stock.InSQL, stock.ErrKeyReused, soldAs("8"), "", 1, nil},
		"its key is another purchase's":        {accepted, stock.InSQL, stock.ErrKeyReused, another, "", 1, stock.ErrKeyReused},
	} {
		sold, out := &counter{ledger: map[string]stock.Order{"k": c.ledger}}, &box{err: c.lost}
		if c.ledger.ID == "" {
			sold.ledger = nil
		}
		s := sold.seller(func(int, stock.Purchase) (stock.Outcome, error) { return c.outcome, nil })
		s.strategy = struct {
			strategy.Strategy
			strategy.Outbox
		}{sold, out}
		s.catalogue.outbox = out
		got, err := s.Deduct(t.Context(), 1, stock.Purchase{RequestID: "k", Quantity: 1, Durable: c.durable})
		if got.Durable != c.where || out.awaited != c.awaited || !errors.Is(err, c.err) || err == nil && got.Replayed != (c.outcome.Replayed || c.ledger.ID != "") || err == nil && c.ledger.ID != "" && got.Order.ID != c.ledger.ID || got.Order.RequestID != "k" {
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
			stock.InRedis: {requests: share((&counter{}).find), outbox: &box{pending: c.order}},
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
		outbox: &box{pending: stock.Order{ID: "pending", Kind: stock.Deduction, RequestID: "late"}},
	}
	if err := store.CreateGoods(t.Context(), 1, 10, "create"); err != nil {
		t.Fatal(err)
	}
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
	if got, err := c.OrderOfAny(t.Context(), "none"); !errors.Is(err, stock.ErrUnknownOrder) {
		t.Errorf("an unknown key finds %+v, %v", got, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

func TestADeductionIsAStepOfItsTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, request := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
	defer request.End()
	s := new(counter).seller(func(int, stock.Purchase) (stock.Outcome, error) { return stock.Outcome{}, nil })
	if _, err := s.Deduct(ctx, 1, keyed); err != nil {
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
		"the ledger": {requests: share(broken), outbox: &box{}},
		"the outbox": {requests: share((&counter{}).find), outbox: &box{err: down}},
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
		if got := vain.prove(c.then); got != c.final {
			t.Errorf("%s: final %v, want %v", name, got, c.final)
		}
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
		c.switches.choices.Store(&map[int64]stock.Choice{1: row.chosen})
		if mode, own := c.Mode(1, row.asked); mode != row.mode || own != row.own {
			t.Errorf("%s: %s, and its own %s; want %s and %s", name, mode, own, row.mode, row.own)
		}
	}
	for most, want := range map[*int64]int64{nil: 50, new(int64(3)): 3, new(int64(80)): 80} {
		c.switches.choices.Store(&map[int64]stock.Choice{1: {MaxQuantity: most}})
		if got := c.MaxQuantity(1); got != want || c.MaxQuantity(2) != 50 {
			t.Errorf("the most units are %d, want %d; of another item %d", got, want, c.MaxQuantity(2))
		}
	}
}

// notified is a strategy that fails to be notified and to be closed.
type notified struct {
	strategy.Strategy

	err      error
	restocks []int64
	limits   int
	closed   bool
}

func (s *notified) Restocked(_ context.Context, goodsID, units int64) error {
	s.restocks = append(s.restocks, goodsID, units)
	return s.err
}

func (s *notified) LimitChanged(context.Context, int64) error {
	s.limits++
	return s.err
}

func (s *notified) Close() error {
	s.closed = true
	return s.err
}

// Every strategy is notified and closed, whatever another one fails with, and each failure is
// returned with its name.
func TestEveryStrategyIsNotifiedAndClosed(t *testing.T) {
	fails, works := &notified{err: errors.New("no answer")}, &notified{}
	c := &Catalogue{offers: []*offer{
		{entry: strategy.Entry{Name: "fails"}, strategy: fails},
		{entry: strategy.Entry{Name: "plain"}, strategy: &counter{}},
		{entry: strategy.Entry{Name: "works"}, strategy: works},
	}}
	for what, notify := range map[string]func() error{
		"a restock": func() error { return c.Restocked(t.Context(), 7, 3) },
		"a limit":   func() error { return c.LimitChanged(t.Context(), 7) },
	} {
		if err := notify(); !errors.Is(err, fails.err) || !strings.Contains(err.Error(), "notify fails of "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, s := range []*notified{fails, works} {
		if !slices.Equal(s.restocks, []int64{7, 3}) || s.limits != 1 {
			t.Errorf("notified of %v and %d limits", s.restocks, s.limits)
		}
	}
	waits := &offer{batchers: []*strategy.Batcher{strategy.NewBatcher(nil, nil, strategy.Group{Queue: 1})}, strategy: &counter{}}
	c.offers = append(c.offers, waits)
	if err := c.Close(); !errors.Is(err, fails.err) || !fails.closed || !works.closed {
		t.Errorf("closed %v and %v with %v", fails.closed, works.closed, err)
	}
	if _, err := waits.batchers[0].Deduct(t.Context(), 1, []stock.Purchase{keyed}); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("a queue of a closed catalogue answers %v", err)
	}
}

// What is pending is the outbox's to say, nothing where there is none, and unknown where it
// does not answer.
func TestAnAuditSaysWhatIsPending(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	defer store.Close() //nolint:errcheck // the test is over
	for name, c := range map[string]struct {
		outbox strategy.Outbox
		want   *int64
	}{
		"some":        {&box{pending: stock.Order{Quantity: 3}}, new(int64(3))},
		"no outbox":   {nil, new(int64(0))},
		"it is down":  {&box{err: errors.New("down")}, nil},
		"none of any": {&box{}, new(int64(0))},
	} {
		got := (&Inventory{store: store, catalogue: &Catalogue{outbox: c.outbox}}).pending(t.Context(), 1)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The lag is the outbox's to say, and without one there is none.
func TestTheLagIsThatOfTheOutbox(t *testing.T) {
	if _, err := new(Catalogue).Lag(t.Context()); !errors.Is(err, ErrNoOutbox) {
		t.Errorf("without an outbox: %v, want %v", err, ErrNoOutbox)
	}
	if lag, err := (&Catalogue{outbox: &box{}}).Lag(t.Context()); err != nil || lag.Orders != 3 {
		t.Errorf("%+v, %v; want that of the outbox", lag, err)
	}
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
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A replica may replay the order of a strategy that it does not have any more.
func TestAReplayOfAnUnknownStrategyIsNotCounted(*testing.T) {
	new(Catalogue).observe(stock.Outcome{Replayed: true, Order: stock.Order{Strategy: "gone"}}, time.Now())
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
	s := sold.seller(func(int, stock.Purchase) (stock.Outcome, error) {
		if other.recalls < 2 {
			return stock.Outcome{Rejected: &stock.AllocatedError{Units: 3, Version: 1}}, nil
		}
		return stock.Outcome{Order: soldAs("7")}, nil
	})
	s.catalogue.recalls = &recaller{
		holders: func(context.Context, int64) ([]string, error) { return []string{"other"}, nil },
		offers:  map[string]*offer{"other": {strategy: other}}, log: s.catalogue.log,
	}
	if got, err := s.Deduct(t.Context(), 1, keyed); err != nil || got.Order.ID != "7" || other.recalls != 2 {
		t.Errorf("after %d recalls it is answered with %+v, %v; want it sold after two", other.recalls, got, err)
	}
}
