package sql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// NamedLock is GET_LOCK of MySQL and MariaDB.
func NamedLock() lock.Entry {
	return lock.Entry{
		Name:        "sql-named-lock",
		Family:      lock.FamilySQL,
		Summary:     "GET_LOCK on a connection of its own; it ends with its connection, and its holder is notified",
		Needs:       []backend.Name{backend.MySQL},
		Guarantees:  lock.Complete(false),
		OneServer:   true,
		NotOnShards: "where GET_LOCK is that of one tablet",
		New: func(d lock.Deps) lock.Locker {
			b := newBase(d)
			return lock.NewReentrant(&sessionLock{
				base:  b,
				take:  takeName,
				count: (&Tokens{b}).issueBy,
				free:  freeName,
			})
		},
	}
}

// A named lock belongs to the whole server, its name has 64 characters at the
// most, and upper case is lower case. So the name of the database goes into it,
// and both are hashed.
const (
	serverName = `CONCAT('stockd:', SHA2(CONCAT(DATABASE(), '/', ?), 224))`

	getLock = `SELECT GET_LOCK(` + serverName + `, ?)`

	releaseLock = `SELECT COALESCE(RELEASE_LOCK(` + serverName + `), 0)`
)

func takeName(ctx context.Context, conn *sql.Conn, name string) (won bool, err error) {
	var answer sql.NullBool
	if err := conn.QueryRowContext(ctx, getLock, name, int(waitSlice.Seconds())).Scan(&answer); err != nil {
		return false, err
	}
	if !answer.Valid {
		return false, errors.New("the server could not tell whether it granted the name")
	}
	return answer.Bool, nil
}

// freeName gives the name back if it is the connection's.
func freeName(ctx context.Context, conn *sql.Conn, name string) (was bool, err error) {
	err = conn.QueryRowContext(ctx, releaseLock, name).Scan(&was)
	return was, err
}
