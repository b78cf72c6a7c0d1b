package hostile

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

// Ledger is what the orders of all items came to.
type Ledger struct {
	// Audits are in full, of every item, when nothing was pending.
	Audits []stock.Audit `json:"audits"`
	// Honest counts the purchases of honest buyers that were accepted; Missing are those
	// that the ledger lacks, and Repeated those that it has more than once.
	Honest   int `json:"honest"`
	Missing  int `json:"missing"`
	Repeated int `json:"repeated"`
	// Altered are orders of honest buyers that are in the ledger with another user, key
	// or quantity.
	Altered int `json:"altered"`
	// Unreported counts the orders of the hot item that neither an honest buyer nor the
	// attacker has an answer of, and Unknown the honest purchases that may be among them.
	Unreported int `json:"unreported"`
	Unknown    int `json:"unknown"`
	// Revealed counts the orders of honest buyers that the attacker was given.
	Revealed int `json:"revealed"`
	// Smuggled counts the orders of smuggled purchases.
	Smuggled int `json:"smuggled"`
}

// reconcile compares the ledger with what buyers and attacker were answered.
func (s *stage) reconcile(ctx context.Context, crowd *crowd, r *Report) error {
	lab := s.cluster.Client().Owner()
	for _, item := range s.items {
		if _, err := lab.Audit(ctx, item); err != nil { // it waits for what is pending
			return err
		}
		audit, err := lab.AuditInFull(ctx, item)
		if err != nil {
			return err
		}
		r.Ledger.Audits = append(r.Ledger.Audits, audit)
	}
	orders, err := s.readLedger(ctx)
	if err != nil {
		return err
	}
	r.Ledger.compare(crowd, orders, r.stolen)
	for _, replica := range s.cluster.Replicas {
		select {
		case <-replica.Done():
			r.Ended = append(r.Ended, replica.Name)
		default:
		}
	}
	return nil
}

type order struct {
	item, quantity int64
	user, key      string
}

// readLedger reads the sales from the database itself, by the ids that buyers are
// answered with: a list of the admin API has an order only when all before it are done.
func (s *stage) readLedger(ctx context.Context) (list map[string][]order, err error) {
	db, _, err := openTables(s.backends.Database)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, `SELECT id, order_no, goods_id, quantity, user_id, request_id FROM tb_stock_ledger WHERE kind = 'deduct'`)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err tells what is wrong
	list = make(map[string][]order)
	for rows.Next() {
		var id string
		var number, user, key sql.NullString
		var o order
		if err := rows.Scan(&id, &number, &o.item, &o.quantity, &user, &key); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		o.user = user.String
		o.key = stock.KeyOf(key.String)
		id = cmp.Or(number.String, id)
		list[id] = append(list[id], o)
	}
	return list, rows.Err()
}

// compare looks for each accepted purchase in the ledger, and for each order of the hot
// item among the answers. It counts what was smuggled.
func (l *Ledger) compare(crowd *crowd, orders map[string][]order, stolen map[string]int64) {
	honest := make(map[string]bool)
	for _, sale := range crowd.sold {
		rows := orders[sale.id]
		switch {
		case len(rows) == 0:
			l.Missing++
		case len(rows) > 1 || honest[sale.id]:
			l.Repeated++
		case rows[0] != sale.order:
			l.Altered++
		}
		honest[sale.id] = true
		if _, given := stolen[sale.id]; given {
			l.Revealed++
		}
	}
	l.Honest, l.Unknown = len(crowd.sold), crowd.unknown
	for id, rows := range orders {
		if _, given := stolen[id]; rows[0].item == hotItem && !honest[id] && !given {
			l.Unreported++
		}
		if strings.HasPrefix(rows[0].key, smuggledKey) {
			l.Smuggled++
		}
	}
}
