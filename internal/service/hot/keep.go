package hot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/trail"
)

// keepRounds bounds how often a batch is sorted anew: each round, something of it
// is settled, offered again, or put aside.
const keepRounds = 50

// keep sees to it that the ledger has the orders, each once, and only then takes
// them off the stream. An error leaves what is not settled pending.
func (c *consumer) keep(ctx context.Context, entries []entry) error {
	ctx, step := c.follow(ctx, entries)
	defer step.End()
	for range keepRounds {
		if len(entries) == 0 {
			return nil
		}
		err := c.store.Keep(ctx, Place, promises(entries))
		var rest []entry
		stale, isStale := errors.AsType[*repo.StaleError](err)
		switch {
		case err == nil:
			c.options.Observer.Written(len(entries))
			return c.settle(ctx, c.part, entries)
		case errors.Is(err, stock.ErrDuplicateRequest):
			rest, err = c.settleKnown(ctx, entries)
		case isStale:
			rest, err = c.offerAgain(ctx, entries, stale)
		}
		if err != nil {
			return err
		}
		entries = rest
	}
	return errors.New("orders are neither kept nor refused")
}

// follow has what is done for a batch be a part of the purchases' traces.
func (c *consumer) follow(ctx context.Context, entries []entry) (context.Context, trace.Span) {
	places := make([]string, len(entries))
	for i, e := range entries {
		places[i] = e.text("trace")
	}
	return trail.Later(ctx, c.options.Tracer, "write orders", places)
}

func promises(entries []entry) []repo.Promise {
	list := make([]repo.Promise, len(entries))
	for i, e := range entries {
		list[i] = e.Promise
	}
	return list
}

// settleKnown settles those orders that the ledger has already, puts those aside
// whose request id stands for another order there, and returns the others.
func (c *consumer) settleKnown(ctx context.Context, entries []entry) (rest []entry, err error) {
	known, err := c.store.Orders(ctx, requestIDs(entries)...)
	if err != nil {
		return nil, err
	}
	var settled []entry
	ours := make(map[string]bool, len(entries)) // request ids of this batch
	for _, e := range entries {
		first, found := known[e.RequestID]
		switch {
		case found && first.ID == e.ID:
			settled = append(settled, e)
		case found || ours[e.RequestID]:
			if err := c.bury(ctx, e, "the request id stands for another order"); err != nil {
				return nil, err
			}
		default:
			ours[e.RequestID] = true
			rest = append(rest, e)
		}
	}
	return rest, c.settle(ctx, c.part, settled)
}

// offerAgain offers those orders to Redis again whose epoch is over, so that they
// come back in the present one, and returns the others.
//
// Where the epoch is the present one, the place has fewer units than were promised
// from it: Redis has gone back in time unnoticed. The counter is then made anew,
// and what does not fit is put aside.
func (c *consumer) offerAgain(ctx context.Context, entries []entry, stale *repo.StaleError) (rest []entry, err error) {
	place, err := c.store.Place(ctx, stale.GoodsID, Place)
	if err != nil {
		return nil, err
	}
	overdrawn := place.Epoch == stale.Epoch
	if overdrawn {
		c.options.Log.ErrorContext(ctx, "more was promised than there is", "goods", stale.GoodsID, "units", place.Units)
		if err := c.install(ctx, stale.GoodsID, stale.Epoch); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		if e.GoodsID != stale.GoodsID || e.Epoch != stale.Epoch {
			rest = append(rest, e)
			continue
		}
		if overdrawn && e.Quantity > place.Units {
			err = c.bury(ctx, e, "more was promised than there is")
		} else {
			place.Units -= e.Quantity
			err = c.readmit(ctx, e)
		}
		if err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// readmit offers one order of an epoch that is over. Where the counter of a later
// one has not been installed, because whoever began it has died, we do it.
func (c *consumer) readmit(ctx context.Context, e entry) error {
	keys := []string{
		c.part.counter(e.GoodsID), c.part.users(e.GoodsID), c.part.run(), c.part.orders(), c.part.dead(), c.part.request(e.RequestID),
	}
	args := slices.Concat([]any{group, e.id}, e.list(), []any{e.text("limit"), e.text("earlier"), e.text("trace")})
	for range fillTries {
		answer, err := c.part.call(ctx, c.redis, "readmit", keys, args...)
		if err != nil {
			return backend("offer again", err)
		}
		if answer == "DEAD" {
			c.options.Observer.PutAside()
			c.options.Log.ErrorContext(ctx, "an order that Redis had lost finds nothing left for it", "goods", e.GoodsID,
				"order", e.ID, "request", e.RequestID, "stream", c.part.dead())
		}
		if answer != absent {
			return nil
		}
		err = c.install(ctx, e.GoodsID, e.Epoch)
		if errors.Is(err, stock.ErrUnknownGoods) {
			return c.bury(ctx, e, "there is no such goods")
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the counter of goods %d is lost again and again", stock.ErrBusy, e.GoodsID)
}

// bury puts an order aside that can never be in the ledger.
func (c *consumer) bury(ctx context.Context, e entry, reason string) error {
	keys := []string{
		c.part.counter(e.GoodsID), c.part.users(e.GoodsID), c.part.orders(), c.part.dead(), c.part.request(e.RequestID),
	}
	args := slices.Concat([]any{group, e.id, reason, c.soldOut.channel}, e.list())
	if _, err := c.part.call(ctx, c.redis, "bury", keys, args...); err != nil {
		return backend("put aside", err)
	}
	c.options.Observer.PutAside()
	c.options.Log.ErrorContext(ctx, "an order was put aside", "reason", reason, "goods", e.GoodsID, "order", e.ID,
		"request", e.RequestID, "stream", c.part.dead())
	return nil
}
