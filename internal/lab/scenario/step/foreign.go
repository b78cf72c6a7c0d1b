package step

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// OverwrittenBy is the figure of WriteAside: how often the row was overwritten.
const OverwrittenBy = "foreign_writes"

// WriteAside does what an application beside stockd would: again and again it reads the
// stock of the item, works for a moment, and writes what it has computed, while the
// steps are done.
func WriteAside(work time.Duration, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		db, err := beside(s)
		if err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // nothing is lost with it
		writing, stop := context.WithCancel(ctx)
		defer stop()
		writes, done := 0.0, make(chan error, 1)
		go func() {
			for writing.Err() == nil {
				var left int64
				if err := db.QueryRowContext(ctx, `SELECT stock FROM tb_goods_stock WHERE goods_id = ?`, s.Item).Scan(&left); err != nil {
					done <- err
					return
				}
				time.Sleep(work)
				if _, err := db.ExecContext(ctx, `UPDATE tb_goods_stock SET stock = ? WHERE goods_id = ?`, left, s.Item); err != nil {
					done <- err
					return
				}
				writes++
			}
			done <- nil
		}()
		err = InOrder(steps...)(ctx, s)
		stop()
		if failed := <-done; err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		return s.Figure(OverwrittenBy, writes)
	}
}

// DecidedAnew is the figure of CountDecidedAnew.
const DecidedAnew = "decided_anew_per_100_sales"

// CountDecidedAnew counts, while the steps are done, the UPDATEs beyond one a sale: those
// that found the row changed and wrote nothing. No step may sell out, or use a lock in SQL.
func CountDecidedAnew(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		done, err := during(ctx, s, steps...)
		if err != nil {
			return err
		}
		sold := float64(done.sold)
		return s.Figure(DecidedAnew, 100*(float64(done.updates)-sold)/max(1, sold))
	}
}
