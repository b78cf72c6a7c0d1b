package repo

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// Sale is a batch of accepted purchases of one item, to be written into the ledger.
type Sale struct {
	GoodsID int64
	Batch   []stock.Purchase
	// Token is the fencing token that the sale is made under, or 0.
	Token uint64
	// Left is the stock after the whole batch, or nil if it is unknown before the row
	// is written: see Leave. The ledger then lacks it, which is not allowed for a
	// request id that the buyer chose.
	Left *int64
}

// Append writes one ledger row per purchase, in one statement, and then what it holds. Of several
// sales, either all say what is left or none, and their orders follow each other.
// ErrDuplicateRequest: one of the request ids is in the ledger already.
func (t *Tx) Append(ctx context.Context, sales ...Sale) ([]stock.Order, error) {
	var orders []stock.Order
	known := true
	for _, sale := range sales {
		of := t.store.ordersOfSale(sale)
		if known = sale.Left != nil; known {
			Leave(of, *sale.Left)
		}
		orders = append(orders, of...)
	}
	if err := t.insert(ctx, orders, known); err != nil {
		return nil, err
	}
	return orders, t.hold(ctx, orders)
}

// ordersOfSale are the orders of a sale, without their ids and what they left.
func (s *Store) ordersOfSale(sale Sale) []stock.Order {
	orders := make([]stock.Order, len(sale.Batch))
	for i, p := range sale.Batch {
		orders[i] = stock.Order{
			ID: p.Number, Kind: p.Kind(), RequestID: p.RequestID, GoodsID: sale.GoodsID, Quantity: p.Quantity, UserID: p.UserID,
			Strategy: s.strategy, Replica: s.replica, Token: sale.Token, TTL: p.TTL,
		}
	}
	return orders
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

	correctionColumns = `reason, counted`
	insertCorrection  = `INSERT INTO tb_stock_ledger (` + ledgerColumns + `, ` + correctionColumns + `) VALUES (` + ledgerValues + `, ?, ?)`

	insertNumbered    = `INSERT INTO tb_stock_ledger (` + ledgerColumns + `, order_no) VALUES `
	insertNumberedRow = `(` + ledgerValues + `, ?)`
)

// listOf is a list of n times the same in a statement.
func listOf(n int, one string) string { return one + strings.Repeat(`, `+one, n-1) }

// anys are the arguments of a list in a statement.
func anys[T any](list []T) []any {
	args := make([]any, len(list))
	for i, one := range list {
		args[i] = one
	}
	return args
}

// appendValues appends the ledgerValues of an order; remaining is nil where it is
// not known.
func appendValues(args []any, o stock.Order, remaining any) []any {
	user := any(o.UserID)
	if o.UserID == "" {
		user = nil
	}
	return append(args, o.GoodsID, string(o.Kind), o.Quantity, o.RequestID, user, o.Strategy, o.Replica, o.Token, remaining, o.CreatedAt)
}

// insert appends the orders and sets when they were accepted, and the ids of those that have
// no number; remaining is left out where it is not known yet.
func (t *Tx) insert(ctx context.Context, orders []stock.Order, knowRemaining bool) error {
	now, numbered := acceptedNow(), slices.ContainsFunc(orders, isNumbered)
	args := make([]any, 0, 11*len(orders))
	for i := range orders {
		orders[i].CreatedAt = now
		remaining := any(orders[i].Remaining)
		if !knowRemaining {
			remaining = nil
		}
		if args = appendValues(args, orders[i], remaining); numbered {
			args = append(args, sql.NullString{String: orders[i].ID, Valid: isNumbered(orders[i])})
		}
	}
	statement := insertLedger + listOf(len(orders), insertLedgerRow)
	if numbered {
		statement = insertNumbered + listOf(len(orders), insertNumberedRow)
	}
	if len(orders) > 1 && t.store.returns {
		return t.readIDs(ctx, "append to ledger", orders, statement+` RETURNING request_id, id`, args...)
	}
	result, err := t.conn().ExecContext(ctx, statement, args...)
	switch {
	case err != nil:
		return t.appendFault(ctx, "append to ledger", err)
	case len(orders) > 1:
		return t.findIDs(ctx, orders)
	case numbered:
		return nil
	}
	id, err := result.LastInsertId()
	orders[0].ID = strconv.FormatInt(id, 10)
	return t.store.fault(ctx, "append to ledger", err)
}

// isNumbered reports that the number of an order is not that of its row.
func isNumbered(o stock.Order) bool { return o.ID != "" }

// appendNumbered appends rows that have their numbers. What a step left is not known.
func (t *Tx) appendNumbered(ctx context.Context, doing string, orders []stock.Order) error {
	args := make([]any, 0, 11*len(orders))
	for _, o := range orders {
		remaining := any(o.Remaining)
		if o.Kind != stock.Deduction && o.Kind != stock.Hold {
			remaining = nil
		}
		args = append(appendValues(args, o, remaining), o.ID)
	}
	_, err := t.conn().ExecContext(ctx, insertNumbered+listOf(len(orders), insertNumberedRow), args...)
	return t.appendFault(ctx, doing, err)
}

// appendFault is the fault of rows that were not appended. Vitess does not look on another shard for a request id that it
// has noted there: it is one that was used for another item.
func (t *Tx) appendFault(ctx context.Context, doing string, err error) error {
	err = t.store.fault(ctx, doing, err)
	if errors.Is(err, stock.ErrApart) {
		return fmt.Errorf("%w: %w", stock.ErrDuplicateRequest, err)
	}
	return err
}

// findIDs reads the ids of inserted rows, for servers that cannot return them with the insert.
// Counting on from the first id would save the statement, and is documented for InnoDB; but
// not every server of MySQL's protocol numbers them without gaps, and an order must not get
// the id of another.
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
	ids := make(map[string]string, len(orders))
	err := t.store.each(ctx, t.conn(), doing, func(scan scanRow) error {
		var request, id string
		err := scan(&request, &id)
		ids[request] = id
		return err
	}, statement, args...)
	for i := range orders {
		orders[i].ID = cmp.Or(orders[i].ID, ids[orders[i].RequestID])
	}
	return err
}

// acceptedNow is when an order is accepted, as the ledger has it.
func acceptedNow() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (t *Tx) appendRestock(ctx context.Context, goodsID, units, left int64, requestID string) error {
	if err := t.requireNew(ctx, requestID); err != nil {
		return err
	}
	return t.insert(ctx, []stock.Order{{
		Kind: stock.Restock, RequestID: requestID, GoodsID: goodsID, Quantity: units,
		Replica: t.store.replica, Remaining: left,
	}}, true)
}

// appendCorrection appends the row of a correction, whose request id is new. What remains is all that can be sold of the item.
func (t *Tx) appendCorrection(ctx context.Context, goods stock.Goods, c stock.Correction, by int64, requestID string) error {
	args := appendValues(nil, stock.Order{
		Kind: stock.Correct, RequestID: requestID, GoodsID: goods.ID, Quantity: by, Replica: t.store.replica, CreatedAt: acceptedNow(),
	}, goods.InRow()+goods.Allocated+by)
	_, err := t.write(ctx, "append to ledger", insertCorrection, append(args, c.Reason, c.Counted)...)
	return err
}

// appendSettings appends the row of a change that moves no units. The row may take no longer than in any other transaction,
// although this one may: the running totals rely on it. See audit.go.
func (t *Tx) appendSettings(ctx context.Context, goodsID int64, kind stock.Kind, set stock.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, t.store.pool.TxTimeout)
	defer cancel()
	text, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("append to ledger: %w", err)
	}
	args := appendValues(nil, stock.Order{
		Kind: kind, RequestID: stock.SettingKey.Of(rand.Text()), GoodsID: goodsID, Strategy: set.Strategy, Replica: t.store.replica, CreatedAt: acceptedNow(),
	}, nil)
	_, err = t.write(ctx, "append to ledger", insertCorrection, append(args, string(text), nil)...)
	return err
}

// Orders finds rows of the ledger by their request ids, also archived ones. Ids that are not
// in the ledger are not in the answer. A row without a remaining
// stock gets the current one.
func (s *Store) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	known, err := s.findRequests(ctx, s.pool, requestIDs)
	if err != nil || len(known) == 0 {
		return nil, err
	}
	found, err := s.readOrders(ctx, "read requests of ledger", byRequests+listOf(len(known), `?`)+`)`, anys(known)...)
	if err != nil {
		return nil, err
	}
	orders := make(map[string]stock.Order, len(found))
	for _, row := range found {
		orders[row.RequestID] = row.Order
	}
	return orders, nil
}

// OrdersOfKey finds up to most orders of a key, of any buyer, those of a purchase
// without a buyer first.
func (s *Store) OrdersOfKey(ctx context.Context, key string, most int) ([]stock.Order, error) {
	from, below := stock.KeyRange(key)
	rows, err := s.readFirst(ctx, "find orders of a key", byKey, "request_id", most, from, below)
	if err != nil {
		return nil, err
	}
	return ordersOf(rows), nil
}

const (
	// selectOrders is followed by a table of rows, and rowsOfOrders follows it.
	selectOrders = `SELECT l.id, l.goods_id, l.kind, l.quantity, l.request_id, l.user_id, l.strategy, l.replica, l.fence, l.order_no,
		l.created_at, l.reason, l.counted, COALESCE(l.remaining, ` + inStock + `) AS remaining FROM `
	rowsOfOrders = ` AS l LEFT JOIN tb_goods_stock AS g ON g.goods_id = l.goods_id `

	byRequests = `WHERE l.request_id IN (`

	byKey = `WHERE l.request_id >= ? AND l.request_id < ? AND l.kind = 'deduct'`
)

// ledgerRow is an order with the id of its row.
type ledgerRow struct {
	stock.Order

	id int64
}

func ordersOf(rows []ledgerRow) []stock.Order {
	orders := make([]stock.Order, len(rows))
	for i, row := range rows {
		orders[i] = row.Order
	}
	return orders
}

// readOrders reads rows that a condition selects, of the ledger and its archive.
func (s *Store) readOrders(ctx context.Context, doing, where string, args ...any) ([]ledgerRow, error) {
	return readAll(ctx, s, s.pool, doing, scanOrder, inBoth(selectOrders, rowsOfOrders+where), slices.Concat(args, args)...)
}

// readFirst reads the first rows that a condition selects, in the order of a column.
func (s *Store) readFirst(ctx context.Context, doing, where, column string, most int, args ...any) ([]ledgerRow, error) {
	return readAll(ctx, s, s.pool, doing, scanOrder, firstOfBoth(where, column), slices.Concat(args, []any{most}, args, []any{most, most})...)
}

func scanOrder(scan scanRow) (row ledgerRow, err error) {
	var user, number, reason sql.NullString
	var counted sql.Null[int64]
	var remaining sql.NullInt64 // an item that was deleted has none
	var created moment
	err = scan(&row.id, &row.GoodsID, &row.Kind, &row.Quantity, &row.RequestID, &user, &row.Strategy, &row.Replica,
		&row.Token, &number, &created, &reason, &counted, &remaining)
	row.ID = strconv.FormatInt(row.id, 10)
	if number.Valid { // the number that the client got before the row existed
		row.ID = number.String
	}
	row.UserID, row.Remaining, row.CreatedAt = user.String, remaining.Int64, created.Time
	switch {
	case err != nil:
	case row.Kind == stock.Correct:
		row.Correction = &stock.Correction{Reason: reason.String}
		if row.Correction.By = row.Quantity; counted.Valid {
			row.Correction.By, row.Correction.Counted = 0, &counted.V
		}
	case row.Kind == stock.LimitSet || row.Kind == stock.ChoiceSet || row.Kind == stock.SaleSet:
		err = json.Unmarshal([]byte(reason.String), &row.Settings)
	}
	return row, err
}

// moment is a column of times, which SQLite has as text.
type moment struct{ time.Time }

// sqliteTime is how the driver of SQLite writes a time.
const sqliteTime = "2006-01-02 15:04:05.999999999-07:00"

// Scan reads the column in UTC.
func (m *moment) Scan(value any) (err error) {
	switch v := value.(type) {
	case time.Time:
		m.Time = v
	case string:
		if m.Time, err = time.Parse(sqliteTime, v); err != nil {
			m.Time, err = time.Parse(time.DateTime, v) // of its own clock
		}
	default:
		return fmt.Errorf("%v is no time", value)
	}
	m.Time = m.UTC()
	return err
}
