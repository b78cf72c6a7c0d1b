package stock

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of failure. Each layer wraps them with what it was doing; the
// handler maps a kind to an HTTP status in one place.
var (
	// ErrInsufficientStock rejects a purchase: not enough units are left.
	ErrInsufficientStock = errors.New("insufficient stock")
	// ErrSaleClosed rejects a purchase after the end of the sale of its item.
	ErrSaleClosed = errors.New("the sale is closed")
	// ErrSaleTimes rejects a sale that would end before it starts.
	ErrSaleTimes = errors.New("must be after starts_at")
	// ErrSaleNotStarted rejects a purchase before the start of the sale of its item. A *NotStartedError says how long before.
	ErrSaleNotStarted = errors.New("the sale has not started")
	// ErrAllocated rejects a purchase that does not fit into what its strategy can
	// reach, and would fit with what is in the allocations of other strategies. An
	// *AllocatedError has the figures. The purchase is retried once those units are recalled;
	// no client gets this error.
	ErrAllocated = errors.New("the units left are allocated to another strategy")
	// ErrUserLimit rejects a purchase: the buyer would exceed the limit per buyer of the item.
	ErrUserLimit = errors.New("limit of one buyer exceeded")
	// ErrHoldLimit rejects a reservation: the buyer would hold more than one buyer may at the same time.
	ErrHoldLimit = errors.New("limit of what one buyer holds exceeded")
	// ErrUserUnknown rejects an anonymous purchase to which a limit per buyer applies.
	ErrUserUnknown = errors.New("buyer unknown")
	// ErrNotAdmitted rejects a purchase of an item with a waiting room: its buyer has no admission, or another purchase
	// has it.
	ErrNotAdmitted = errors.New("the buyer is not admitted")
	// ErrNoRoom: the item has no waiting room, and needs no admission.
	ErrNoRoom = errors.New("no waiting room")
	// ErrUnknownTicket: it is no ticket of a waiting room.
	ErrUnknownTicket = errors.New("unknown ticket")
	// ErrUnknownGoods: no item has this id.
	ErrUnknownGoods = errors.New("unknown item")
	// ErrUnknownOrder: no order has this number or request id.
	ErrUnknownOrder = errors.New("unknown order")
	// ErrUnknownReservation: no reservation has this number.
	ErrUnknownReservation = errors.New("unknown reservation")
	// ErrExpired: the time of the reservation is over. It stays so, whatever is paid later.
	ErrExpired = errors.New("the reservation has expired")
	// ErrReleased: the reservation was released.
	ErrReleased = errors.New("the reservation was released")
	// ErrConfirmed: the reservation was confirmed, under another payment reference where it
	// is to be confirmed.
	ErrConfirmed = errors.New("the reservation was confirmed already")
	// ErrReferenceUsed: the payment reference has confirmed another reservation.
	ErrReferenceUsed = errors.New("the payment reference was used for another reservation")
	// ErrReturned rejects a return of more units than are left of the order.
	ErrReturned = errors.New("more units than are left of the order")
	// ErrGoodsExist: an item with this id exists.
	ErrGoodsExist = errors.New("exists already")
	// ErrStockLimit rejects a restock and a return beyond MaxStock, and a purchase through a strategy that
	// cannot hold as much stock.
	ErrStockLimit = errors.New("stock limit exceeded")
	// ErrBelowZero rejects a correction that takes off more units than can be sold.
	ErrBelowZero = errors.New("fewer units can be sold")
	// ErrApart rejects what needs one transaction over items that are on different shards of the database.
	ErrApart = errors.New("its items are on different shards of the database")
	// ErrKeyReused rejects a request id that was used for other content.
	ErrKeyReused = errors.New("request id was used with other content")
	// ErrDuplicateRequest: a request id of the batch is in the
	// ledger already. None of the batch happened.
	ErrDuplicateRequest = errors.New("request id is in the ledger already")
	// ErrBusy: a lock, a row or a connection was not available in time. Nothing happened;
	// retrying is safe.
	ErrBusy = errors.New("busy")
	// ErrBackendUnavailable: a backend failed before anything was
	// written. A *BackendError names it.
	ErrBackendUnavailable = errors.New("backend unavailable")
	// ErrWritesRejected: a backend answers, and rejects writes. Nothing happened. It is an
	// ErrBackendUnavailable, whose *BackendError says why.
	ErrWritesRejected = errors.New("writes rejected")
	// ErrLeaseLost: the lock was lost before the write. Nothing happened; retrying is safe.
	ErrLeaseLost = errors.New("lease lost")
	// ErrFenced: a later holder of the lock wrote first. Nothing happened; retrying is safe.
	ErrFenced = errors.New("fenced off")
	// ErrUnknownOutcome: a write was sent and its answer did not arrive. It may have happened
	// or not; sending the same request id again finds out.
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Rejection is why a backend that answers rejects writes, in words that buyers may see. What the
// server itself said, which may name users and tables, is in the error.
type Rejection string

// The rejections.
const (
	ReadOnly       Rejection = "it is read-only"
	NotPermitted   Rejection = "stockd lacks the right, or the password"
	OutOfSpace     Rejection = "its disk is full"
	OutOfMemory    Rejection = "its memory is full"
	NotSaved       Rejection = "it cannot save what it has"
	TooFewReplicas Rejection = "too few of its replicas are in step"
	NoQuorum       Rejection = "too few of its members are there"
	NotReady       Rejection = "it is starting or stopping"
	LimitReached   Rejection = "one of its limits is reached"
	WrongSettings  Rejection = "one of its settings does not allow them"
	// Unsorted is an answer that is none of the others, such as that a table is missing.
	Unsorted Rejection = "its answer is in the log"
)

// BackendError is a failure of a named backend. It wraps ErrBackendUnavailable and Err, and
// ErrWritesRejected where the backend rejects writes.
type BackendError struct {
	// Backend is the backend's name as a user knows it, such as "mysql".
	Backend string
	// Rejects is empty where the backend failed in another way.
	Rejects Rejection
	Err     error
}

// Error names the backend, and why it rejects writes, before its error.
func (e *BackendError) Error() string {
	if e.Rejects == "" {
		return fmt.Sprintf("%s: %v", e.Backend, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Summary(), e.Err)
}

// Summary is what buyers may know of it.
func (e *BackendError) Summary() string {
	if e.Rejects == "" {
		return e.Backend + " does not answer"
	}
	return fmt.Sprintf("%s rejects writes: %s", e.Backend, e.Rejects)
}

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *BackendError) Unwrap() []error {
	kinds := []error{ErrBackendUnavailable, e.Err}
	if e.Rejects != "" {
		kinds = append(kinds, ErrWritesRejected)
	}
	return kinds
}

// UserLimitError is an ErrUserLimit with the limit and the units of the buyer.
type UserLimitError struct{ PerUser, Has int64 }

// Error names both figures.
func (e *UserLimitError) Error() string {
	return fmt.Sprintf("%v: one buyer may have %d, and has %d", ErrUserLimit, e.PerUser, e.Has)
}

// Unwrap makes the kind visible to errors.Is.
func (e *UserLimitError) Unwrap() error { return ErrUserLimit }

// HoldLimitError is an ErrHoldLimit with the limit and the units that the buyer holds, of all items together.
type HoldLimitError struct{ MaxHeld, Has int64 }

// Error names both figures.
func (e *HoldLimitError) Error() string {
	return fmt.Sprintf("%v: one buyer may hold %d units at the same time, and holds %d", ErrHoldLimit, e.MaxHeld, e.Has)
}

// Unwrap makes the kind visible to errors.Is.
func (e *HoldLimitError) Unwrap() error { return ErrHoldLimit }

// BelowZeroError is an ErrBelowZero with the units that can be sold, are held and are sold, and what was to be added.
type BelowZeroError struct{ Stock, Held, Sold, By int64 }

// Error names the figures.
func (e *BelowZeroError) Error() string {
	return fmt.Sprintf("%v: %d, beside %d that are held and %d that are sold; the correction is by %d", ErrBelowZero, e.Stock, e.Held, e.Sold, e.By)
}

// Unwrap makes the kind visible to errors.Is.
func (e *BelowZeroError) Unwrap() error { return ErrBelowZero }

// AllocatedError is an ErrAllocated.
type AllocatedError struct {
	// Units are in the allocations of other strategies, pending ones included.
	Units int64
	// Version is that of the row that was read. Every move of units between the row and an
	// allocation changes it.
	Version int64
	// Withheld reports that the item is not on sale: see Sale.
	Withheld bool
}

// Error names the units.
func (e *AllocatedError) Error() string { return fmt.Sprintf("%v: %d", ErrAllocated, e.Units) }

// Unwrap makes the kind visible to errors.Is.
func (e *AllocatedError) Unwrap() error { return ErrAllocated }

// NotStartedError is ErrSaleNotStarted, with the time until the start.
type NotStartedError struct{ In time.Duration }

// Error says when the sale starts.
func (e *NotStartedError) Error() string {
	return fmt.Sprintf("%v: it starts in %s", ErrSaleNotStarted, e.In.Round(time.Second))
}

// Unwrap makes the kind visible to errors.Is.
func (e *NotStartedError) Unwrap() error { return ErrSaleNotStarted }
