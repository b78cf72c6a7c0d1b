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
func HandOver(ctx context.Context, db *sql.DB, l Lock, rounds int) (sum Insertions, err error) {
	return inRounds(ctx, db, handedOver, rounds, func(id int, sum *Insertions) error { return l.handOver(ctx, db, id, sum) })
}

func (l Lock) handOver(ctx context.Context, db *sql.DB, id int, sum *Insertions) (err error) {
	if _, err := db.ExecContext(ctx, insertHeld, id); err != nil {
		return err
	}
	var both [2]*taker
	for i := range both {
		if both[i], err = newTaker(ctx, db); err != nil {
			return err
		}
		defer both[i].close()
	}
	var taking sync.WaitGroup
	err = holding(ctx, db, sql.LevelDefault, l.release, func(holder *sql.Tx) error {
		for _, t := range both {
			taking.Go(func() { t.take(ctx, l.take, id) })
		}
		for _, t := range both {
			if err := t.waits(ctx, db); err != nil {
				return err
			}
		}
		return holder.Commit()
	}, id)
	taking.Wait() // none of them has begun where the release has failed
	if err != nil {
		return err
	}
	return errors.Join(both[0].count(sum), both[1].count(sum))
}

// taker waits for the row on a connection of its own.
type taker struct {
	conn  *sql.Conn
	id    int64
	done  chan struct{}
	taken int64
	err   error
}

func newTaker(ctx context.Context, db *sql.DB) (*taker, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &taker{conn: conn, done: make(chan struct{})}
	if _, err = conn.ExecContext(ctx, waitLong); err == nil {
		err = conn.QueryRowContext(ctx, `SELECT CONNECTION_ID()`).Scan(&t.id)
	}
	if err != nil {
		t.close()
	}
	return t, err
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
func (t *taker) waits(ctx context.Context, db *sql.DB) error {
	for {
		var waiting bool
		if err := db.QueryRowContext(ctx, isWaiting, t.id).Scan(&waiting); err != nil || waiting {
			return err
		}
		select {
		case <-t.done:
			return fmt.Errorf("it did not wait: %w", cmp.Or(t.err, errors.New("the row was free")))
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
