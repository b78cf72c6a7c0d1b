package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// sweepAfter is how long after its start a replica sweeps, and sweepEvery how often.
	sweepAfter  = time.Minute
	sweepEvery  = time.Hour
	sweepWithin = 10 * time.Minute
)

// KeepSweeping deletes what locks keep of items that do not exist, until ctx ends: of
// items whose rows were deleted by hand. Any number of replicas may do so at once.
func (c *Catalogue) KeepSweeping(ctx context.Context) {
	sweeps := background.Rounds{Doing: "sweep locks", Failed: "locks not swept", First: sweepAfter, Every: sweepEvery, Within: sweepWithin, Log: c.log}
	sweeps.Repeat(ctx, func(ctx context.Context) error {
		swept, err := c.Sweep(ctx)
		if err == nil && swept > 0 {
			c.log.InfoContext(ctx, "locks swept", "names", swept)
		}
		return err
	})
}

// Sweep is one round of KeepSweeping, and counts the names of locks in SQL that it has
// cleared. A token never goes back: see lock.Tokens. What locks keep in Redis expires by
// itself. In ZooKeeper and etcd it ends with its session or lease, and their tokens count all
// writes of the server.
func (c *Catalogue) Sweep(ctx context.Context) (swept int, err error) {
	return sqllock.NewTokens(c.clients.DB, c.clients.Dialect).Sweep(ctx, c.withoutItem)
}

// withoutItem picks those names of locks whose item does not exist.
func (c *Catalogue) withoutItem(ctx context.Context, names []string) (over []string, err error) {
	ids := make(map[string]int64, len(names))
	for _, name := range names {
		if id, err := strategy.ItemOf(name); err == nil {
			ids[name] = id
		}
	}
	existing, err := c.store.Existing(ctx, slices.Collect(maps.Values(ids))...)
	if err != nil {
		return nil, err
	}
	for name, id := range ids {
		if !existing[id] {
			over = append(over, name)
		}
	}
	return over, nil
}

// settleEvery is how often the running totals are brought up to date. An audit
// reads the rows of that time, and of the time in which they are not old enough.
const settleEvery = 5 * time.Second

// settleWithin bounds one round of it.
const settleWithin = 30 * time.Second

// KeepTotals brings the ledger's running totals up to date until ctx ends. Where a round fails, an audit reads more rows.
func (i *Inventory) KeepTotals(ctx context.Context) {
	rounds := background.Rounds{
		Doing: "bring running totals up to date", Failed: "running totals not brought up to date", Every: settleEvery, Within: settleWithin, Log: i.catalogue.log,
	}
	rounds.Repeat(ctx, func(ctx context.Context) error { return unlessBusy(i.store.SettleAll(ctx)) })
}

// unlessBusy is the failure of a round, which a database that is busy is not.
func unlessBusy(err error) error {
	if errors.Is(err, stock.ErrBusy) {
		return nil
	}
	return err
}

// KeepAuditing audits all items at intervals until ctx ends, each time within a
// limit. report receives their sum, or why it is unknown.
func (i *Inventory) KeepAuditing(ctx context.Context, every, limit time.Duration, report func(stock.Audits, error)) {
	for pause.For(ctx, every) == nil {
		var sums stock.Audits
		err := background.Guard(ctx, i.catalogue.log, "audit all items", func() (err error) {
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
