package backend_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
)

func TestAConflictIsWhatAServerHasRolledBackForAnotherTransaction(t *testing.T) {
	for _, c := range []struct {
		number          uint16
		message         string
		conflict, group bool
	}{
		{1213, "Deadlock found when trying to get lock; try restarting transaction", true, false},
		{3101, "Plugin instructed the server to rollback the current transaction.", true, true},
		{1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", true, false},
		{1180, "Got error 28 - 'No space left on device' during COMMIT", false, false},
		{1180, "Got error 1490 - 'Unknown' during COMMIT", false, false},
		{1205, "Lock wait timeout exceeded; try restarting transaction", false, false},
		{3100, "Error on observer while running replication hook 'before_commit'.", false, false},
	} {
		err := fmt.Errorf("commit: %w", &mysql.MySQLError{Number: c.number, Message: c.message})
		if got := backend.IsConflict(err); got != c.conflict {
			t.Errorf("%d %s is a conflict: %v, want %v", c.number, c.message, got, c.conflict)
		}
		if got := backend.IsGroupConflict(err); got != c.group {
			t.Errorf("%d %s is one of a group: %v, want %v", c.number, c.message, got, c.group)
		}
	}
	if backend.IsConflict(errors.New("Error 1213: not a server's")) {
		t.Error("an error without a number is a conflict")
	}
}
