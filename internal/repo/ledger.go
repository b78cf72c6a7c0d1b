package repo

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// ledgerRow is a row of tb_stock_ledger.
type ledgerRow struct {
	ID        int64 `gorm:"primaryKey"`
	GoodsID   int64
	Kind      stock.Kind
	Quantity  int64
	RequestID string
	UserID    *string
	Strategy  string
	Replica   string
	Fence     uint64
	Remaining *int64
	// OrderNo is the name that the buyer was given before there was a row.
	OrderNo *string
}

// TableName is the design's name.
func (ledgerRow) TableName() string { return "tb_stock_ledger" }

// Sale is a batch of accepted purchases of one goods, on its way to the ledger.
type Sale struct {
	GoodsID int64
	Batch   []stock.Purchase
	// Token is the fencing token that the sale is made under, or 0.
	Token uint64
	// Left is the stock after the whole batch. It is nil where that is not
	// known before the row is written; see Leave. The ledger then does not know
	// it either, and must where the buyer chose the request id.
	Left *int64
}

// Append writes one ledger row a purchase, in one statement.
// ErrDuplicateRequest: one of the request ids is in the ledger already.
func (t *Tx) Append(ctx context.Context, sale Sale) ([]stock.Order, error) {
	orders := make([]stock.Order, len(sale.Batch))
	for i, p := range sale.Batch {
		orders[i] = stock.Order{
			Kind: stock.Deduction, RequestID: p.RequestID, GoodsID: sale.GoodsID, Quantity: p.Quantity, UserID: p.UserID,
			Strategy: t.store.strategy, Replica: t.store.replica, Token: sale.Token,
		}
	}
	if sale.Left != nil {
		Leave(orders, *sale.Left)
	}
	return orders, t.insert(ctx, orders, sale.Left != nil)
}

// Leave sets what each order of a batch left, given the stock after all of them,
// where it was not known when they were appended.
func Leave(orders []stock.Order, left int64) {
	for i := len(orders) - 1; i >= 0; i-- {
		orders[i].Remaining = left
		left += orders[i].Quantity
	}
}

const (
	ledgerColumns = `goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at`
	ledgerValues  = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?`

	insertLedger    = `INSERT INTO tb_stock_ledger (` + ledgerColumns + `) VALUES `
	insertLedgerRow = `(` + ledgerValues + `)`
)

// listOf is a list of n times the same in a statement.
func listOf(n int, one string) string { return one + strings.Repeat(`, `+one, n-1) }

// appendValues appends the ledgerValues of an order; remaining is nil where it is
// not known.
func appendValues(args []any, o stock.Order, remaining any, at time.Time) []any {
	user := any(o.UserID)
	if o.UserID == "" {
		user = nil
	}
	return append(args, o.GoodsID, string(o.Kind), o.Quantity, o.RequestID, user, o.Strategy, o.Replica, o.Token, remaining, at.UTC())
}

// insert appends the orders and sets their ids; remaining is left out where it
// is not known yet.
func (t *Tx) insert(ctx context.Context, orders []stock.Order, knowRemaining bool) error {
	now := time.Now()
	args := make([]any, 0, 10*len(orders))
	for _, o := range orders {
		remaining := any(o.Remaining)
		if !knowRemaining {
			remaining = nil
		}
		args = appendValues(args, o, remaining, now)
	}
	statement := insertLedger + listOf(len(orders), insertLedgerRow)
	if len(orders) > 1 && t.store.returns {
		return t.readIDs(ctx, "append to ledger", orders, statement+` RETURNING request_id, id`, args...)
	}
	result, err := t.conn().ExecContext(ctx, statement, args...)
	if err != nil {
		return t.store.fault(ctx, "append to ledger", err)
	}
	if len(orders) > 1 {
		return t.findIDs(ctx, orders)
	}
	id, err := result.LastInsertId()
	orders[0].ID = strconv.FormatInt(id, 10)
	return t.store.fault(ctx, "append to ledger", err)
}

// findIDs asks a server that cannot return them with the insert for the ids of
// rows that were inserted together. To count on from the first id would save the
// statement, and is documented for InnoDB; but not everything that speaks MySQL's
// protocol numbers them without gaps, and an order must not get another's id.
func (t *Tx) findIDs(ctx context.Context, orders []stock.Order) error {
	requests := make([]any, len(orders))
	for i, o := range orders {
		requests[i] = o.RequestID
	}
	statement := `SELECT request_id, id FROM tb_stock_ledger WHERE request_id IN (` + listOf(len(orders), `?`) + `)`
	return t.readIDs(ctx, "read ids of ledger", orders, statement, requests...)
}

// readIDs runs a statement that answers with pairs of request id and id, in any
// order, and sets the orders' ids.
func (t *Tx) readIDs(ctx context.Context, doing string, orders []stock.Order, statement string, args ...any) error {
	rows, err := t.conn().QueryContext(ctx, statement, args...)
	if err != nil {
		return t.store.fault(ctx, doing, err)
	}
	defer rows.Close() //nolint:errcheck // what can fail has failed in rows.Err
	ids := make(map[string]string, len(orders))
	for rows.Next() {
		var request, id string
		if err := rows.Scan(&request, &id); err != nil {
			return t.store.fault(ctx, doing, err)
		}
		ids[request] = id
	}
	for i := range orders {
		orders[i].ID = ids[orders[i].RequestID]
	}
	return t.store.fault(ctx, doing, rows.Err())
}

func (t *Tx) appendRestock(ctx context.Context, goodsID, units, left int64, requestID string) error {
	return t.insert(ctx, []stock.Order{{
		Kind: stock.Restock, RequestID: requestID, GoodsID: goodsID, Quantity: units,
		Replica: t.store.replica, Remaining: left,
	}}, true)
}

// Orders finds rows of the ledger by their request ids. Ids that are not in the
// ledger are not in the answer. What a row does not know to have been left is
// answered with what is left now.
func (s *Store) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	var rows []ledgerRow
	err := s.db.WithContext(ctx).Raw(readOrders, requestIDs).Scan(&rows).Error
	if err != nil {
		return nil, s.fault(ctx, "find requests in ledger", err)
	}
	orders := make(map[string]stock.Order, len(rows))
	for _, row := range rows {
		orders[row.RequestID] = row.order()
	}
	return orders, nil
}

const readOrders = `SELECT l.id, l.goods_id, l.kind, l.quantity, l.request_id, l.user_id, l.strategy, l.replica, l.fence, l.order_no,
	COALESCE(l.remaining, ` + inStock + `) AS remaining
	FROM tb_stock_ledger AS l LEFT JOIN tb_goods_stock AS g ON g.goods_id = l.goods_id
	WHERE l.request_id IN ?`

func (row ledgerRow) order() stock.Order {
	o := stock.Order{
		ID: strconv.FormatInt(row.ID, 10), Kind: row.Kind, RequestID: row.RequestID,
		GoodsID: row.GoodsID, Quantity: row.Quantity,
		Strategy: row.Strategy, Replica: row.Replica, Token: row.Fence,
	}
	if row.UserID != nil {
		o.UserID = *row.UserID
	}
	if row.OrderNo != nil {
		o.ID = *row.OrderNo
	}
	if row.Remaining != nil {
		o.Remaining = *row.Remaining
	}
	return o
}
