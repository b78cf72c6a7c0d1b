package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
)

// CountTries has a crowd buy, and writes down how many UPDATEs the database
// carried out for each sale, and how many sales there were a second:
// tries_per_sale_at_8 and sales_per_s_at_8 where 8 clients buy. A try that finds
// the row changed is an UPDATE of no row.
func CountTries(sale Sale) scenario.Step {
	return func(x *scenario.Try) {
		done := during(x, Sell(sale))
		if done.sold == 0 {
			x.Must(errors.New("nothing was sold, so that there is nothing to count tries for"))
		}
		x.Figures(map[string]float64{
			fmt.Sprintf("tries_per_sale_at_%d", max(1, sale.Clients)): done.updates / done.sold,
			fmt.Sprintf("sales_per_s_at_%d", max(1, sale.Clients)):    done.sold / done.took.Seconds(),
		})
	}
}

type tally struct {
	took          time.Duration
	updates, sold float64
}

// during counts what the database does while the steps are done.
func during(x *scenario.Try, steps ...scenario.Step) tally {
	db := connection(x)
	before, begun := count(x, db), time.Now()
	InOrder(steps...)(x)
	after := count(x, db)
	return tally{took: time.Since(begun), updates: after.updates - before.updates, sold: after.sold - before.sold}
}

func count(x *scenario.Try, db *sql.DB) (t tally) {
	audit, err := x.Client().AuditNow(x, x.Item)
	x.Must(err)
	var name string
	x.Must(db.QueryRowContext(x, `SHOW GLOBAL STATUS LIKE 'Com_update'`).Scan(&name, &t.updates))
	t.sold = float64(audit.Sold)
	return t
}

// connection is one to the database that only the caller uses, until the end of the try.
func connection(x *scenario.Try) *sql.DB {
	db, _, err := x.Backends.Database.Pool(1, patience)
	x.Must(err)
	x.Later(db.Close)
	return db
}

// OverwrittenBy is the figure of WriteAside: how often the row was overwritten.
const OverwrittenBy = "foreign_writes"

// WriteAside does what an application beside stockd would: again and again it reads the
// stock of the item, works for a moment, and writes what it has computed, while the
// steps are done.
func WriteAside(work time.Duration, steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		db, writes := connection(x), 0.0
		beside(x, func(context.Context) {
			var left int64
			x.Must(db.QueryRowContext(x, `SELECT stock FROM tb_goods_stock WHERE goods_id = ?`, x.Item).Scan(&left))
			x.Must(pause.For(x, work))
			_, err := db.ExecContext(x, `UPDATE tb_goods_stock SET stock = ? WHERE goods_id = ?`, left, x.Item)
			x.Must(err)
			writes++
		}, steps...)
		x.Figure(OverwrittenBy, writes)
	}
}

// DecidedAnew is the figure of CountDecidedAnew.
const DecidedAnew = "decided_anew_per_100_sales"

// CountDecidedAnew counts, while the steps are done, the UPDATEs beyond one a sale: those
// that found the row changed and wrote nothing. No step may sell out, or use a lock in SQL.
func CountDecidedAnew(steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		done := during(x, steps...)
		x.Figure(DecidedAnew, 100*(done.updates-done.sold)/max(1, done.sold))
	}
}

// ProbeLocks runs a statement in all combinations of index and isolation, and
// writes down which places it locks.
func ProbeLocks(statement innodb.Statement) scenario.Step {
	return func(x *scenario.Try) {
		matrix, err := innodb.Probe(x, probing(x), statement)
		x.Must(err)
		x.Figures(innodb.Figures(matrix))
	}
}

// PassALockedRow has a DELETE and then an UPDATE look at all rows, of which
// another transaction has one locked that they do not want.
func PassALockedRow() scenario.Step {
	return func(x *scenario.Try) {
		db := probing(x)
		for name, scan := range map[string]innodb.Scan{innodb.DeleteWaits: innodb.ScanDelete, innodb.UpdateWaits: innodb.ScanUpdate} {
			does, err := innodb.WaitsInPassing(x, db, scan)
			if x.Must(err); does {
				x.Figure(name, 1)
			}
		}
	}
}

// InsertTwice has two transactions insert the same row, round after round.
func InsertTwice(way innodb.Way, rounds int) scenario.Step {
	return func(x *scenario.Try) { inserted(x)(innodb.InsertTwice(x, probing(x), way, rounds)) }
}

// HandOver has two wait for a row whose holder releases it, round after round.
func HandOver(l innodb.Lock, rounds int) scenario.Step {
	return func(x *scenario.Try) { inserted(x)(innodb.HandOver(x, probing(x), l, rounds)) }
}

// inserted writes down what became of two writers of one row.
func inserted(x *scenario.Try) func(sum innodb.Insertions, err error) {
	return func(sum innodb.Insertions, err error) {
		if x.Must(err); sum.Answer != "" {
			x.Mark("database", sum.Answer)
		}
		x.Figures(map[string]float64{
			innodb.Inserted: float64(sum.Inserted), innodb.Duplicates: float64(sum.Duplicates), innodb.Deadlocks: float64(sum.Deadlocks),
		})
	}
}

// SellTwice has two transactions read and write the stock one after the other, at both levels of
// isolation. commitFirst: the first commits before the second reads.
func SellTwice(commitFirst bool) scenario.Step {
	return func(x *scenario.Try) {
		db := probing(x)
		for name, level := range map[string]sql.IsolationLevel{
			innodb.LeftReadCommitted: sql.LevelReadCommitted, innodb.LeftRepeatableRead: sql.LevelRepeatableRead,
		} {
			left, err := innodb.SellTwice(x, db, level, commitFirst)
			x.Must(err)
			x.Figure(name, float64(left))
		}
	}
}

// LockOthers counts the rows that a DELETE by an index locks although they do not match.
func LockOthers(large bool) scenario.Step {
	return func(x *scenario.Try) {
		locked, err := innodb.LocksOthers(x, probing(x), large)
		x.Must(err)
		x.Figure(innodb.OthersLocked, float64(locked))
	}
}

// LockGap finds out whether a DELETE, by an index, of a row that is deleted already locks the gap below.
func LockGap(by innodb.Index) scenario.Step {
	return func(x *scenario.Try) {
		locked, err := innodb.LocksGap(x, probing(x), by, true)
		x.Must(err)
		x.Figure(innodb.GapLocked, oneIf(locked))
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// probing are connections to the database for probes, until the end of the try.
func probing(x *scenario.Try) *sql.DB {
	db, err := innodb.Open(x.Backends.Database)
	x.Must(err)
	x.Later(db.Close)
	return db
}
