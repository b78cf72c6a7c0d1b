package service

import (
	"context"
	"errors"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// Audit is an audit with what the ledger does not have yet.
type Audit struct {
	stock.Audit
	// Pending is how many units are accepted and not in the ledger yet: they still count
	// as stock. It is nil where that is unknown, because the server that has accepted
	// them does not answer.
	Pending *int64 `json:"pending,omitempty"`
}

// Audit compares the row of an item with its ledger. What is pending is read before: once
// it is 0, the audit has every order that was answered until then.
func (i *Inventory) Audit(ctx context.Context, goodsID int64) (Audit, error) {
	return i.audit(ctx, goodsID, i.store.Audit)
}

// AuditInFull is the same without the ledger's running totals.
func (i *Inventory) AuditInFull(ctx context.Context, goodsID int64) (Audit, error) {
	return i.audit(ctx, goodsID, i.store.AuditInFull)
}

func (i *Inventory) audit(ctx context.Context, goodsID int64, of func(context.Context, int64) (stock.Audit, error)) (Audit, error) {
	pending := i.pending(ctx, goodsID)
	audit, err := of(ctx, goodsID)
	return Audit{Audit: audit, Pending: pending}, err
}

func (i *Inventory) pending(ctx context.Context, goodsID int64) *int64 {
	var sum int64
	if outbox := i.catalogue.outbox; outbox != nil {
		units, err := outbox.Pending(ctx, goodsID)
		if err != nil {
			return nil
		}
		sum = units
	}
	return &sum
}

// settleEvery is how often the running totals are brought up to date. An audit
// reads the rows of that time, and of the time in which they are not old enough.
const settleEvery = 5 * time.Second

// settleWithin bounds one round of it; what is left is taken in by the next one.
const settleWithin = 30 * time.Second

// KeepTotals brings the ledger's running totals up to date until ctx ends. failed receives
// a failure, after which it goes on: an audit then reads more rows.
func (i *Inventory) KeepTotals(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := background.Guard(ctx, i.catalogue.log, "bring running totals up to date", func() error {
			ctx, cancel := context.WithTimeout(ctx, settleWithin)
			defer cancel()
			return i.store.SettleAll(ctx)
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, stock.ErrBusy) {
			failed(err)
		}
	}
}

// KeepAuditing audits all items at intervals until ctx ends, each time within a
// limit. report receives their sum, or why it is unknown.
func (i *Inventory) KeepAuditing(ctx context.Context, every, limit time.Duration, report func(stock.Audits, error)) {
	for pause.For(ctx, every) == nil {
		var sums stock.Audits
		err := background.Guard(ctx, i.catalogue.log, "audit all goods", func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			sums, err = i.store.AuditAll(ctx)
			return err
		})
		if ctx.Err() == nil {
			report(sums, err)
		}
	}
}
