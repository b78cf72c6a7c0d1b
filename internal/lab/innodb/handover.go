package innodb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
)

// Lock is how a row is used as a lock.
type Lock struct{ release, take string }

// InsertAndDelete has the row while the lock is held: a unique key keeps the second out.
func InsertAndDelete() Lock {
	return Lock{release: `DELETE FROM ` + handedOver + ` WHERE id = ?`, take: insertHeld}
}

// UpdateAndUpdate has the row stay, and say whether the lock is held.
func UpdateAndUpdate() Lock {
	return Lock{release: `UPDATE ` + handedOver + ` SET name = 'f' WHERE id = ?`, take: `UPDATE ` + handedOver + ` SET name = 'h' WHERE id = ? AND name = 'f'`}
}

const (
	handedOver = "lab_handed_over"

	insertHeld = `INSERT INTO ` + handedOver + ` (id, name) VALUES (?, 'h')`
	isWaiting  = `SELECT COUNT(*) > 0 FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = ? AND trx_state = 'LOCK WAIT'`
	// waitLong is longer than a busy machine needs until both wait.
	waitLong = `SET SESSION innodb_lock_wait_timeout = 20`
)

// HandOver has two wait for a row whose holder releases it, another row in each round. The
// release is committed when both wait. A second that finds the lock taken counts as a
// duplicate.
func HandOver(x *flow.Flow, db *sql.DB, l Lock, rounds int) Insertions {
	return inRounds(x, db, handedOver, rounds, func(id int, sum *Insertions) { l.handOver(x, db, id, sum) })
}

func (l Lock) handOver(x *flow.Flow, db *sql.DB, id int, sum *Insertions) {
	exec(x, db, insertHeld, id)
	var both [2]taker
	for i := range both {
		t := &both[i]
		t.conn, t.done = flow.Get(db.Conn(x))(x), make(chan struct{})
		defer t.close()
		exec(x, t.conn, waitLong)
		x.Must(t.conn.QueryRowContext(x, `SELECT CONNECTION_ID()`).Scan(&t.id))
	}
	var taking sync.WaitGroup
	defer taking.Wait() // also where one of them did not wait
	holding(x, db, sql.LevelDefault, l.release, func(holder *sql.Tx) {
		for i := range both {
			taking.Go(func() { both[i].take(x, l.take, id) })
		}
		for i := range both {
			both[i].waits(x, db)
		}
		x.Must(holder.Commit())
	}, id)
	taking.Wait()
	x.Must(errors.Join(both[0].count(sum), both[1].count(sum)))
}

// taker waits for the row on a connection of its own.
type taker struct {
	conn  *sql.Conn
	id    int64
	done  chan struct{}
	taken int64
	err   error
}

// close closes the connection, which waits longer than others.
func (t *taker) close() {
	_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
}

func (t *taker) take(ctx context.Context, statement string, id int) {
	defer close(t.done)
	result, err := t.conn.ExecContext(ctx, statement, id)
	if err == nil {
		t.taken, err = result.RowsAffected()
	}
	t.err = err
}

// betweenLooks passes between two looks: the server answers from what it has found before, as long as it is
// asked again within 100 ms.
const betweenLooks = 120 * time.Millisecond

// waits returns when the taker waits for a lock.
func (t *taker) waits(x *flow.Flow, db *sql.DB) {
	for waiting := false; ; {
		if x.Must(db.QueryRowContext(x, isWaiting, t.id).Scan(&waiting)); waiting {
			return
		}
		select {
		case <-t.done:
			x.Must(fmt.Errorf("it did not wait: %w", cmp.Or(t.err, errors.New("the row was free"))))
		case <-time.After(betweenLooks):
		}
	}
}

// count counts what became of it.
func (t *taker) count(sum *Insertions) error {
	if t.err == nil && t.taken == 0 {
		sum.Duplicates++
		return nil
	}
	return sum.count(t.err)
}
