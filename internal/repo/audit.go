package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

// Audit compares the ledger of an item with its row, both as of one moment. Of
// the ledger it reads the running totals, and the rows that came after them.
func (s *Store) Audit(ctx context.Context, goodsID int64) (stock.Audit, error) {
	return s.audit(ctx, auditByTotals, goodsID)
}

// AuditInFull is the same from the rows of the ledger alone, however many there
// are, with those of its archive: it verifies the running totals. For an item with a limit per buyer it also
// checks every buyer.
func (s *Store) AuditInFull(ctx context.Context, goodsID int64) (stock.Audit, error) {
	audit, err := s.audit(ctx, auditInFull, goodsID)
	if err != nil {
		return audit, err
	}
	goods, err := s.Goods(ctx, goodsID)
	if err != nil || goods.PerUser == 0 {
		return audit, err
	}
	buyers, err := s.AuditUsers(ctx, goodsID)
	return audit.With(buyers), err
}

// audit runs a statement that takes nothing but the item, as often as it needs it.
func (s *Store) audit(ctx context.Context, statement string, goodsID int64) (stock.Audit, error) {
	var sums struct {
		stock.Sums

		Stock int64
		Found bool
	}
	items := slices.Repeat([]any{goodsID}, strings.Count(statement, "?"))
	if err := s.db.WithContext(ctx).Raw(statement, items...).Scan(&sums).Error; err != nil {
		return stock.Audit{}, s.fault(ctx, "audit", err)
	}
	if !sums.Found {
		return stock.Audit{}, fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	return stock.AuditOf(goodsID, sums.Stock, sums.Sums), nil
}

// Each audit is one statement, so that row, allocations, totals and ledger are read as
// of one moment.
const (
	// sums are the columns of stock.Sums.
	sumOfRows = `COALESCE(SUM(CASE WHEN l.kind = 'restock' THEN l.quantity ELSE 0 END), 0) AS restocked,
		COALESCE(SUM(CASE WHEN l.` + sells + ` THEN l.quantity ELSE 0 END), 0) AS sold,
		COALESCE(SUM(CASE WHEN l.` + sells + ` THEN 1 ELSE 0 END), 0) AS orders,
		COALESCE(SUM(CASE WHEN l.kind = 'hold' THEN l.quantity
			WHEN l.kind IN ('confirm', 'release', 'expire') THEN -l.quantity ELSE 0 END), 0) AS held,
		COALESCE(SUM(CASE WHEN l.kind = 'return' THEN l.quantity ELSE 0 END), 0) AS returned `

	sumRows = `SELECT ` + sumOfRows

	// Each table is summed by its own key.
	auditInFull = `SELECT ` + inStock + ` AS stock, TRUE AS found, n.restocked, n.sold, n.orders, n.held, n.returned
		FROM (SELECT SUM(b.restocked) AS restocked, SUM(b.sold) AS sold, SUM(b.orders) AS orders, SUM(b.held) AS held,
				SUM(b.returned) AS returned
			FROM (` + sumRows + ` FROM tb_stock_ledger AS l WHERE l.goods_id = ?
				UNION ALL ` + sumRows + ` FROM tb_ledger_archive AS l WHERE l.goods_id = ?) AS b) AS n, tb_goods_stock AS g
		WHERE g.goods_id = ?`

	// The one row of tb_ledger_settled is joined by its key: only so does the database
	// know its value early enough to begin behind it.
	auditByTotals = `SELECT ` + inStock + ` AS stock, TRUE AS found,
		n.restocked + COALESCE(t.restocked, 0) AS restocked,
		n.sold + COALESCE(t.sold, 0) AS sold,
		n.orders + COALESCE(t.orders, 0) AS orders,
		n.held + COALESCE(t.held, 0) AS held,
		n.returned + COALESCE(t.returned, 0) AS returned
		FROM (` + sumRows + ` FROM tb_ledger_settled AS s, tb_stock_ledger AS l
			WHERE s.id = 1 AND l.goods_id = ? AND l.id > s.upto) AS n,
		tb_goods_stock AS g LEFT JOIN tb_ledger_total AS t ON t.goods_id = g.goods_id
		WHERE g.goods_id = ?`
)

// AuditAll audits all items at once, as of one moment, and adds up what is
// wrong. It reads the row of each item, and the ledger's rows that came after the
// running totals.
func (s *Store) AuditAll(ctx context.Context) (stock.Audits, error) {
	var sums stock.Audits
	if err := s.db.WithContext(ctx).Raw(auditAll).Scan(&sums).Error; err != nil {
		return stock.Audits{}, s.fault(ctx, "audit all items", err)
	}
	return sums, nil
}

const auditAll = `SELECT COUNT(*) AS goods,
	COALESCE(SUM(CASE WHEN a.should < 0 THEN -a.should ELSE 0 END), 0) AS oversold,
	COALESCE(SUM(CASE WHEN a.stock > a.should THEN a.stock - a.should ELSE 0 END), 0) AS lost,
	COALESCE(SUM(CASE WHEN a.stock < a.should THEN a.should - a.stock ELSE 0 END), 0) AS vanished
	FROM (SELECT ` + inStock + ` AS stock,
			COALESCE(n.restocked + n.returned - n.sold - n.held, 0) + COALESCE(t.restocked + t.returned - t.sold - t.held, 0) AS should
		FROM tb_goods_stock AS g
		LEFT JOIN tb_ledger_total AS t ON t.goods_id = g.goods_id
		LEFT JOIN (SELECT l.goods_id, ` + sumOfRows + `
			FROM tb_ledger_settled AS s, tb_stock_ledger AS l WHERE s.id = 1 AND l.id > s.upto GROUP BY l.goods_id) AS n
			ON n.goods_id = g.goods_id) AS a`
