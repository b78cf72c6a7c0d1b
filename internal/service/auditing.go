package service

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/stock"
)

// KeepAuditing audits all items at intervals until ctx ends, each time within a
// limit. report receives their sum, or why it is not known.
func (i *Inventory) KeepAuditing(ctx context.Context, every, limit time.Duration, report func(stock.Audits, error)) {
	for pause.For(ctx, every) == nil {
		var sums stock.Audits
		err := rescue.Do(ctx, i.catalogue.log, "audit all goods", func() (err error) {
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
