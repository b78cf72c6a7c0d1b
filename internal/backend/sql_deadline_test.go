package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
)

// A server may hang after the row that was asked for, and before the end of its answer:
// a call that answers and is then committed has such a moment. What is left of an answer
// is waited for no longer than the context lasts, or a connection would be lost for ever.
func TestTheEndOfAnAnswerIsNotAwaitedForEver(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		pool, _, err := backend.OpenPool(backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 2, LockWait: answerWithin, ConnectTimeout: 5 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() }) //nolint:errcheck // the test is over
		const answersAndHangs = `CREATE PROCEDURE answers_and_hangs() BEGIN SELECT 7; SELECT SLEEP(8); END`
		if _, err := pool.ExecContext(t.Context(), answersAndHangs); err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"AtTheDeadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, answerWithin)
			},
			"WhenCanceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(answerWithin, cancel)
				return ctx, cancel
			},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := end(t.Context())
				defer cancel()
				start := time.Now()
				var got int
				err := pool.QueryRowContext(ctx, `CALL answers_and_hangs()`).Scan(&got)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it ended after %s with %v, want %s", took, err, answerWithin)
				}
				if got != 7 || err == nil {
					t.Errorf("it answered %d, %v; want the row, and an error for what was not read", got, err)
				}
			})
		}
	})
}
