package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/innodb"
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
	db, _, err := s.Backends.Database.Pool(1, patience)
	return db, err
}

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

// ProbeLocks runs a statement in all combinations of index and isolation, and
// writes down which places it locks.
func ProbeLocks(statement innodb.Statement) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		matrix, err := innodb.Probe(ctx, db, statement)
		if err != nil {
			return err
		}
		return figures(s, innodb.Figures(matrix))
	})
}

// PassALockedRow has a DELETE and then an UPDATE look at all rows, of which
// another transaction has one locked that they do not want.
func PassALockedRow() scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		waits := make(map[string]float64)
		for name, scan := range map[string]innodb.Scan{innodb.DeleteWaits: innodb.ScanDelete, innodb.UpdateWaits: innodb.ScanUpdate} {
			does, err := innodb.WaitsInPassing(ctx, db, scan)
			if err != nil {
				return err
			}
			if does {
				waits[name] = 1
			}
		}
		return figures(s, waits)
	})
}

// InsertTwice has two transactions insert the same row, round after round.
func InsertTwice(way innodb.Way, rounds int) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		sum, err := innodb.InsertTwice(ctx, db, way, rounds)
		if err != nil {
			return err
		}
		return inserted(s, sum)
	})
}

// SellTwice has two transactions read and write the stock one after the other, at both levels of
// isolation. commitFirst: the first commits before the second reads.
func SellTwice(commitFirst bool) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		for name, level := range map[string]sql.IsolationLevel{
			innodb.LeftReadCommitted: sql.LevelReadCommitted, innodb.LeftRepeatableRead: sql.LevelRepeatableRead,
		} {
			left, err := innodb.SellTwice(ctx, db, level, commitFirst)
			if err != nil {
				return err
			}
			if err := s.Figure(name, float64(left)); err != nil {
				return err
			}
		}
		return nil
	})
}

// HandOver has two wait for a row whose holder releases it, round after round.
func HandOver(l innodb.Lock, rounds int) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		sum, err := innodb.HandOver(ctx, db, l, rounds)
		if err != nil {
			return err
		}
		return inserted(s, sum)
	})
}

// LockOthers counts the rows that a DELETE by an index locks although they do not match.
func LockOthers(large bool) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		locked, err := innodb.LocksOthers(ctx, db, large)
		if err != nil {
			return err
		}
		return s.Figure(innodb.OthersLocked, float64(locked))
	})
}

// LockGap finds out whether a DELETE, by an index, of a row that is deleted already locks the gap below.
func LockGap(by innodb.Index) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		locked, err := innodb.LocksGap(ctx, db, by, true)
		if err != nil {
			return err
		}
		figure := 0.0
		if locked {
			figure = 1
		}
		return s.Figure(innodb.GapLocked, figure)
	})
}

// inserted writes down what became of two writers of one row.
func inserted(s *scenario.Environment, sum innodb.Insertions) error {
	if sum.Answer != "" {
		if err := s.Mark("database", sum.Answer); err != nil {
			return err
		}
	}
	return figures(s, map[string]float64{
		innodb.Inserted: float64(sum.Inserted), innodb.Duplicates: float64(sum.Duplicates), innodb.Deadlocks: float64(sum.Deadlocks),
	})
}

func probing(probe func(context.Context, *sql.DB, *scenario.Environment) error) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		db, err := innodb.Open(s.Backends.Database)
		if err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // nothing is lost with it
		return probe(ctx, db, s)
	}
}

func figures(s *scenario.Environment, numbers map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if err := s.Figure(name, numbers[name]); err != nil {
			return err
		}
	}
	return nil
}
