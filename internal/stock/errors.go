package stock

import (
	"errors"
	"fmt"
)

// The kinds of failure. Each layer wraps them with what it was doing; the
// handler maps a kind to an HTTP status in one place.
var (
	// ErrInsufficientStock refuses a purchase: not enough units are left.
	ErrInsufficientStock = errors.New("insufficient stock")
	// ErrAllocated rejects a purchase that does not fit into what its strategy can
	// reach, and would fit with what is in the allocations of other strategies. An
	// *AllocatedError has the figures. It is offered again once that is recalled, and no
	// client gets it.
	ErrAllocated = errors.New("the units left are allocated to another strategy")
	// ErrUserLimit refuses a purchase: the buyer would have more units of the
	// goods than one buyer may have.
	ErrUserLimit = errors.New("limit of one buyer exceeded")
	// ErrUserUnknown refuses a purchase that does not say whose it is, of a goods
	// of which one buyer may have only so many.
	ErrUserUnknown = errors.New("buyer unknown")
	// ErrUnknownGoods tells that no goods has this id.
	ErrUnknownGoods = errors.New("unknown goods")
	// ErrUnknownOrder tells that no order has this number or request id.
	ErrUnknownOrder = errors.New("unknown order")
	// ErrGoodsExist tells that a goods of this id was created before.
	ErrGoodsExist = errors.New("goods exist already")
	// ErrStockLimit refuses a restock that would lift the stock above MaxStock, and a
	// purchase through a strategy that cannot keep as much as there is.
	ErrStockLimit = errors.New("stock limit exceeded")
	// ErrKeyReused refuses a request id that was used for other content.
	ErrKeyReused = errors.New("request id was used with other content")
	// ErrDuplicateRequest tells that a request id of the batch is in the
	// ledger already. None of the batch happened.
	ErrDuplicateRequest = errors.New("request id is in the ledger already")
	// ErrBusy tells that a lock, a row or a connection was not to be had in
	// time. Nothing happened; trying again is safe.
	ErrBusy = errors.New("busy")
	// ErrBackendUnavailable tells that a backend failed before anything was
	// written. A *BackendError names it.
	ErrBackendUnavailable = errors.New("backend unavailable")
	// ErrLeaseLost tells that the lock was lost before the write. Nothing
	// happened; trying again is safe.
	ErrLeaseLost = errors.New("lease lost")
	// ErrFenced tells that a later holder of the lock was there before the
	// write. Nothing happened; trying again is safe.
	ErrFenced = errors.New("fenced off")
	// ErrUnknownOutcome tells that a write was sent and its answer did not
	// come: it may have happened or not. Sending the same request id again
	// finds out.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// BackendError is a failure of a named backend. It is an ErrBackendUnavailable
// and whatever Err is.
type BackendError struct {
	// Backend is the backend's name as a user knows it, such as "mysql".
	Backend string
	Err     error
}

// Error names the backend before its error.
func (e *BackendError) Error() string { return fmt.Sprintf("%s: %v", e.Backend, e.Err) }

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *BackendError) Unwrap() []error { return []error{ErrBackendUnavailable, e.Err} }

// UserLimitError is an ErrUserLimit that tells the limit, and how many units the
// buyer has already.
type UserLimitError struct{ PerUser, Has int64 }

// Error names both figures.
func (e *UserLimitError) Error() string {
	return fmt.Sprintf("%v: one buyer may have %d, and has %d", ErrUserLimit, e.PerUser, e.Has)
}

// Unwrap makes the kind visible to errors.Is.
func (e *UserLimitError) Unwrap() error { return ErrUserLimit }

// AllocatedError is an ErrAllocated.
type AllocatedError struct {
	// Units are in the allocations of other strategies, pending ones included.
	Units int64
	// Version is that of the row that was read. Whatever moves units between the row and
	// an allocation changes it.
	Version int64
}

// Error names the units.
func (e *AllocatedError) Error() string { return fmt.Sprintf("%v: %d", ErrAllocated, e.Units) }

// Unwrap makes the kind visible to errors.Is.
func (e *AllocatedError) Unwrap() error { return ErrAllocated }
