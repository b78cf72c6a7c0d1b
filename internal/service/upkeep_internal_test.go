package service

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
)

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// opened is a store of a migrated SQLite file.
func opened(t *testing.T, path string) *repo.Store {
	t.Helper()
	store, err := repo.Open(t.Context(), backend.SQLOptions{
		Driver: repo.SQLite, DSN: path, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: time.Second,
	}, repo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// What another replica switched is logged once; so is a database that does not answer, however
// often it is asked, and what was known stays in force.
func TestAChangeOfTheSwitchesIsLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, other, log := opened(t, path), opened(t, path), new(journal)
		c := &Catalogue{switches: newSwitches(store), log: slog.New(slog.NewTextHandler(log, nil))}
		if err := c.LookAtSwitches(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go c.KeepSwitches(ctx)
		for _, step := range []struct {
			name              string
			do                func() error
			switched, failing int
		}{
			{"nothing", func() error { return nil }, 0, 0},
			{"another replica switches", func() error { return other.SwitchOff(t.Context(), "naive", "it oversells") }, 1, 0},
			{"nothing more", other.Close, 1, 0},
			{"the database is gone", store.Close, 1, 1},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * switchesEvery)
			synctest.Wait()
			if switched, failing := log.count("strategies were switched"), log.count("cannot refresh"); switched != step.switched || failing != step.failing {
				t.Errorf("%s: the log has %d switches and %d failures, want %d and %d", step.name, switched, failing, step.switched, step.failing)
			}
		}
		if reason, off := c.switches.reason("naive"); !off || reason != "it oversells" || log.count(`off.naive="it oversells"`) != 1 {
			t.Errorf("what is switched off is %q, %v, and the log has\n%s", reason, off, &log.text)
		}
	})
}

func TestAFailureOfTheTotalsIsReportedAndNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, failures := opened(t, path), make(chan error, 100)
		i := &Inventory{store: store, catalogue: &Catalogue{log: slog.New(slog.DiscardHandler)}}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go i.KeepTotals(ctx, func(err error) { failures <- err })
		time.Sleep(3*settleEvery + 1)
		synctest.Wait()
		if n := len(failures); n > 0 {
			t.Errorf("%d failures are reported of a database that answers, the first is %v", n, <-failures)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * settleEvery)
		synctest.Wait()
		if n := len(failures); n != 3 {
			t.Errorf("%d of 3 failures are reported", n)
		}
	})
}
