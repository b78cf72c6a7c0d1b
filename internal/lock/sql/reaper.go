package sql

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// reaper frees the names of those holders of sql-insert-lock that died. Any
// replica may run one, and two at once are harmless: a row is deleted while it
// has expired, or not at all.
//
// It rests until the lock is used, and from when it finds the table empty.
type reaper struct {
	base *base
	ctx  context.Context
	end  context.CancelFunc

	mu    sync.Mutex
	timer *time.Timer    // nil while it rests
	used  bool           // since the last round
	round sync.WaitGroup // the one that is under way
}

func (r *reaper) wake() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = true
	if r.timer == nil && r.ctx.Err() == nil {
		r.timer = time.AfterFunc(r.base.deps.TTL/2, r.work)
	}
}

// close ends it; nothing of it runs any more when it returns.
func (r *reaper) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.end()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.round.Wait()
}

func (r *reaper) work() {
	if !r.begin() {
		return
	}
	defer r.round.Done()
	left, err := r.reap(r.ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ctx.Err() != nil: // closed
	case r.used, left > 0, err != nil:
		r.used = false
		r.timer.Reset(r.base.deps.TTL / 2)
	default:
		r.timer = nil
	}
}

func (r *reaper) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.round.Add(1)
	return true
}

// reap frees all names whose time is over, and counts the others. It is cut off
// with ctx: the next round, or another replica's, does what it did not.
func (r *reaper) reap(ctx context.Context) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := r.base.deps.DB.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	expired, left, err := r.list(ctx, conn)
	for _, name := range expired {
		if err == nil {
			err = r.free(ctx, conn, name)
		}
	}
	return left, err
}

const listRecords = `SELECT lock_name, expires_at < {now} FROM record_lock`

// list reads without locking anything; the table is as short as there are names
// held.
func (r *reaper) list(ctx context.Context, conn *sql.Conn) (expired []string, held int, err error) {
	rows, err := conn.QueryContext(ctx, r.base.words.Replace(listRecords))
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		var name string
		var over bool
		if err := rows.Scan(&name, &over); err != nil {
			return nil, 0, err
		}
		if over {
			expired = append(expired, name)
		} else {
			held++
		}
	}
	return expired, held, rows.Err()
}

const freeRecord = `DELETE FROM record_lock WHERE lock_name = ? AND expires_at < {now}`

// free deletes the row of a name if its time is over still: its holder may have
// renewed it since.
func (r *reaper) free(ctx context.Context, on runner, name string) error {
	_, err := r.base.exec(ctx, on, freeRecord, name)
	return err
}
