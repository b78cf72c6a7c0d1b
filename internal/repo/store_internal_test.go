package repo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// opened is a store on a new SQLite file.
func opened(t *testing.T, o backend.SQLOptions, with Options) *Store {
	t.Helper()
	o.Driver, o.DSN, o.LockWait, o.ConnectTimeout = SQLite, filepath.Join(t.TempDir(), "s.db"), time.Second, time.Second
	s := must.Get(Open(context.WithoutCancel(t.Context()), o, with))(t)
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	return s
}

var errWrong = errors.New("wrong")

// What a server answers.
var (
	failure   = &mysql.MySQLError{Number: 1105}
	duplicate = &mysql.MySQLError{Number: 1062}
	locked    = &mysql.MySQLError{Number: 1205}
	victim    = &mysql.MySQLError{Number: 1213}
)

// A victim is run again a bounded number of times, each reported; one whose writes were computed before it
// is not run again. A caller that leaves meanwhile has written nothing.
func TestAVictimIsRetriedSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retried []string
		s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{Replica: "r", Retried: func(strategy string) { retried = append(retried, strategy) }})
		defer s.Close() //nolint:errcheck // the test is over
		victims, runs := 0, 0
		do := func(*Tx) error {
			runs++
			if runs > victims {
				return nil
			}
			return s.fault(t.Context(), "be a victim", victim)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		for _, c := range []struct {
			name                   string
			in                     func() error
			victims, runs, retries int
			want, not              error
		}{
			{"the last try", func() error { return s.As("me").InTx(t.Context(), do) }, deadlockTries - 1, deadlockTries, deadlockTries - 1, nil, errWrong},
			{"too many", func() error { return s.As("me").InTx(t.Context(), do) }, 100, deadlockTries, deadlockTries - 1, stock.ErrBusy, ErrRowChanged},
			{"once", func() error { return s.As("me").InTxOnce(t.Context(), do) }, 100, 1, 1, ErrRowChanged, errWrong},
			{"no victim", func() error { return s.As("me").InTxOnce(t.Context(), do) }, 0, 1, 0, nil, ErrRowChanged},
			{"pauses and leaves", func() error { return backOff(ctx, time.Hour) }, 0, 0, 0, stock.ErrBusy, errWrong},
		} {
			retried, victims, runs = nil, c.victims, 0
			if err := c.in(); !errors.Is(err, c.want) || errors.Is(err, c.not) || runs != c.runs || len(retried) != c.retries {
				t.Errorf("%s: %d runs, %d retries, %v; want %d, %d, %v", c.name, runs, len(retried), err, c.runs, c.retries, c.want)
			}
			for _, strategy := range retried {
				should.Be(t, strategy, "me", "a retry of … is reported", c.name)
			}
		}
	})
}

// The kind of an error says whether something may have been written, and by whose fault nothing was.
func TestAnErrorOfTheDriverGetsItsKind(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	left, leave := context.WithCancelCause(t.Context())
	leave(errWrong)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	all := []error{
		stock.ErrBusy, stock.ErrBackendUnavailable, stock.ErrUnknownOutcome, stock.ErrDuplicateRequest, errDeadlock, errWrong,
	}
	for _, c := range []struct {
		name  string
		fault func(ctx context.Context, err error) error
		ctx   context.Context //nolint:containedctx // of one row
		err   error
		want  []error // of all
	}{
		{"a failure", s.doing, t.Context(), failure, []error{stock.ErrBackendUnavailable}},
		{"a failure that came late", s.doing, late, failure, []error{stock.ErrBackendUnavailable}},
		{"a duplicate", s.doing, t.Context(), duplicate, []error{stock.ErrDuplicateRequest}},
		{"a lock that was not free", s.doing, t.Context(), locked, []error{stock.ErrBusy}},
		{"a deadlock", s.doing, t.Context(), victim, []error{stock.ErrBusy, errDeadlock}},
		{"a caller that has left", s.doing, left, failure, []error{errWrong}},
		{"a statement without a connection", s.doing, late, context.DeadlineExceeded, []error{stock.ErrBusy}},
		{"a statement that was not answered", s.doing, late, errors.Join(backend.ErrUnanswered, context.DeadlineExceeded), []error{stock.ErrBackendUnavailable}},
		{"a statement that a server has not answered in its own time", s.doing, t.Context(), context.DeadlineExceeded, []error{stock.ErrBackendUnavailable}},
		{"a commit that failed", s.commitFault, t.Context(), failure, []error{stock.ErrUnknownOutcome, stock.ErrBackendUnavailable}},
		{"a commit that was not answered", s.commitFault, left, errors.Join(backend.ErrUnanswered, sql.ErrTxDone), []error{stock.ErrUnknownOutcome, stock.ErrBackendUnavailable}},
		{"a commit that was not sent", s.commitFault, t.Context(), backend.ErrNotSent, []error{stock.ErrBackendUnavailable}},
		{"a commit after the end", s.commitFault, left, sql.ErrTxDone, []error{errWrong}},
		{"a commit after the deadline", s.commitFault, late, context.DeadlineExceeded, []error{stock.ErrBusy}},
		{"a commit that was rejected", s.commitFault, t.Context(), locked, []error{stock.ErrBusy}},
		{"a commit that was a victim", s.commitFault, t.Context(), victim, []error{stock.ErrBusy, errDeadlock}},
	} {
		err := c.fault(c.ctx, c.err)
		for _, kind := range all {
			want := false
			for _, w := range c.want {
				want = want || errors.Is(w, kind)
			}
			should.Be(t, errors.Is(err, kind), want, "… is …: … …", c.name, err, kind, !want)
		}
		if failed, ok := errors.AsType[*stock.BackendError](err); ok && failed.Backend != SQLite {
			t.Errorf("%s names %q", c.name, failed.Backend)
		}
	}
	should.Do(t, s.fault(left, "nothing", nil))
}

func (s *Store) doing(ctx context.Context, err error) error { return s.fault(ctx, "test", err) }

// A row that cannot be read ends the query, whose connection is free again. So does a query that fails halfway.
func TestAQueryThatFailsGivesItsConnectionBack(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	for name, c := range map[string]struct {
		query string
		row   error
	}{
		"a row":     {"SELECT 1 UNION ALL SELECT 2", errWrong},
		"halfway":   {"SELECT 1 UNION ALL SELECT json('{')", nil},
		"the query": {"no statement", nil},
	} {
		rows := 0
		err := s.each(t.Context(), s.pool, "test", func(scanRow) error { rows++; return c.row }, c.query)
		if !errors.Is(err, stock.ErrBackendUnavailable) || rows > 1 {
			t.Errorf("%s: %v after %d rows", name, err, rows)
		}
		must.Be(t, s.Stats().InUse, 0, name, "the connections in use")
	}
}

// The turn to write is waited for no longer than a transaction may last, and comes to the next one however
// the one before has ended.
func TestATurnToWriteIsWaitedForNoLongerThanATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, backend.SQLOptions{MaxOpen: 4, TxTimeout: time.Second}, Options{})
		defer s.Close() //nolint:errcheck // the test is over
		err := s.InTx(t.Context(), func(*Tx) error {
			begun := time.Now()
			err := s.InTx(t.Context(), func(*Tx) error { return nil })
			if took := time.Since(begun); !errors.Is(err, stock.ErrBusy) || took != time.Second {
				t.Errorf("beside another transaction: %v after %s, want %v after a second", err, took, stock.ErrBusy)
			}
			return errWrong
		})
		should.Fail(t, err, errWrong, "the other one ends")
		func() {
			defer func() { _ = recover() }()
			_ = s.InTx(t.Context(), func(*Tx) error { panic("a bug") })
		}()
		err = s.InTx(t.Context(), func(*Tx) error { return nil })
		synctest.Wait() // the first one is rolled back at its deadline, beside the others
		if err != nil || s.Stats().InUse != 0 {
			t.Errorf("the next one: %v, with %d connections in use", err, s.Stats().InUse)
		}
	})
}

// An item may use three of four connections, whatever its strategies, and a purchase without one is busy.
func TestATurnIsThatOfAnItem(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 4}, Options{})
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	var ends []func()
	for i, c := range []struct {
		strategy string
		item     int64
		want     error
	}{
		{"a", 1, nil}, {"a", 1, nil}, {"b", 1, nil}, {"a", 1, stock.ErrBusy}, {"b", 1, stock.ErrBusy}, {"c", 2, nil}, {"c", 3, stock.ErrBusy},
	} {
		end, err := s.As(c.strategy).Turn(late, c.item)
		if !errors.Is(err, c.want) || (end == nil) != (err != nil) || errors.Is(err, stock.ErrBackendUnavailable) {
			t.Fatalf("turn %d is answered with %v, want %v", i, err, c.want)
		}
		if end != nil {
			ends = append(ends, end)
		}
	}
	for _, end := range ends {
		end()
	}
	if s.shares.taken != 0 || len(s.shares.users) != 0 {
		t.Errorf("%d connections of %d users are taken", s.shares.taken, len(s.shares.users))
	}
}

// A server says by its variables what it is a node of.
func TestTheKindOfAClusterIsNamed(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	should.Be(t, s.Cluster(), "", "SQLite is a node")
	for query, want := range map[string]string{
		`SELECT 'wsrep_on', 'ON'`:                               "Galera",
		`SELECT 'group_replication_single_primary_mode', 'OFF'`: "Group Replication with several primaries",
		`SELECT 'wsrep_on', 'ON' WHERE FALSE`:                   "",
	} {
		s.dialect.clusters = query
		should.Be(t, must.Get(s.readCluster(t.Context()))(t), want, "one that answers … is a node of", query)
	}
	s.dialect.clusters = "no statement"
	should.Reject(s.readCluster(t.Context()))(t, stock.ErrBackendUnavailable, "of one that does not answer")
}

// A vtgate names all keyspaces. One that is sharded may have one shard.
func TestAKeyspaceIsShardedByItsVSchema(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	s.dialect.sharded = `SELECT 'shop', 'true', 'unmanaged', '' UNION SELECT 'shop_global', 'false', 'unmanaged', ''`
	s.dialect.shards = `SELECT 'shop/40-' UNION SELECT 'shop/-40' UNION SELECT 'shop_global/0'`
	for _, of := range []struct {
		version, keyspace string
		want              bool
	}{{"MySQL 8.4.6-Vitess", "shop@primary", true}, {"MySQL 8.4.6-Vitess", "shop_global", false}, {"MySQL 8.4.6", "shop", false}} {
		s.version, s.dialect.keyspace = of.version, "SELECT '"+of.keyspace+"'"
		should.Be(t, must.Get(s.readSharded(t.Context()))(t), of.want, "… of … is sharded", of.keyspace, of.version)
	}
	should.Be(t, strings.Join(s.shards, " "), "40 the last", "its shards end at")
	s.version, s.dialect.sharded = "MySQL 8.4.6-Vitess", "no statement"
	should.Reject(s.readSharded(t.Context()))(t, stock.ErrBackendUnavailable, "one that does not answer is")
	calls := &Store{dialect: mysqlDialect()}
	should.Be(t, calls.rolledBack(&mysql.MySQLError{Number: 1235}), true, "a call that Vitess does not support has sold nothing")
}

// What depends on the version of a server begins with one.
func TestTheVersionOfAServerSaysWhatItCan(t *testing.T) {
	d := mysqlDialect()
	for version, want := range map[string]struct {
		name            string
		returns, tooOld bool
	}{
		"10.4.34-MariaDB-log":        {"MariaDB 10.4.34", false, true},
		"10.5.0-MariaDB":             {"MariaDB 10.5.0", true, true},
		"10.6.1-MariaDB":             {"MariaDB 10.6.1", true, false},
		"11.0.2-MariaDB-ubu2204-log": {"MariaDB 11.0.2", true, false},
		"5.7.44":                     {"MySQL 5.7.44", false, true},
		"8.0.11":                     {"MySQL 8.0.11", false, false},
		"9.1.0":                      {"MySQL 9.1.0", false, false},
	} {
		name := d.describe(version)
		if name != want.name || d.returns(name) != want.returns || d.tooOld(name) != want.tooOld {
			t.Errorf("%s is %q, returns %v, too old %v; want %+v", version, name, d.returns(name), d.tooOld(name), want)
		}
	}
}

// Before anything is asked of it that it does not know.
func TestAServerThatIsTooOldIsNamed(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	s.dialect = mysqlDialect()
	s.dialect.version = `SELECT '10.5.27-MariaDB'`
	if _, err := s.readVersion(t.Context()); err == nil || !strings.Contains(err.Error(), "MariaDB 10.5.27 is too old: MariaDB 10.6 or MySQL 8.0") {
		t.Errorf("it is accepted, or not named: %v", err)
	}
}

// What a server cannot return with an insert is read after it: the ids of orders, and what buyers have.
func TestIDsAreFoundWithoutReturning(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	must.Get(s.MigrateUp(t.Context()))(t)
	must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10, PerUser: 9}, "item"))
	s.returns = false
	batch := []stock.Purchase{
		{RequestID: "b", Quantity: 1, UserID: "ann"},
		{RequestID: "held", Quantity: 1, TTL: time.Hour, Number: "n-1"},
		{RequestID: "a", Quantity: 2, UserID: "bob"},
		{RequestID: "c", Quantity: 4, UserID: "ann"},
	}
	for _, has := range []int64{0, 5} {
		must.Do(t, s.InTx(t.Context(), func(tx *Tx) error {
			limit, err := tx.CountIn(t.Context(), 1, 9, batch)
			if err != nil || limit.PerUser != 9 || len(limit.Has) != 2 || limit.Has["ann"] != has || limit.Has["bob"] != has/2 {
				t.Errorf("the buyers have %+v (%v), want %d of 9", limit, err, has)
			}
			return err
		}))
	}
	must.Do(t, s.InTx(t.Context(), func(tx *Tx) error {
		orders, err := tx.Append(t.Context(), Sale{GoodsID: 1, Batch: batch})
		if err != nil {
			return err
		}
		for i, want := range []string{"2", "n-1", "4", "5"} {
			should.Be(t, orders[i].ID, want, "order", i)
		}
		return nil
	}))
}

// A column of times is read in UTC: one that the driver has written, in any zone, and one of SQLite's own clock.
func TestATimeIsReadInUTC(t *testing.T) {
	want := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	for _, value := range []any{
		want.In(time.FixedZone("", 3600)), "2026-03-04 06:06:07.089+01:00", "2026-03-04 05:06:07.089+00:00", "2026-03-04 05:06:07.089",
	} {
		var m moment
		must.Do(t, m.Scan(value))
		should.Be(t, m.Time, want, value, "is read as")
	}
	for _, value := range []any{nil, 7, []byte("2026-03-04 05:06:07"), "yesterday"} {
		if err := new(moment).Scan(value); err == nil {
			t.Errorf("%v is read as a time", value)
		}
	}
}

// A member of a group that is put out of it answers a commit with a conflict, also that of the procedure,
// although the others may have made it. As long as it is in the group, a conflict is one.
func TestAConflictOutsideOfTheGroupIsAnUnknownOutcome(t *testing.T) {
	s := must.Get(Open(t.Context(), backend.SQLOptions{Driver: SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db"), MaxOpen: 1}, Options{Replica: "replica-1"}))(t)
	defer s.Close() //nolint:errcheck // nothing is lost with it
	conflict := &mysql.MySQLError{Number: 3101, Message: "rolled back"}
	s.dialect.conflicted = func(err error) bool { return errors.Is(err, conflict) }
	for _, c := range []struct {
		asked string
		err   error
		want  error
	}{
		{"SELECT 1", conflict, errDeadlock},
		{"SELECT 1 WHERE FALSE", conflict, stock.ErrUnknownOutcome},
		{"no statement", conflict, stock.ErrUnknownOutcome},
		{"SELECT 1 WHERE FALSE", context.Canceled, context.Canceled},
	} {
		s.dialect.member = c.asked
		err := s.leftBehind(t.Context(), s.pool, c.err)
		if errors.Is(c.err, conflict) {
			err = s.commitFault(t.Context(), err)
			if called := s.callFault(t.Context(), s.pool, c.err); !errors.Is(called, c.want) || errors.Is(called, errDeadlock) != errors.Is(c.want, errDeadlock) {
				t.Errorf("where it answers %q with %v, a call is %v, want %v", c.asked, c.err, called, c.want)
			}
		}
		should.Fail(t, err, c.want, "where it answers … with … is", c.asked, c.err)
	}
}

// Each word of the procedure is an answer to its purchase, and what is left counts down in the order of the batch.
func TestTheWordsOfTheProcedureAreAnswers(t *testing.T) {
	figure := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
	answer := saleAnswer{outcome: "sold", left: figure(4), perUser: figure(3), allocated: figure(8), version: figure(9)}
	must.Do(t, json.Unmarshal([]byte(`[["sold", 71], ["limit", 2], ["buyer", 0], ["allocated", 0], ["sold", 72], ["short", 0], ["sold", 73]]`), &answer.verdicts))
	orders := make([]stock.Order, 7)
	for i := range orders {
		orders[i].Quantity = int64(i + 1)
	}
	outcomes := must.Get(answer.outcomes(1, orders))(t)
	for i, want := range []stock.Outcome{
		{Order: stock.Order{ID: "71", Quantity: 1, Remaining: 16}},
		{Rejected: &stock.UserLimitError{PerUser: 3, Has: 2}},
		{Rejected: stock.ErrUserUnknown},
		{Rejected: &stock.AllocatedError{Units: 8, Version: 9}},
		{Order: stock.Order{ID: "72", Quantity: 5, Remaining: 11}},
		{Rejected: stock.ErrInsufficientStock},
		{Order: stock.Order{ID: "73", Quantity: 7, Remaining: 4}},
	} {
		if !reflect.DeepEqual(outcomes[i], want) {
			t.Errorf("purchase %d is answered with %+v, want %+v", i, outcomes[i], want)
		}
	}
	for outcome, want := range map[string]error{
		"unknown": stock.ErrUnknownGoods, "late": stock.ErrBusy, "changed": ErrRowChanged, "sold": stock.ErrUnknownOutcome, "rejected": stock.ErrUnknownOutcome,
	} { // with fewer verdicts than purchases
		if _, err := (saleAnswer{outcome: outcome}).outcomes(1, orders); !errors.Is(err, want) || errors.Is(err, ErrRowChanged) != (outcome == "changed") {
			t.Errorf("%q is %v, want %v", outcome, err, want)
		}
	}
}

// SQLite compares times as text. A reservation that was extended is over in the very moment of its expiry, as another.
func TestAnExtendedReservationIsOverInTheMomentOfItsExpiry(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	must.Get(s.MigrateUp(t.Context()))(t)
	must.Do(t, s.CreateGoods(t.Context(), 1, 10, "item"))
	clock := func(second string) { // that stands still
		s.dialect.now = `'2030-01-01 00:00:` + second + `'`
		s.dialect.until = `strftime('%Y-%m-%d %H:%M:%f', ` + s.dialect.now + `, (? / 1e6) || ' seconds')`
	}
	const number = "018bcfe5-6800-7000-8000-000000000001"
	extend := func(ctx context.Context) error {
		_, err := s.Extend(ctx, number, 2*time.Second, time.Hour)
		return err
	}
	clock("00.500")
	err := s.InTx(t.Context(), func(tx *Tx) error {
		_, err := tx.Append(t.Context(), Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "held", Quantity: 1, TTL: time.Second, Number: number}}})
		return err
	})
	must.Do(t, errors.Join(err, extend(t.Context())))
	clock("02.500")
	should.Be(t, must.Get(s.Reservation(t.Context(), number))(t).State, stock.Expired, "it is seen as")
	_, _, released := s.Release(t.Context(), number)
	for step, err := range map[string]error{"released": released, "extended": extend(t.Context())} {
		should.Fail(t, err, stock.ErrExpired, step)
	}
	if ended, _, err := s.Expire(t.Context(), 1); err != nil || ended != 1 {
		t.Errorf("a sweeper has ended %d (%v)", ended, err)
	}
}
