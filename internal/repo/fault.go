package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// faultKind classifies an error of a database driver.
type faultKind int

const (
	faultBackend   faultKind = iota // the database failed, or the cause is unknown
	faultDuplicate                  // a unique key is taken
	faultBusy                       // a lock timed out
	faultDeadlock                   // the database rolled the transaction back
)

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
	switch s.dialect.classify(err) {
	case faultDuplicate:
		return fmt.Errorf("%s: %w", doing, stock.ErrDuplicateRequest)
	case faultBusy:
		return fmt.Errorf("%s: %w: %w", doing, stock.ErrBusy, err)
	case faultDeadlock:
		return fmt.Errorf("%s: %w", doing, errDeadlock)
	default:
		return &stock.BackendError{Backend: s.dialect.name, Err: fmt.Errorf("%s: %w", doing, err)}
	}
}

// beginFault is fault for the begin of a transaction, where a deadline means
// that no connection became free in time, which is overload and no failure of the
// database. A database that did not answer the begin is backend.ErrUnanswered.
func (s *Store) beginFault(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && !errors.Is(err, backend.ErrUnanswered) {
		return fmt.Errorf("begin: %w: no connection to %s became free in time: %w",
			stock.ErrBusy, s.dialect.name, context.Cause(ctx))
	}
	return s.fault(ctx, "begin", err)
}

// commitFault distinguishes a commit that was never sent, or that the database rejected, from
// one that was sent and not answered.
func (s *Store) commitFault(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, backend.ErrUnanswered):
	case errors.Is(err, sql.ErrTxDone), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return s.fault(ctx, "commit", context.Cause(ctx))
	case errors.Is(err, backend.ErrNotSent), s.dialect.classify(err) != faultBackend:
		return s.fault(ctx, "commit", err)
	}
	return fmt.Errorf("%w: %w", stock.ErrUnknownOutcome,
		&stock.BackendError{Backend: s.dialect.name, Err: fmt.Errorf("commit: %w", err)})
}
