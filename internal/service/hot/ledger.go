package hot

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// ledgerLook is the pause between two looks into the ledger on behalf of all waiting
	// requests.
	ledgerLook = 4 * time.Millisecond
	// ledgerAtOnce bounds the requests of one look.
	ledgerAtOnce = 500
)

// ledgerWatch waits for orders to be in the ledger, with one look for all waiting requests
// of this replica.
type ledgerWatch struct {
	// find finds the orders that the ledger has under request ids.
	find func(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error)
	log  *slog.Logger

	mu      sync.Mutex
	looking bool                          // a look is under way; it ends when no request waits
	waiting map[string][]chan stock.Order // by request id
}

func newLedgerWatch(find func(context.Context, ...string) (map[string]stock.Order, error), log *slog.Logger) *ledgerWatch {
	return &ledgerWatch{find: find, log: log, waiting: make(map[string][]chan stock.Order)}
}

// await returns the order of the ledger under a request id when it is there.
func (w *ledgerWatch) await(ctx context.Context, requestID string) (stock.Order, error) {
	found := make(chan stock.Order, 1)
	w.mu.Lock()
	if !w.looking {
		w.looking = true
		go w.look()
	}
	w.waiting[requestID] = append(w.waiting[requestID], found)
	w.mu.Unlock()
	select {
	case order := <-found:
		return order, nil
	case <-ctx.Done():
		if order, ok := w.leave(requestID, found); ok {
			return order, nil
		}
		return stock.Order{}, context.Cause(ctx)
	}
}

// leave withdraws a request. Its order may have been found as it gave up: then it has its answer.
func (w *ledgerWatch) leave(requestID string, found chan stock.Order) (order stock.Order, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := slices.DeleteFunc(w.waiting[requestID], func(c chan stock.Order) bool { return c == found })
	if w.waiting[requestID] = rest; len(rest) == 0 {
		delete(w.waiting, requestID)
	}
	select {
	case order = <-found:
		return order, true
	default:
		return order, false
	}
}

// look asks the ledger as long as a request waits. A failed look is repeated.
func (w *ledgerWatch) look() {
	for {
		time.Sleep(ledgerLook)
		w.mu.Lock()
		ids := slices.Collect(maps.Keys(w.waiting))
		w.mu.Unlock()
		for some := range slices.Chunk(ids, ledgerAtOnce) {
			// Each waiting request has a limit of its own: failures are not for it.
			_ = background.Guard(context.Background(), w.log, "look into the ledger", func() error { return w.ask(some) })
		}
		if w.ended() {
			return
		}
	}
}

// ended ends the look where no request waits; the next one starts a new one.
func (w *ledgerWatch) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = len(w.waiting) > 0
	return !w.looking
}

func (w *ledgerWatch) ask(ids []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	orders, err := w.find(ctx, ids...)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, order := range orders {
		for _, found := range w.waiting[id] {
			found <- order
		}
		delete(w.waiting, id)
	}
	return nil
}

// Await returns when the ledger has an accepted order. Where it does not
// within ctx, stock.ErrUnknownOutcome; where it has another order under the request
// id, stock.ErrKeyReused.
func (s *Stock) Await(ctx context.Context, order stock.Order) error {
	written, err := s.ledger.await(ctx, order.RequestID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the ledger does not have the order yet: %w", stock.ErrUnknownOutcome, err)
	case written.ID != order.ID:
		return stock.ErrKeyReused
	default:
		return nil
	}
}

// Lag is how far the ledger is behind what was accepted, on all replicas.
type Lag struct {
	// Orders are on the streams.
	Orders int64
	// Oldest is how long the oldest of them has been there, by Redis' clock; 0 where there
	// is none.
	Oldest time.Duration
}

// Lag asks Redis how many orders wait for the ledger, and since when.
func (s *Stock) Lag(ctx context.Context) (Lag, error) {
	pipe := s.redis.Pipeline()
	now := pipe.Time(ctx)
	lengths := make([]*redis.IntCmd, len(s.parts))
	firsts := make([]*redis.XMessageSliceCmd, len(s.parts))
	for i, p := range s.parts {
		lengths[i] = pipe.XLen(ctx, p.orders())
		firsts[i] = pipe.XRangeN(ctx, p.orders(), "-", "+", 1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return Lag{}, failed("ask for the lag", err)
	}
	var lag Lag
	for i := range s.parts {
		lag.Orders += lengths[i].Val()
		for _, first := range firsts[i].Val() {
			since, err := addedAt(first.ID)
			if err != nil {
				return Lag{}, err
			}
			lag.Oldest = max(lag.Oldest, now.Val().Sub(since))
		}
	}
	return lag, nil
}

// addedAt is when an entry of a stream was added, by its id.
func addedAt(id string) (time.Time, error) {
	digits, _, _ := strings.Cut(id, "-")
	at, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no id of a stream: %w", id, err)
	}
	return time.UnixMilli(at), nil
}
