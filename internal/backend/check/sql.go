package check

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// perConnection is how many statements a connection has prepared at most.
const perConnection = 100

// SQL are the checks of a MySQL or MariaDB that answers; connections are those of all replicas together.
func SQL(pool *sql.DB, connections int, clocks *Clocks) Group {
	s := sqlServer{pool}
	atLeast := func(least int) (string, func(int) bool) {
		return fmt.Sprintf("at least %d", least), func(n int) bool { return n >= least }
	}
	room, hasRoom := atLeast(connections)
	prepared, hasPrepared := atLeast(perConnection * connections)
	return Group{
		s.variable("max_connections", Problem, room, "raise it, or lower database.max_open and lock.connections", hasRoom),
		s.variable("max_user_connections", Problem, room+", or 0", "raise it for this user", func(n int) bool { return n == 0 || hasRoom(n) }),
		s.variable("max_prepared_stmt_count", Warning, prepared, "raise it: beyond it, statements are parsed each time", hasPrepared),
		clocks.Read("database", s.now),
		{What: "database prepared statement", Tries: true, Run: s.prepare},
		{What: "database named lock", Tries: true, Run: s.lock},
	}
}

type sqlServer struct{ *sql.DB }

// variable compares a variable of the session or of the server.
func (s sqlServer) variable(name string, otherwise State, wanted, do string, ok func(int) bool) Check {
	return Check{What: "database " + name, Run: func(ctx context.Context) Finding {
		var n int
		if err := s.QueryRowContext(ctx, `SELECT @@`+name).Scan(&n); err != nil {
			return Tried(err, "", wanted, "see the server's log")
		}
		return Judge(ok(n), otherwise, strconv.Itoa(n), wanted, do)
	}}
}

func (s sqlServer) now(ctx context.Context) (at time.Time, err error) {
	err = s.QueryRowContext(ctx, `SELECT UTC_TIMESTAMP(6)`).Scan(&at)
	return at, err
}

func (s sqlServer) prepare(ctx context.Context) Finding {
	stmt, err := s.PrepareContext(ctx, `SELECT ?`)
	if err == nil {
		defer stmt.Close() //nolint:errcheck // nothing is lost with it
		err = stmt.QueryRowContext(ctx, 1).Scan(new(int))
	}
	return Tried(err, "done", "a statement that is prepared and executed", "raise max_prepared_stmt_count, or connect past a proxy that knows none")
}

func (s sqlServer) lock(ctx context.Context) Finding {
	name := "stockd-check-" + rand.Text()
	var got, freed sql.NullBool
	err := s.QueryRowContext(ctx, `SELECT GET_LOCK(?, 0), RELEASE_LOCK(?)`, name, name).Scan(&got, &freed)
	if err == nil && (!got.Bool || !freed.Bool) {
		err = errors.New("the server grants no name")
	}
	return Tried(err, "done", "GET_LOCK, for migrations and sql-named-lock", "connect to a server, or past a proxy, that has named locks")
}
