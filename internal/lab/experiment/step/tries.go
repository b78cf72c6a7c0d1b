package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/repo"
)

// CountTries has a crowd buy, and writes down how many UPDATEs the database
// carried out for each sale, and how many sales there were a second:
// tries_per_sale_at_8 and sales_per_s_at_8 where 8 clients buy. A try that finds
// the row changed is an UPDATE of no row.
func CountTries(sale Sale) experiment.Step {
	return func(ctx context.Context, s *experiment.Scene) error {
		db, err := beside(s)
		if err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // nothing is lost with it
		before, err := count(ctx, db, s)
		if err != nil {
			return err
		}
		if err := Sell(sale)(ctx, s); err != nil {
			return err
		}
		after, err := count(ctx, db, s)
		if err != nil {
			return err
		}
		sold := float64(after.sold - before.sold)
		if sold == 0 {
			return errors.New("nothing was sold, so that there is nothing to count tries for")
		}
		return figures(s, map[string]float64{
			fmt.Sprintf("tries_per_sale_at_%d", max(1, sale.Clients)): float64(after.updates-before.updates) / sold,
			fmt.Sprintf("sales_per_s_at_%d", max(1, sale.Clients)):    sold / after.at.Sub(before.at).Seconds(),
		})
	}
}

// tally is what was done so far.
type tally struct {
	at            time.Time
	updates, sold int64
}

func count(ctx context.Context, db *sql.DB, s *experiment.Scene) (t tally, err error) {
	audit, err := s.Client().AuditNow(ctx, s.Goods)
	if err != nil {
		return t, err
	}
	var name string
	err = db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Com_update'`).Scan(&name, &t.updates)
	t.at, t.sold = time.Now(), audit.Sold
	return t, err
}

// beside is a connection to the database that is nobody else's.
func beside(s *experiment.Scene) (*sql.DB, error) {
	d := s.Backends.Database
	db, _, err := repo.OpenPool(repo.Options{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: patience,
	})
	return db, err
}
