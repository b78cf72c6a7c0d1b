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

// looks reject purchases of an item that is sold out or not on sale: one read of the row answers all that wait for one,
// before they take a lock, a turn or a connection.
//
//  1. It is exact: the read begins after the purchase has arrived, so that it sees every restock, return, expiry and
//     recall that was answered before, through any replica. No rejection is remembered.
//  2. An item with enough units costs no look: one is taken from the first rejection on this replica until all that wait
//     for one could be sold.
//  3. It rejects only what every strategy would: the item has too few units, and none in allocations, and the limit of
//     the buyer allows the purchase. Everything else is decided by the strategy.
//  4. Where the sale of an item ends soon, or ended, every purchase by every strategy looks, and the time of the database
//     decides: none is sold that has arrived after the end.
type looks struct {
	store *repo.Store
	queue *queue.Queue[int64, stock.Purchase, error]
	// short has the items that had too few units for those that asked last, or were not on sale: true. It is a hint, and
	// never the answer.
	short    sync.Map
	switches *switches
}

// maxLooks is the most purchases that one read answers: a statement may name each of their buyers.
const maxLooks = 1000

func newLooks(store *repo.Store, known *switches, within time.Duration, log *slog.Logger) *looks {
	l := &looks{store: store, switches: known}
	l.queue = queue.New(queue.Options[int64, stock.Purchase, error]{Doing: "look for units", Plain: true, Write: l.read, Most: maxLooks, Within: within, Late: store.Late, Log: log})
	return l
}

// note has later purchases of an item look first, those by every strategy where it is not on sale.
func (l *looks) note(goodsID int64, offSale bool) { l.short.Store(goodsID, offSale) }

// isDue reports whether a purchase looks first. soldOut: it does where the item is sold out.
func (l *looks) isDue(goodsID int64, soldOut bool) bool {
	offSale, short := l.short.Load(goodsID)
	return short && (soldOut || offSale == true) || l.switches.ends(goodsID)
}

// look returns why a purchase cannot be sold; nil: the strategy decides.
func (l *looks) look(ctx context.Context, goodsID int64, p stock.Purchase) (rejected, err error) {
	rejected, err = l.queue.Do(ctx, goodsID, p)
	if errors.Is(err, stock.ErrUnknownGoods) {
		return nil, nil
	}
	return rejected, err
}

func (l *looks) read(ctx context.Context, goodsID int64, calls []*queue.Call[stock.Purchase, error]) {
	purchases := make([]stock.Purchase, len(calls))
	for i, c := range calls {
		purchases[i] = c.Ask
	}
	goods, err := l.store.GoodsOnSale(ctx, goodsID)
	if err == nil && goods.Withheld != nil && goods.Rejects() == nil { // this is the first look since the start
		err = l.store.TurnSale(ctx, goodsID)
	}
	var limit stock.Limit
	if err == nil {
		limit, err = l.store.Has(ctx, goodsID, goods.PerUser, purchases)
	}
	for i, c := range calls {
		rejected := goods.Rejects()
		if short := goods.Allot(purchases[i:i+1], limit)[0]; rejected == nil && goods.Allocated == 0 && errors.Is(short, stock.ErrInsufficientStock) {
			rejected = short
		}
		c.Answer(rejected, err)
	}
	if err == nil && goods.Rejects() == nil && goods.Stock+goods.Allocated >= stock.Units(purchases) {
		l.short.Delete(goodsID)
	}
}
