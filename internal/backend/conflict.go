package backend

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// The errors of a transaction that MySQL or MariaDB has rolled back. Galera finds most conflicts at the
// commit, and answers them as deadlocks. Group Replication does that where another primary's change is
// written first (the storage engine's error 149, in a commit), and has an error of its own where it was
// agreed on first.
const (
	mysqlDeadlock      = 1213
	mysqlDuringCommit  = 1180
	engineDeadlock     = "Got error 149 "
	mysqlCertification = 3101
)

// IsConflict reports that a server has rolled a transaction back because of another one, of this server or
// of another of its cluster: it may succeed when it is run again.
func IsConflict(err error) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (answer.Number == mysqlDeadlock || answer.Number == mysqlCertification ||
		answer.Number == mysqlDuringCommit && strings.HasPrefix(answer.Message, engineDeadlock))
}

// IsGroupConflict reports that of Group Replication alone. A member that is put out of its group answers
// what it has sent with the same error, although the others may have committed it.
func IsGroupConflict(err error) bool { return IsMySQL(err, mysqlCertification) }

// IsMySQL reports that a server has answered with one of these error numbers.
func IsMySQL(err error, numbers ...uint16) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, answer.Number)
}
