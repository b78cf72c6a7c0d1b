// Package repo stores the stock rows and the ledger in SQL, through GORM. It provides the statements
// that strategies are made of, and does not decide about locking: strategies do.
package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/stock"
)

// The databases that stockd speaks to.
const (
	MySQL  = string(backend.MySQL) // MySQL, MariaDB and what speaks their protocol
	SQLite = backend.SQLite
)

// Options are those of a store.
type Options struct {
	// Replica is written into every ledger row.
	Replica string
	// Retried is called for each transaction that is retried after a deadlock, with its
	// strategy, which is empty outside of sales. It is called from any goroutine, and may
	// be nil.
	Retried func(strategy string)
}

// Store is the stock and the ledger in one SQL database. It may be used from
// any number of goroutines.
//
//  1. A commit whose answer is lost is stock.ErrUnknownOutcome. Any other statement that is
//     not answered is a failure of the backend, which is named within its time limit.
//  2. Nothing is committed after the deadline of its transaction. A caller that leaves does
//     not cut a commit.
//  3. A row that is locked for too long is stock.ErrBusy, and so is a pool without a free
//     connection. The victim of a deadlock is tried again.
//  4. A replica that falls silent gives the row back.
//  5. The ledger takes a request id once, and ids that differ in case are two.
//  6. An item is created once. The stock of an item with what is allocated and held never exceeds
//     stock.MaxStock.
//  7. An audit is right under a crowd of sales, whether it reads every row or running totals.
//  8. One item does not use all connections. Purchases that wait for a connection are served
//     in turns.
//  9. Replicas that migrate at once migrate once.
//  10. Once a limit per buyer is set, nothing is sold under another one. A limit that was set
//     halfway is complete when it is set again.
type Store struct {
	db       *gorm.DB
	pool     *backend.SQL
	dialect  dialect
	timeout  time.Duration              // of a transaction: that of the pool, but where a limit is set
	minAge   time.Duration              // of what is archived
	version  string                     // the server's name and version when the store was made
	cluster  string                     // what Cluster says
	sharded  bool                       // what Sharded says
	shards   []string                   // the ends of their ranges of keyspace ids, in order
	returns  bool                       // whether an insert can return what it wrote
	rejected *atomic.Pointer[rejection] // since the last commit
	shares   *shares                    // of the connections, between purchases
	turn     chan struct{}              // holds one element while a transaction runs; nil for databases that queue writers themselves
	replica  string
	strategy string
	retried  func(strategy string)
}

// Open opens a pool and makes a store of it. Its errors are those of backend.OpenSQL and New.
func Open(ctx context.Context, database backend.SQLOptions, o Options) (*Store, error) {
	pool, err := backend.OpenSQL(database)
	if err != nil {
		return nil, err
	}
	return New(ctx, pool, o)
}

// New makes a store of a pool, which it closes: with the store, or where it fails. The
// error is a *stock.BackendError where the database does not answer.
func New(ctx context.Context, pool *backend.SQL, o Options) (s *Store, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, pool.Close())
		}
	}()
	d := mysqlDialect()
	if pool.Dialect == SQLite {
		d = sqliteDialect()
	}
	s = &Store{
		pool: pool, dialect: d, rejected: new(atomic.Pointer[rejection]), timeout: pool.TxTimeout, minAge: max(MinAge, 2*pool.TxTimeout),
		shares: newShares(pool.Stats().MaxOpenConnections), replica: o.Replica, retried: o.Retried,
	}
	if s.retried == nil {
		s.retried = func(string) {}
	}
	if d.oneWriter {
		s.turn = make(chan struct{}, 1)
	}
	if err := s.greet(ctx); err != nil {
		return nil, err
	}
	if s.version, err = s.readVersion(ctx); err != nil {
		return nil, err
	}
	if s.cluster, err = s.readCluster(ctx); err != nil {
		return nil, err
	}
	if s.sharded, err = s.readSharded(ctx); err != nil {
		return nil, err
	}
	if err := s.requireTransactions(ctx); err != nil {
		return nil, err
	}
	s.returns = d.returns(s.version)
	s.db, err = gorm.Open(d.gorm(pool.DB), &gorm.Config{
		SkipDefaultTransaction: true, // transactions are opened where they are meant
		Logger:                 logger.Discard,
		NowFunc:                func() time.Time { return time.Now().UTC() },
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", pool.Dialect, err)
	}
	return s, nil
}

// greetings bounds the first pings of a busy database. SQLite answers busy, without waiting, to all
// but one of the processes that open a new file at the same time.
const greetings = 50

func (s *Store) greet(ctx context.Context) error {
	for try := 1; ; try++ {
		err := s.Ping(ctx)
		if !errors.Is(err, stock.ErrBusy) || try == greetings {
			return err
		}
		if err := backOff(ctx, rand.N(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

// As returns the same store, which writes the strategy's name into the ledger.
func (s *Store) As(strategy string) *Store {
	stamped := *s
	stamped.strategy = strategy
	return &stamped
}

// Strategy is the name that the store writes into the ledger.
func (s *Store) Strategy() string { return s.strategy }

// Replica is the name of this replica, as the store writes it into the ledger.
func (s *Store) Replica() string { return s.replica }

// Dialect is MySQL or SQLite.
func (s *Store) Dialect() string { return s.dialect.name }

// Close closes the connections; what was returned by As is closed with it.
func (s *Store) Close() error { return s.pool.Close() }

// Stats are those of the pool of connections.
func (s *Store) Stats() sql.DBStats { return s.pool.Stats() }

// Ping checks the connection to the database.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.PingContext(ctx); err != nil {
		return s.fault(ctx, "ping", err)
	}
	return nil
}

// rejectedFor is how long a rejection is remembered after which nothing was committed.
const rejectedFor = 5 * time.Second

// Writable checks that the database takes writes, by some that change nothing. A disk that is full shows only in
// a write that needs more of it, and so does whatever SQLite rejects: of that, the last one is
// remembered for a moment.
func (s *Store) Writable(ctx context.Context) error {
	if s.dialect.writes == nil {
		if err := s.Ping(ctx); err != nil {
			return err
		}
	}
	for _, statement := range s.dialect.writes {
		if _, err := s.pool.ExecContext(ctx, statement); err != nil {
			return s.fault(ctx, "write", err)
		}
	}
	if last := s.rejected.Load(); last != nil && time.Since(last.at) < rejectedFor {
		return last.err
	}
	return nil
}

// rejection is a write that the database has rejected.
type rejection struct {
	at  time.Time
	err error
}

// unknown is an unknown outcome. Whatever the database said, it is not that nothing happened.
func (s *Store) unknown(doing string, err error) error {
	return fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, &stock.BackendError{Backend: s.dialect.name, Err: fmt.Errorf("%s: %w", doing, err)})
}

// failure is a failure of the database. One that Writable would not see is remembered.
func (s *Store) failure(doing string, err error) error {
	failed := backend.Failure(s.dialect.name, fmt.Errorf("%s: %w", doing, err))
	if failed.Rejects == stock.OutOfSpace || failed.Rejects != "" && s.dialect.writes == nil {
		s.rejected.Store(&rejection{time.Now(), failed})
	}
	return failed
}

// Version is the server's name and version when the store was made, such as
// "MariaDB 10.11.14".
func (s *Store) Version() string { return s.version }

// Cluster names the cluster of which the database is a node where several of its nodes take writes,
// each of them with locks of its own: Galera, or Group Replication with several primaries. It is
// empty where there is none.
func (s *Store) Cluster() string { return s.cluster }

func (s *Store) readCluster(ctx context.Context) (kind string, err error) {
	if s.dialect.clusters == "" {
		return "", nil
	}
	err = s.each(ctx, s.pool, "read the kind of cluster", func(scan scanRow) error {
		var variable, value string
		err := scan(&variable, &value)
		if kind = "Group Replication with several primaries"; variable == "wsrep_on" {
			kind = "Galera"
		}
		return err
	}, s.dialect.clusters)
	return kind, err
}

// Sharded reports that the database is a keyspace of Vitess with shards, be it one: a transaction writes to one of them.
// Each audit is then of all rows of the ledger, and none is archived.
func (s *Store) Sharded() bool { return s.sharded }

func (s *Store) readSharded(ctx context.Context) (sharded bool, err error) {
	if !backend.OfVitess(s.version) {
		return false, nil
	}
	var keyspace string
	if err := s.pool.QueryRowContext(ctx, s.dialect.keyspace).Scan(&keyspace); err != nil {
		return false, s.fault(ctx, "read the keyspace", err)
	}
	keyspace, _, _ = strings.Cut(keyspace, "@") // what follows is the kind of its tablets
	err = s.each(ctx, s.pool, "read which keyspaces are sharded", func(scan scanRow) error {
		var name string
		var is bool
		err := scan(&name, &is, new(any), new(any))
		sharded = sharded || is && name == keyspace
		return err
	}, s.dialect.sharded)
	if sharded && err == nil {
		s.shards, err = s.readShards(ctx, keyspace)
	}
	return sharded, err
}

func (s *Store) readVersion(ctx context.Context) (string, error) {
	var version string
	if err := s.pool.QueryRowContext(ctx, s.dialect.version).Scan(&version); err != nil {
		return "", s.fault(ctx, "read version", err)
	}
	version = s.dialect.describe(version)
	if s.dialect.tooOld(version) {
		return "", fmt.Errorf("%s is too old: MariaDB 10.6 or MySQL 8.0 is needed, or a later one", version)
	}
	return version, nil
}

// scanRow scans one row, as sql.Rows.Scan does.
type scanRow func(columns ...any) error

// each runs a query and calls a function for each row until one fails.
func (s *Store) each(ctx context.Context, conn gorm.ConnPool, doing string, row func(scanRow) error, query string, args ...any) error {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return s.fault(ctx, doing, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err has the error
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return s.fault(ctx, doing, err)
		}
	}
	err = rows.Err()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", backend.ErrUnanswered, err)
	}
	return s.fault(ctx, doing, err)
}

// readAll runs a query, and scans each of its rows with a function.
func readAll[T any](ctx context.Context, s *Store, conn gorm.ConnPool, doing string, scan func(scanRow) (T, error), query string, args ...any) (all []T, err error) {
	err = s.each(ctx, conn, doing, func(row scanRow) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// scanOne scans a row of one column.
func scanOne[T any](scan scanRow) (value T, err error) {
	err = scan(&value)
	return value, err
}

// deadlockTries bounds how often a transaction is run that the database
// rolled back as the victim of a deadlock: of a hundred copies of one purchase that come at
// once, half are victims of the ledger's unique key the first time.
const deadlockTries = 30

// InTxOnce is InTx for writes that were computed from a read outside of the transaction, and need
// another read after a rollback: if the transaction was a deadlock victim, it returns ErrRowChanged.
func (s *Store) InTxOnce(ctx context.Context, do func(*Tx) error) error {
	err := s.once(ctx, do)
	if errors.Is(err, errDeadlock) {
		s.retried(s.strategy)
		return fmt.Errorf("%w: %w", ErrRowChanged, err)
	}
	return err
}

// InTx runs do in one transaction and commits it.
//
// An error of do rolls back and is returned as it is. A transaction that the
// database itself chose as the victim of a deadlock is run again, do included,
// a bounded number of times. ErrUnknownOutcome: the commit was sent and its
// answer did not come. Every other error means that nothing was written.
func (s *Store) InTx(ctx context.Context, do func(*Tx) error) error {
	for try := 1; ; try++ {
		err := s.once(ctx, do)
		if again, err := s.awaitRetry(ctx, err, try); !again {
			return err
		}
	}
}

// awaitRetry reports whether a transaction is run again, as it was the victim of a deadlock, and waits a moment before that.
func (s *Store) awaitRetry(ctx context.Context, err error, try int) (again bool, _ error) {
	if !errors.Is(err, errDeadlock) || try == deadlockTries {
		return false, err
	}
	s.retried(s.strategy)
	err = backOff(ctx, rand.N(time.Duration(try)*2*time.Millisecond))
	return err == nil, err
}

func (s *Store) once(ctx context.Context, do func(*Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()
	db := s.db.WithContext(ctx).Begin()
	if db.Error != nil {
		return s.fault(ctx, "begin", db.Error)
	}
	defer db.Rollback() // harmless after the commit
	if err := do(&Tx{store: s, db: db}); err != nil {
		return s.orEnded(ctx, err)
	}
	if err := db.Commit().Error; err != nil {
		return s.commitFault(ctx, s.leftBehind(ctx, s.pool, err))
	}
	if s.rejected.Load() != nil { // all transactions of the process share it
		s.rejected.Store(nil)
	}
	return nil
}

// orEnded is why a transaction has ended where a statement has failed of that. Its context may have ended a moment before
// that of the statement, which is then not sent: no failure of the database.
func (s *Store) orEnded(ctx context.Context, err error) error {
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || failed.Backend != s.dialect.name || errors.Is(err, backend.ErrUnanswered) || ctx.Err() == nil {
		return err
	}
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, ctx.Err()) {
		return s.fault(ctx, "transaction", context.Cause(ctx))
	}
	return err
}

// leftBehind is what came of a commit that Group Replication has rolled back. A member that is put out of
// its group rolls back what it has sent, with the error of a conflict, and the others may have committed it:
// then the commit counts as not answered.
func (s *Store) leftBehind(ctx context.Context, conn gorm.ConnPool, err error) error {
	if s.dialect.conflicted == nil || !s.dialect.conflicted(err) {
		return err
	}
	var member string
	if asked := conn.QueryRowContext(ctx, s.dialect.member).Scan(&member); asked != nil {
		return fmt.Errorf("%w: %w (%w)", backend.ErrUnanswered, err, asked)
	}
	return err
}

// takeTurn queues the writers of this process before a database for whose only lock they would
// poll.
func (s *Store) takeTurn(ctx context.Context) error {
	if s.turn == nil {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.fault(ctx, "begin", context.Cause(ctx))
	}
}

func (s *Store) endTurn() {
	if s.turn != nil {
		<-s.turn
	}
}

// backOff waits for d. If ctx ends first, the transaction has done nothing.
func backOff(ctx context.Context, d time.Duration) error {
	if err := pause.For(ctx, d); err != nil {
		return fmt.Errorf("%w: %w", stock.ErrBusy, err)
	}
	return nil
}

// errDeadlock marks a transaction that the database has rolled back. It is
// run again, so that callers only ever see it as the ErrBusy it wraps.
var errDeadlock = fmt.Errorf("%w: deadlock", stock.ErrBusy)

// fault gives an error of the driver its kind and says what was being done.
// Nothing has been committed.
func (s *Store) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		// An interrupted driver breaks its connection: its error is no failure of the
		// database.
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && !errors.Is(err, backend.ErrUnanswered) {
		return s.Late(doing, context.Cause(ctx))
	}
	switch backend.FaultOf(err) {
	case backend.Duplicate:
		return fmt.Errorf("%s: %w", doing, stock.ErrDuplicateRequest)
	case backend.Locked:
		return fmt.Errorf("%s: %w: %w", doing, stock.ErrBusy, err)
	case backend.Conflict:
		return fmt.Errorf("%s: %w", doing, errDeadlock)
	case backend.Apart:
		return fmt.Errorf("%s: %w", doing, stock.ErrApart)
	default:
		return s.failure(doing, err)
	}
}

// Late is the error of a deadline before anything was sent: no connection, or turn, became free in time. This is overload,
// and a failure of the database only where it has answered nothing for a while.
func (s *Store) Late(doing string, cause error) error {
	if s.pool.Silent() {
		return s.failure(doing, fmt.Errorf("it answers no one: %w", cause))
	}
	return fmt.Errorf("%s: %w: no connection to %s became free in time: %w", doing, stock.ErrBusy, s.dialect.name, cause)
}

// commitFault distinguishes a commit that was never sent, or that the database rejected, from
// one that was sent and not answered.
func (s *Store) commitFault(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, backend.ErrUnanswered):
	case errors.Is(err, sql.ErrTxDone), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return s.fault(ctx, "commit", context.Cause(ctx))
	case errors.Is(err, backend.ErrNotSent), backend.FaultOf(err) != backend.Failed, backend.Rejects(err) == stock.ReadOnly:
		return s.fault(ctx, "commit", err)
	}
	return s.unknown("commit", err)
}
