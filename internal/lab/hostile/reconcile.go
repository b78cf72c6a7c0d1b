package hostile

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
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
}

// reconcile compares the ledger with what buyers and attacker were answered.
func (s *stage) reconcile(ctx context.Context, crowd *crowd, r *Report) error {
	lab := s.cluster.Client()
	lab.URL = lab.AdminURL
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
	orders, err := s.orders(ctx)
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

// orders are all that the ledger has, by their ids.
func (s *stage) orders(ctx context.Context) (map[string][]client.Order, error) {
	list := make(map[string][]client.Order)
	for order, err := range s.admin().Orders(ctx, client.Pages{Limit: 1000}) {
		if err != nil {
			return nil, fmt.Errorf("list the orders of the ledger: %w", err)
		}
		list[order.OrderID] = append(list[order.OrderID], order.Order)
	}
	return list, nil
}

// compare looks for each accepted purchase in the ledger, and for each order of the hot
// item among the answers.
func (l *Ledger) compare(crowd *crowd, orders map[string][]client.Order, stolen map[string]int64) {
	honest := make(map[string]bool)
	for _, sale := range crowd.sold {
		rows := orders[sale.order]
		switch {
		case len(rows) == 0:
			l.Missing++
		case len(rows) > 1 || honest[sale.order]:
			l.Repeated++
		case rows[0].UserID != sale.user || rows[0].RequestID != sale.key || rows[0].Quantity != 1:
			l.Altered++
		}
		honest[sale.order] = true
		if _, given := stolen[sale.order]; given {
			l.Revealed++
		}
	}
	l.Honest, l.Unknown = len(crowd.sold), crowd.unknown
	for id, rows := range orders {
		if _, given := stolen[id]; rows[0].GoodsID == hotItem && !honest[id] && !given {
			l.Unreported++
		}
	}
}
