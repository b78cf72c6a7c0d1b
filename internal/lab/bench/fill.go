package bench

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// A filled ledger: every tenth of its rows is of one item, and the others are
// spread evenly.
const (
	goodsOfLedger = 10_000
	hotGoods      = 1
	hotShare      = 10

	batchBits = 17 // rows of one statement, as a power of two
	unitsEach = 1_000_000_000
)

// The statements count with a table of numbers: not every server that speaks
// MySQL's protocol has a sequence.
const (
	createNumbers = `CREATE TABLE lab_number (n BIGINT NOT NULL PRIMARY KEY)`
	firstNumber   = `INSERT INTO lab_number VALUES (0)`
	doubleNumbers = `INSERT INTO lab_number SELECT n + ? FROM lab_number`
	dropNumbers   = `DROP TABLE lab_number`

	fillRestocks = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, strategy, replica, fence, remaining, created_at)
		SELECT n + 1, 'restock', ?, CONCAT('00000000-0000-7000-8000-r', LPAD(n, 11, '0')), '', 'lab', 0, ?, UTC_TIMESTAMP(6)
		FROM lab_number WHERE n < ? ORDER BY n`

	// Row by row, item by item: in any other order the writes to the index of the items
	// would be random, and the filling take an hour. The request ids look like the
	// UUIDs of an earlier time, so that new ones come after them.
	fillSales = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, strategy, replica, fence, remaining, created_at)
		SELECT CASE WHEN ? + n < ? THEN 1 ELSE 2 + (? + n - ?) DIV ? END, 'deduct', 1,
			CONCAT('00000000-0000-7000-8000-', LPAD(? + n, 12, '0')), 'sql-conditional', 'lab', 0, 1, UTC_TIMESTAMP(6)
		FROM lab_number WHERE n < ? ORDER BY n`

	fillGoods = `INSERT INTO tb_goods_stock (goods_id, stock)
		SELECT goods_id, SUM(CASE WHEN kind = 'restock' THEN quantity ELSE -quantity END)
		FROM tb_stock_ledger GROUP BY goods_id ORDER BY goods_id`
)

// fill writes so many sales into an empty ledger, at least one an item, and the
// items.
func fill(ctx context.Context, db *sql.DB, rows int64, say func(words string)) error {
	if _, err := db.ExecContext(ctx, createNumbers); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, firstNumber); err != nil {
		return err
	}
	for bit := range batchBits {
		if _, err := db.ExecContext(ctx, doubleNumbers, int64(1)<<bit); err != nil {
			return err
		}
	}
	if _, err := db.ExecContext(ctx, fillRestocks, unitsEach, unitsEach, goodsOfLedger); err != nil {
		return err
	}
	hot := rows / hotShare
	of := (rows - hot + goodsOfLedger - 2) / (goodsOfLedger - 1) // each other item
	began := time.Now()
	for done := int64(0); done < rows; {
		n := min(rows-done, 1<<batchBits)
		if _, err := db.ExecContext(ctx, fillSales, done, hot, done, hot, of, done, n); err != nil {
			return err
		}
		done += n
		say(fmt.Sprintf("filling the ledger: %s of %s rows, %s a second", comma(float64(done)), comma(float64(rows)),
			comma(float64(done)/time.Since(began).Seconds())))
	}
	if _, err := db.ExecContext(ctx, fillGoods); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, dropNumbers)
	return err
}
