package repo

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

// A strategy that reads the stock, decides and writes it back overwrites whatever
// came between. What its own purchases do to each other is what the strategy is
// there to show, or to prevent; every other change must be noticed: a restock, a
// limit, units moved to or from allocations, a sale by another strategy.
//
// Therefore the row has an epoch of one writer. A change beside the sales begins a
// new epoch that has no writer yet. The first strategy to sell in an epoch becomes
// its writer; a sale by another one begins the next epoch. A write that was
// computed from a read is accepted in the same epoch while no other strategy is
// its writer, or where nothing at all was written since.

const (
	// bySale takes the strategy twice.
	bySale = `version = version + 1, writer_epoch = writer_epoch + (writer NOT IN ('', ?)), writer = ?`

	besideSales = `version = version + 1, writer_epoch = writer_epoch + 1, writer = ''`

	// unchanged takes the version and the epoch that were read, and the strategy.
	unchanged = `(version = ? OR writer_epoch = ? AND writer IN ('', ?))`
)

// ErrRowChanged tells that the row is not what the transaction was computed from:
// the item was restocked, got another limit, its units were moved, another strategy
// has sold it, or the database has rolled the transaction back for the sake of
// another one. Nothing is written; the purchase is to be decided anew.
var ErrRowChanged = fmt.Errorf("%w: the stock was changed beside the sale", stock.ErrBusy)

func rowChanged(goodsID int64) error { return fmt.Errorf("goods %d: %w", goodsID, ErrRowChanged) }

// noEpoch is no row's epoch.
const noEpoch = -1

// asRead are the arguments of unchanged. What was read while another strategy was
// the writer says nothing about that one's next sale, which stays in its epoch.
func (s *Store) asRead(read stock.Goods) []any {
	epoch := read.WriterEpoch
	if read.Writer != "" && read.Writer != s.strategy {
		epoch = noEpoch
	}
	return []any{read.Version, epoch, s.strategy}
}

// writeComputed runs a statement that ends in unchanged.
func (t *Tx) writeComputed(ctx context.Context, doing, statement string, read stock.Goods, units int64) error {
	me := t.store.strategy
	rows, err := t.write(ctx, doing, statement, append([]any{units, me, me, read.ID}, t.store.asRead(read)...)...)
	if err == nil && rows == 0 {
		err = rowChanged(read.ID)
	}
	return err
}
