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
// new epoch, which has no writer yet. The first strategy to sell in an epoch becomes
// its writer; a sale by another one begins the next epoch. A write that was computed
// from a read is accepted where nothing at all was written since, or in the same epoch
// while no other strategy is its writer.

const (
	// bySale takes the strategy twice.
	bySale = `version = version + 1, writer_epoch = writer_epoch + (writer NOT IN ('', ?)), writer = ?`

	besideSales = `version = version + 1, writer_epoch = writer_epoch + 1, writer = ''`

	// byRecall leaves a writer that is no strategy: each one that keeps an allocation then
	// takes a share of the units and not all, also the one that had them. What recalled
	// them sells first from the rest. See stock.Goods.Share.
	byRecall = `version = version + 1, writer_epoch = writer_epoch + 1, writer = 'recall'`

	// unchanged takes the version and the epoch that were read, and the strategy.
	unchanged = `(version = ? OR writer_epoch = ? AND writer IN ('', ?))`
)

// ErrRowChanged reports that the row is not what the transaction was computed from:
// the item was restocked, got another limit, its units were moved, another strategy
// has sold it, or the database rolled the transaction back as a deadlock victim.
// Nothing is written; the purchase must be decided anew.
var ErrRowChanged = fmt.Errorf("%w: the stock was changed beside the sale", stock.ErrBusy)

func rowChanged(goodsID int64) error { return fmt.Errorf("goods %d: %w", goodsID, ErrRowChanged) }

func orChanged(read stock.Goods, written bool, err error) error {
	if err == nil && !written {
		err = rowChanged(read.ID)
	}
	return err
}

// writeComputed runs a statement that begins with bySale and ends in unchanged,
// where the item has the limit that the transaction sells under, and reports whether
// the row was as it was read. more are the arguments of what follows.
func (t *Tx) writeComputed(ctx context.Context, doing, statement string, read stock.Goods, units int64, more ...any) (written bool, err error) {
	if read.PerUser != t.perUser {
		return false, rowChanged(read.ID)
	}
	me := t.store.strategy
	args := append([]any{units, me, me, read.ID, read.Version, read.WriterEpoch, me}, more...)
	rows, err := t.write(ctx, doing, statement, args...)
	return rows == 1, err
}
