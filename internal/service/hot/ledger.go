package hot

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// ledgerLook is the pause between two looks into the ledger on behalf of all
	// who wait for it.
	ledgerLook = 4 * time.Millisecond
	// ledgerAtOnce bounds the requests of one look.
	ledgerAtOnce = 500
)

// ledgerWatch waits for orders to be in the ledger: one look for all of this
// replica who wait. It asks the ledger itself, so that nothing else is believed.
type ledgerWatch struct {
	store *repo.Store
	log   *slog.Logger

	mu      sync.Mutex
	waiting map[string][]chan stock.Order // by request id
}

func newLedgerWatch(store *repo.Store, log *slog.Logger) *ledgerWatch {
	return &ledgerWatch{store: store, log: log, waiting: make(map[string][]chan stock.Order)}
}

// await returns the order of the ledger under a request id when it is there.
func (w *ledgerWatch) await(ctx context.Context, requestID string) (stock.Order, error) {
	found := make(chan stock.Order, 1)
	w.mu.Lock()
	if len(w.waiting) == 0 {
		go w.look()
	}
	w.waiting[requestID] = append(w.waiting[requestID], found)
	w.mu.Unlock()
	select {
	case order := <-found:
		return order, nil
	case <-ctx.Done():
		w.leave(requestID, found)
		return stock.Order{}, context.Cause(ctx)
	}
}

func (w *ledgerWatch) leave(requestID string, found chan stock.Order) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := slices.DeleteFunc(w.waiting[requestID], func(c chan stock.Order) bool { return c == found })
	if w.waiting[requestID] = rest; len(rest) == 0 {
		delete(w.waiting, requestID)
	}
}

// look asks the ledger for as long as somebody waits. A database that fails is
// asked again.
func (w *ledgerWatch) look() {
	for {
		time.Sleep(ledgerLook)
		w.mu.Lock()
		ids := slices.Collect(maps.Keys(w.waiting))
		w.mu.Unlock()
		for some := range slices.Chunk(ids, ledgerAtOnce) {
			// Whoever waits has a limit of his own: failures are not for him.
			_ = background.Guard(context.Background(), w.log, "look into the ledger", func() error { return w.ask(some) })
		}
		if w.idle() {
			return
		}
	}
}

// idle tells that nobody waits; the next one who does starts a new look.
func (w *ledgerWatch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) == 0
}

func (w *ledgerWatch) ask(ids []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	orders, err := w.store.Orders(ctx, ids...)
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

// Await returns when the ledger has an order that was promised. Where it does not
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
