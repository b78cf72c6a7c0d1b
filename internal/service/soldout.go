package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// looks reject purchases of an item that is sold out: one read of the row answers all that wait for one, before they
// take a lock, a turn or a connection.
//
//  1. It is exact: the read begins after the purchase has arrived, so that it sees every restock, return, expiry and
//     recall that was answered before, through any replica. No rejection is remembered.
//  2. An item with enough units costs no look: one is taken from the first rejection on this replica until all that wait
//     for one could be sold.
//  3. It rejects only what every strategy would: the item has too few units, and none in allocations, and the limit of
//     the buyer allows the purchase. Everything else is decided by the strategy.
type looks struct {
	store *repo.Store
	queue *queue.Queue[int64, stock.Purchase, bool]
	// short has the items that had too few units for those that asked last. It is a hint, and never the answer.
	short sync.Map
}

// mostLooks is the most purchases that one read answers: a statement may name each of their buyers.
const mostLooks = 1000

func newLooks(store *repo.Store, within time.Duration, log *slog.Logger) *looks {
	l := &looks{store: store}
	l.queue = queue.New(queue.Options[int64, stock.Purchase, bool]{Doing: "look for units", Plain: true, Write: l.read, Most: mostLooks, Within: within, Log: log})
	return l
}

// note has later purchases of an item look first.
func (l *looks) note(goodsID int64) { l.short.Store(goodsID, true) }

// soldOut reports that a purchase cannot be sold. Not so: the strategy decides.
func (l *looks) soldOut(ctx context.Context, goodsID int64, p stock.Purchase) (bool, error) {
	if _, short := l.short.Load(goodsID); !short {
		return false, nil
	}
	soldOut, err := l.queue.Do(ctx, goodsID, p)
	if errors.Is(err, stock.ErrUnknownGoods) {
		return false, nil
	}
	return soldOut, l.store.Waited(ctx, "look for units", err)
}

func (l *looks) read(ctx context.Context, goodsID int64, calls []*queue.Call[stock.Purchase, bool]) {
	purchases := make([]stock.Purchase, len(calls))
	for i, c := range calls {
		purchases[i] = c.Ask
	}
	goods, err := l.store.Goods(ctx, goodsID)
	var limit stock.Limit
	if err == nil {
		limit, err = l.store.Has(ctx, goodsID, goods.PerUser, purchases)
	}
	for i, c := range calls {
		rejected := goods.Allot(purchases[i:i+1], limit)[0]
		c.Answer(err == nil && goods.Allocated == 0 && errors.Is(rejected, stock.ErrInsufficientStock), err)
	}
	if err == nil && goods.Stock+goods.Allocated >= stock.Units(purchases) {
		l.short.Delete(goodsID)
	}
}
