package repo

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// A member of a group that is put out of it answers a commit with a conflict, also that of the procedure,
// although the others may have made it. As long as it is in the group, a conflict is one.
func TestAConflictOutsideOfTheGroupIsAnUnknownOutcome(t *testing.T) {
	s, err := Open(t.Context(), backend.SQLOptions{Driver: SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db"), MaxOpen: 1}, Options{Replica: "replica-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is lost with it
	conflict := &mysql.MySQLError{Number: 3101, Message: "rolled back"}
	s.dialect.conflicted = func(err error) bool { return errors.Is(err, conflict) }
	s.dialect.classify = func(err error) faultKind {
		if errors.Is(err, conflict) {
			return faultDeadlock
		}
		return faultBackend
	}
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
		if !errors.Is(err, c.want) {
			t.Errorf("where it answers %q with %v, %v is %v, want %v", c.asked, c.want, c.err, err, c.want)
		}
	}
}
