package backend

import (
	"errors"
	"strings"

	"github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"
)

// Fault is what an SQL database says of a statement that it did not execute, or of a transaction.
type Fault int

// The faults.
const (
	Failed    Fault = iota // the database failed, or the cause is unknown
	Duplicate              // a unique key is taken
	Locked                 // a lock was not free in time
	Conflict               // the transaction was rolled back because of another one: it may succeed when it is run again
	Apart                  // the transaction would write to several shards
)

// The errors of MySQL and MariaDB. Galera finds most conflicts at the commit, and answers them as deadlocks. Group
// Replication does that where another primary's change is written first (the storage engine's error 149, in a
// commit), and has an error of its own where it was agreed on first.
const (
	mysqlDuplicateEntry  = 1062
	mysqlDuringCommit    = 1180
	mysqlLockWaitTimeout = 1205
	mysqlDeadlock        = 1213
	mysqlCertification   = 3101

	engineDeadlock = "Got error 149 "
	// severalShards is in the error of a vtgate for a transaction that does not stay on one shard. It has no number of its own.
	severalShards = "multi-db transaction attempted"
)

// FaultOf is the fault in an error of a driver.
func FaultOf(err error) Fault {
	if answer, ok := errors.AsType[*sqlite.Error](err); ok {
		return faultOfSQLite(answer.Code())
	}
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return Failed
	}
	switch number := answer.Number; {
	case number == mysqlDeadlock, number == mysqlCertification, number == mysqlDuringCommit && strings.HasPrefix(answer.Message, engineDeadlock):
		return Conflict
	case strings.Contains(answer.Message, severalShards):
		return Apart
	case number == mysqlDuplicateEntry:
		return Duplicate
	case number == mysqlLockWaitTimeout:
		return Locked
	default:
		return Failed
	}
}

// faultOfSQLite reads a result code, see https://www.sqlite.org/rescode.html.
func faultOfSQLite(code int) Fault {
	const busy, locked, primary, takenPrimaryKey, takenUnique = 5, 6, 0xff, 1555, 2067
	switch {
	case code == takenPrimaryKey, code == takenUnique:
		return Duplicate
	case code&primary == busy, code&primary == locked:
		return Locked
	default:
		return Failed
	}
}

// IsGroupConflict reports a Conflict of Group Replication alone. A member that is put out of its group answers
// what it has sent with the same error, although the others may have committed it.
func IsGroupConflict(err error) bool { return IsMySQL(err, mysqlCertification) }
