package sql_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func issue(t *testing.T, tokens *sqllock.Tokens, name string) uint64 {
	t.Helper()
	token, err := tokens.Issue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensCountEachNameFromOne(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		labtest.Open(t, d, "migrates")
		tokens := sqllock.NewTokens(sqlPool(t, d, 2), d.Driver)
		for want := range uint64(5) {
			if token := issue(t, tokens, "a"); token != want+1 {
				t.Errorf("token is %d, want %d", token, want+1)
			}
		}
		for _, name := range []string{"b", "A", "ä"} {
			if token := issue(t, tokens, name); token != 1 {
				t.Errorf("the first token of %s is %d, want 1", name, token)
			}
		}
	})
}

func TestTokensOfManyReplicasAreAllDifferent(t *testing.T) {
	const replicas, each, times = 2, 4, 25
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		labtest.Open(t, d, "migrates")
		var mu sync.Mutex
		seen := make(map[uint64]bool)
		var issuing sync.WaitGroup
		for range replicas {
			tokens := sqllock.NewTokens(sqlPool(t, d, 3), d.Driver)
			for range each {
				issuing.Go(func() {
					last := uint64(0)
					for range times {
						token := issue(t, tokens, "a")
						if token <= last {
							t.Errorf("token %d came after %d", token, last)
						}
						last = token
						mu.Lock()
						seen[token] = true
						mu.Unlock()
					}
				})
			}
		}
		issuing.Wait()
		if len(seen) != replicas*each*times {
			t.Errorf("%d different tokens, want %d", len(seen), replicas*each*times)
		}
	})
}

func TestTokensNameADatabaseThatDoesNotAnswer(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		labtest.Open(t, d, "migrates")
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
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		labtest.Open(t, d, "migrates")
		ctx, cancel := context.WithCancelCause(t.Context())
		hungUp := errors.New("the buyer hung up")
		pool := sqlPool(t, d, 2)
		for range 2 { // nothing is left
			conn, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() //nolint:errcheck // it goes back to the pool
		}
		time.AfterFunc(50*time.Millisecond, func() { cancel(hungUp) })
		_, err := sqllock.NewTokens(pool, d.Driver).Issue(ctx, "a")
		if !errors.Is(err, hungUp) || errors.Is(err, stock.ErrBackendUnavailable) {
			t.Errorf("%v, want %v", err, hungUp)
		}
	})
}
