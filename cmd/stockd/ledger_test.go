package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// archivedBy runs the command on a database, and reads its figures.
func archivedBy(t *testing.T, d *servers.Database, args ...string) (a archived, out string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive.json")
	args = append([]string{"ledger", "archive", "--json", file, "--database-driver", d.Driver, "--database-dsn", d.DSN}, args...)
	out = succeeds(t, args...)
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &a))
	return a, out
}

func TestTheLedgerIsArchivedByACommand(t *testing.T) {
	d := &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db")}
	s := labtest.Open(t, d, "test")
	wants := func(when, ended string, want archived, args ...string) {
		t.Helper()
		got, out := archivedBy(t, d, args...)
		want.Seconds, want.Ended = got.Seconds, ended
		row := regexp.MustCompile(fmt.Sprintf(`\n%d +%d +%d +`, want.Moved, want.Reservations, want.Batches))
		if got != want || !row.MatchString(out) || !strings.Contains(out, ended) {
			t.Errorf("%s: %+v, want %+v:\n%s", when, got, want, out)
		}
	}
	wants("an empty ledger", endedYoung, archived{}, "--older-than=1h")
	for i := range int64(4) {
		must.Do(t, s.CreateGoods(t.Context(), i+1, 10, fmt.Sprint("item ", i)))
	}
	wants("a new ledger", endedYoung, archived{Newest: 4}, "--older-than=1h")
	labtest.AgeLedger(t, d, s) // row 5 is the newest
	wants("nothing is as old", endedYoung, archived{Newest: 5}, "--older-than=25h")
	wants("batches of three", endedYoung, archived{Moved: 4, Batches: 2, UpTo: 4, Newest: 5}, "--older-than=2h", "--batch=3", "--pause=1ms")
	wants("again", endedYoung, archived{UpTo: 4, Newest: 5}, "--older-than=2h")
	for i := range 3 { // they were released long ago
		must.Do(t, reserveAndRelease(t, s, fmt.Sprint("018bcfe5-6800-7000-8000-00000000000", i)))
	}
	labtest.AgeLedger(t, d, s)
	wants("reservations", endedYoung, archived{Moved: 7, Reservations: 3, Batches: 6, UpTo: 11, Newest: 12}, "--older-than=2h", "--batch=2", "--pause=1ms")
	wants("all reservations are archived", endedYoung, archived{UpTo: 11, Newest: 12}, "--older-than=2h")
}

func reserveAndRelease(t *testing.T, s *repo.Store, number string) error {
	t.Helper()
	err := s.InTx(t.Context(), func(tx *repo.Tx) error {
		p := stock.Purchase{RequestID: number, Number: number, Quantity: 1, TTL: time.Hour}
		_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{p}})
		return errors.Join(err, tx.Subtract(t.Context(), must.Get(tx.Goods(t.Context(), 1))(t), 1))
	})
	_, _, failed := s.Release(t.Context(), number)
	return errors.Join(err, failed)
}

// What keeps rows in the ledger is said.
func TestWhyNoMoreIsArchived(t *testing.T) {
	old, before := time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour)
	for want, at := range map[string]repo.ArchiveState{
		endedYoung:  {First: 5, Last: 9, Settled: 9, Aged: 9, Oldest: time.Now()},
		endedNewest: {First: 9, Last: 9, Settled: 9, Aged: 9, Oldest: old},
		endedTotals: {First: 8, Last: 9, Settled: 9, Aged: 7, Oldest: old},
	} {
		should.Be(t, whyEnded(at, before), want, at)
	}
}

// An interrupt ends it between two batches, and no batch is cut.
func TestAnInterruptEndsTheArchivingBetweenBatches(t *testing.T) {
	for _, pause := range []time.Duration{0, math.MaxInt64} {
		t.Run(pause.String(), func(t *testing.T) { interruptArchiving(t, pause) })
	}
}

func interruptArchiving(t *testing.T, pause time.Duration) {
	t.Helper()
	d := &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db")}
	s := labtest.Open(t, d, "test")
	for i := range int64(4) {
		must.Do(t, s.CreateGoods(t.Context(), i+1, 10, fmt.Sprint("item ", i)))
	}
	labtest.AgeLedger(t, d, s)
	plan := archivePlan{olderThan: 2 * time.Hour, batch: 2, pause: pause}
	ctx, interrupt := context.WithCancelCause(t.Context())
	unlock := lockSQLite(t, d) // the batch waits for it, and is interrupted there
	time.AfterFunc(50*time.Millisecond, func() {
		interrupt(errors.New("interrupted"))
		time.AfterFunc(50*time.Millisecond, unlock)
	})
	done, err := plan.archive(ctx, s, new(bytes.Buffer))
	if err != nil || done.Moved != 2 || done.Batches != 1 || done.Ended != endedInterrupted || done.UpTo != 2 {
		t.Errorf("interrupted: %+v, %v; want one batch of two rows", done, err)
	}
	done, err = plan.archive(ctx, s, new(bytes.Buffer))
	if err != nil || done.Moved != 0 || done.Ended != endedInterrupted {
		t.Errorf("interrupted before: %+v, %v; want no batch", done, err)
	}
}

// lockSQLite has every other writer of a database wait until it is unlocked.
func lockSQLite(t *testing.T, d *servers.Database) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", d.DSN)
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	}
	must.Do(t, err)
	t.Cleanup(func() { _ = db.Close() })         // it was only locked
	return func() { _, _ = db.Exec(`ROLLBACK`) } //nolint:noctx // the test sees what became of the other
}

func TestAnArchivingThatFailsSaysSo(t *testing.T) {
	d := &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db")}
	for _, more := range [][]string{nil, {"--json", filepath.Join(t.TempDir(), "archive.json")}} {
		status, out, errOut := stockd(append(more, "ledger", "archive", "--older-than=1h", "--database-dsn", d.DSN)...)
		if status != cli.Failure || !strings.Contains(out, endedFailed) || !strings.Contains(errOut, "tb_ledger_settled") {
			t.Errorf("without a schema, %v: exit status %d, %q, %q", more, status, out, errOut)
		}
	}
}
