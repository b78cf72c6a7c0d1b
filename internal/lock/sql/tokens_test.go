package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func issue(t *testing.T, tokens *sqllock.Tokens, name string) uint64 {
	t.Helper()
	return must.Get(tokens.Issue(t.Context(), name))(t)
}

func TestTokensCountEachNameFromOne(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		tokens := sqllock.NewTokens(sqlPool(t, d, 2), d.Driver)
		for want := range uint64(5) {
			should.Be(t, issue(t, tokens, "a"), want+1, "token")
		}
		for _, name := range []string{"b", "A", "ä"} {
			should.Be(t, issue(t, tokens, name), 1, "the first token of", name)
		}
	})
}

func TestTokensNameADatabaseThatDoesNotAnswer(t *testing.T) {
	eachServer(t, func(t *testing.T, d *servers.Database) {
		through, cut := labtest.Through(t, d)
		tokens := sqllock.NewTokens(sqlPool(t, through, 2), d.Driver)
		before := issue(t, tokens, "a")
		cut.Hang(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := tokens.Issue(ctx, "a")
		if failure, ok := errors.AsType[*stock.BackendError](err); !ok || failure.Backend != repo.MySQL {
			t.Errorf("%v does not name the backend", err)
		}
		cut.Hang(false)
		if token := issue(t, tokens, "a"); token <= before {
			t.Errorf("token %d came after %d", token, before)
		}
	})
}

func TestTokensEndWithTheirContext(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		ctx, cancel := context.WithCancelCause(t.Context())
		hungUp := errors.New("the buyer hung up")
		pool := sqlPool(t, d, 2)
		for range 2 { // nothing is left
			conn, err := pool.Conn(t.Context())
			must.Do(t, err)
			defer conn.Close() //nolint:errcheck // it goes back to the pool
		}
		time.AfterFunc(50*time.Millisecond, func() { cancel(hungUp) })
		_, err := sqllock.NewTokens(pool, d.Driver).Issue(ctx, "a")
		if !errors.Is(err, hungUp) || errors.Is(err, stock.ErrBackendUnavailable) {
			t.Errorf("%v, want %v", err, hungUp)
		}
	})
}

// all names are over.
func all(_ context.Context, names []string) ([]string, error) { return names, nil }

func rowsOf(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	must.Do(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n))
	return n
}

// sqlLocks are the locks of a database that keep rows.
func sqlLocks(t *testing.T, d *servers.Database) map[string]lock.Locker {
	t.Helper()
	locks := make(map[string]lock.Locker)
	for _, e := range sqlEntries() {
		deps := lab.Locks(t, d)
		if deps.Has(e.Needs[0]) != nil {
			continue
		}
		locks[e.Name] = e.New(deps)
		if closer, ok := locks[e.Name].(interface{ Close() error }); ok {
			t.Cleanup(func() { _ = closer.Close() }) // the test is over
		}
	}
	return locks
}

// Each lock is swept by itself: the tokens of another one would lift the floor for it.
func TestNoTokenGoesBackAfterASweep(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 2)
		tokens := sqllock.NewTokens(pool, d.Driver)
		highest := uint64(0) // of all that are swept
		for kind, l := range sqlLocks(t, d) {
			for round := range 3 {
				// More holds in the first round: a counter that began again would be below.
				for range 6 - 2*round {
					token := labtest.HoldAndRelease(t, l, "goods/1")
					if token <= highest {
						t.Errorf("%s, round %d: token %d came after %d", kind, round, token, highest)
					}
					highest = token
				}
				must.Be(t, must.Get(tokens.Sweep(t.Context(), all))(t), 1, "the names that were swept")
				should.Be(t, rowsOf(t, pool, "lock_token"), 1, "tokens are left")
				should.Be(t, rowsOf(t, pool, "distribute_lock")+rowsOf(t, pool, "record_lock"), 0, "rows of locks are left")
			}
			if token := issue(t, tokens, "goods/new-"+kind); token <= highest {
				t.Errorf("%s: the first token of a new name is %d, want one above %d, which was deleted", kind, token, highest)
			}
			must.Get(tokens.Sweep(t.Context(), all))(t)
		}
	})
}

func TestASweepFreesNoNameThatIsHeld(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		tokens := sqllock.NewTokens(sqlPool(t, d, 2), d.Driver)
		for kind, l := range sqlLocks(t, d) {
			if kind == "sql-row-lock" {
				continue // its row is held by a transaction, for which a sweep has to wait
			}
			t.Run(kind, func(t *testing.T) {
				lease := locktest.Hold(t, l, "goods/1")
				must.Get(tokens.Sweep(t.Context(), all))(t)
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				should.Reject(l.Acquire(ctx, "goods/1"))(t, lock.ErrNotAcquired)
				should.Do(t, lease.Release(t.Context()))
				if token := labtest.HoldAndRelease(t, l, "goods/1"); token <= lease.Token() {
					t.Errorf("token %d came after %d", token, lease.Token())
				}
			})
		}
	})
}

func TestASweepLeavesTheNamesThatAreNotOver(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 2)
		tokens := sqllock.NewTokens(pool, d.Driver)
		const names = 1100 // more than two pages
		fill(t, pool, names, `INSERT INTO lock_token (lock_name, token) VALUES (?, ?)`, "goods/%04d", func(i int) []any { return []any{i + 1} })
		// Of these, and between them, others have a row of another kind alone.
		const versions = 700
		fill(t, pool, versions, `INSERT INTO distribute_lock (lock_name, kind) VALUES (?, ?)`, "goods/%04dx", func(int) []any { return []any{"version"} })
		looked := 0
		swept, err := tokens.Sweep(t.Context(), func(_ context.Context, names []string) (over []string, err error) {
			looked += len(names)
			for _, name := range names {
				if name < "goods/0500" && !strings.HasSuffix(name, "x") {
					over = append(over, name)
				}
			}
			return over, nil
		})
		if err != nil || looked != names+versions || swept != 500 || rowsOf(t, pool, "lock_token") != names-500+1 {
			t.Errorf("looked at %d, swept %d (%v), and %d tokens are left", looked, swept, err, rowsOf(t, pool, "lock_token"))
		}
		for name, want := range map[string]uint64{"goods/0499": 500, "goods/0500": 502, "goods/1099": 1101} {
			if token := issue(t, tokens, name); token < want {
				t.Errorf("the next token of %s is %d, want at least %d", name, token, want)
			}
		}
	})
}

// fill makes so many rows of a statement, whose arguments begin with a name.
func fill(t *testing.T, pool *sql.DB, rows int, statement, name string, more func(row int) []any) {
	t.Helper()
	tx := must.Get(pool.BeginTx(t.Context(), nil))(t)
	defer tx.Rollback() // harmless after the commit
	for i := range rows {
		must.Get(tx.ExecContext(t.Context(), statement, append([]any{fmt.Sprintf(name, i)}, more(i)...)...))(t)
	}
	must.Do(t, tx.Commit())
}

// What a dead holder has left is swept when its time is over, and the floor is never lowered by the
// lower tokens of a later sweep.
func TestASweepClearsWhatDeadHoldersLeft(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 2)
		tokens := sqllock.NewTokens(pool, d.Driver)
		for _, statement := range []string{
			`INSERT INTO lock_token VALUES ('high', 50), ('low', 3)`,
			`INSERT INTO record_lock VALUES ('low', 'o', 'h', 'e', 1, 3, '2001-01-01 00:00:00'), ('high', 'o', 'h', 'e', 1, 50, '2999-01-01 00:00:00')`,
			`INSERT INTO distribute_lock VALUES ('low', 'version', 4, 'o', '2001-01-01 00:00:00'), ('high', 'version', 60, 'o', '2999-01-01 00:00:00'),
				('free', 'version', 5, '', '2001-01-01 00:00:00'), ('free', 'row', 0, '', NULL)`,
		} {
			must.Get(pool.ExecContext(t.Context(), statement))(t)
		}
		for _, over := range [][]string{{"high"}, {"low", "free"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			swept, err := tokens.Sweep(ctx, func(context.Context, []string) ([]string, error) { return over, nil })
			cancel()
			if err != nil || swept != len(over) {
				t.Errorf("%d of %q are swept (%v)", swept, over, err)
			}
		}
		for _, table := range []string{"record_lock", "distribute_lock"} {
			should.Be(t, count(t, pool, `SELECT COUNT(*) FROM `+table), 1, "rows of … are left", table)
		}
		should.Be(t, issue(t, tokens, "new"), 61, "the next token")
		must.Do(t, pool.Close())
		_, err := tokens.Sweep(t.Context(), all)
		if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != d.Driver {
			t.Errorf("without a database it sweeps with %v", err)
		}
	})
}

// Names are swept all the time while their tokens are issued: each caller sees its tokens
// grow, and none of them is issued twice.
func TestTokensGrowWhileTheyAreSwept(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		var mu sync.Mutex
		seen := make(map[string]map[uint64]bool)
		var issuing sync.WaitGroup
		var over atomic.Bool
		for i := range 4 {
			tokens, name := sqllock.NewTokens(sqlPool(t, d, 2), d.Driver), fmt.Sprint("goods/", i%2)
			issuing.Go(func() {
				last := uint64(0)
				for range 150 {
					token := issue(t, tokens, name)
					mu.Lock()
					if seen[name] == nil {
						seen[name] = make(map[uint64]bool)
					}
					if token <= last || seen[name][token] {
						t.Errorf("%s: token %d came after %d, issued before: %v", name, token, last, seen[name][token])
					}
					seen[name][token] = true
					mu.Unlock()
					last = token
				}
			})
		}
		sweeps, cleared := 0, 0
		done := make(chan struct{})
		tokens := sqllock.NewTokens(sqlPool(t, d, 2), d.Driver)
		go func() {
			defer close(done)
			for !over.Load() {
				n, err := tokens.Sweep(t.Context(), all)
				if err == nil { // a database that is busy is swept later
					cleared += n
				}
				sweeps++
			}
		}()
		issuing.Wait()
		over.Store(true)
		<-done
		if cleared == 0 {
			t.Errorf("%d sweeps cleared nothing", sweeps)
		}
		t.Logf("%d names were cleared by %d sweeps", cleared, sweeps)
	})
}

func TestASweepLosesNoVersionThatIsTakenMeanwhile(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.MariaDB))
	l := sqlLock(t, d, "sql-version-lock")
	labtest.HoldAndRelease(t, l, "goods/1")
	through, way := labtest.Through(t, d)
	held := way.Arm(servers.Rule{Sent: "DELETE FROM lock_token", Do: servers.Hold})
	tokens, swept, beside := sqllock.NewTokens(sqlPool(t, through, 2), d.Driver), make(chan error, 1), make(chan uint64, 1)
	go func() {
		_, err := tokens.Sweep(t.Context(), all)
		swept <- err
	}()
	labtest.AwaitReached(t, held)
	go func() {
		lease, err := l.Acquire(t.Context(), "goods/1")
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Error(err)
			beside <- 0
			return
		}
		beside <- lease.Token()
	}()
	time.Sleep(300 * time.Millisecond) // it has the name, or waits for the sweep
	held.Pass()
	must.Do(t, <-swept)
	first := <-beside
	if next := labtest.HoldAndRelease(t, l, "goods/1"); next <= first {
		t.Errorf("token %d came after %d", next, first)
	}
}
