package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// CountTries has a crowd buy, and writes down how many UPDATEs the database
// carried out for each sale, and how many sales there were a second:
// tries_per_sale_at_8 and sales_per_s_at_8 where 8 clients buy. A try that finds
// the row changed is an UPDATE of no row.
func CountTries(sale Sale) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		done, err := during(ctx, s, Sell(sale))
		if err != nil {
			return err
		}
		sold := float64(done.sold)
		if sold == 0 {
			return errors.New("nothing was sold, so that there is nothing to count tries for")
		}
		return figures(s, map[string]float64{
			fmt.Sprintf("tries_per_sale_at_%d", max(1, sale.Clients)): float64(done.updates) / sold,
			fmt.Sprintf("sales_per_s_at_%d", max(1, sale.Clients)):    sold / done.took.Seconds(),
		})
	}
}

// tally is what was done in a time.
type tally struct {
	took          time.Duration
	updates, sold int64
}

// during counts what the database does while the steps are done.
func during(ctx context.Context, s *scenario.Environment, steps ...scenario.Step) (done tally, err error) {
	db, err := beside(s)
	if err != nil {
		return done, err
	}
	defer db.Close() //nolint:errcheck // nothing is lost with it
	before, err := count(ctx, db, s)
	if err != nil {
		return done, err
	}
	begun := time.Now()
	if err := InOrder(steps...)(ctx, s); err != nil {
		return done, err
	}
	after, err := count(ctx, db, s)
	return tally{took: time.Since(begun), updates: after.updates - before.updates, sold: after.sold - before.sold}, err
}

func count(ctx context.Context, db *sql.DB, s *scenario.Environment) (t tally, err error) {
	audit, err := s.Client().AuditNow(ctx, s.Item)
	if err != nil {
		return t, err
	}
	var name string
	err = db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Com_update'`).Scan(&name, &t.updates)
	t.sold = audit.Sold
	return t, err
}

// beside opens a connection to the database that only the caller uses.
func beside(s *scenario.Environment) (*sql.DB, error) {
	d := s.Backends.Database
	db, _, err := backend.OpenPool(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: patience,
	})
	return db, err
}
