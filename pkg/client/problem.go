package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The kinds of problems, for errors.Is.
var (
	ErrSoldOut     = errors.New("sold out")                      // not enough units are left
	ErrUserLimit   = errors.New("limit of one buyer")            // the buyer has reached the limit per buyer
	ErrHoldLimit   = errors.New("limit of what one buyer holds") // of all items together, at the same time
	ErrRateLimited = errors.New("asked too often")               // this buyer or this address sends too many requests
	ErrBusy        = errors.New("busy")                          // the service is busy, after all attempts of the client
	ErrUnavailable = errors.New("unavailable")                   // stockd, or one of its backends, cannot be reached
	ErrInvalid     = errors.New("invalid request")               // Problem.Errors has the fields
	ErrKeyReused   = errors.New("request id was used for something else")

	// ErrOutcomeUnknown: the request was sent, and may have happened or not.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	ErrUnknownGoods       = errors.New("unknown item")
	ErrUnknownOrder       = errors.New("unknown order")
	ErrUnknownStrategy    = errors.New("unknown strategy")
	ErrUnknownReservation = errors.New("unknown reservation") // or it is another buyer's

	ErrReservationExpired   = errors.New("reservation expired") // it stays so, whatever is paid later
	ErrReservationReleased  = errors.New("reservation released")
	ErrReservationConfirmed = errors.New("reservation confirmed already") // it is an order
	ErrReferenceUsed        = errors.New("payment reference was used for another reservation")

	ErrSaleNotStarted  = errors.New("sale not started")       // the *Problem says in how many seconds it starts
	ErrSaleClosed      = errors.New("sale closed")            // nothing of the item is sold any more
	ErrOrderReturned   = errors.New("order returned already") // fewer units of it are left
	ErrGoodsExist      = errors.New("item exists already")
	ErrStockLimit      = errors.New("stock limit")      // the stock would exceed that of an item or of the strategy
	ErrBelowZero       = errors.New("below zero")       // a correction would take off more than can be sold
	ErrItemsApart      = errors.New("items apart")      // one order cannot have them: order each by itself
	ErrRefused         = errors.New("strategy refused") // it is not available
	ErrChoiceRefused   = errors.New("choice refused")   // a strategy, group or fence other than the item's
	ErrDefaultStrategy = errors.New("default strategy") // it cannot be switched off
	ErrConcealed       = errors.New("concealed from the public")
	ErrUnauthorized    = errors.New("unauthorized") // the token is missing or wrong
	ErrTokenBound      = errors.New("token is for another item")
	ErrNotAdmitted     = errors.New("not admitted")    // the item has a waiting room: see Queue
	ErrNoRoom          = errors.New("no waiting room") // the item needs no admission
	ErrUnknownTicket   = errors.New("unknown ticket")
)

// kindOf is the error of the code of a problem; nil for an unknown code.
func kindOf(code string) error {
	return map[string]error{
		"insufficient-stock":    ErrSoldOut,
		"items-apart":           ErrItemsApart,
		"sale-closed":           ErrSaleClosed,
		"sale-not-started":      ErrSaleNotStarted,
		"unknown-reservation":   ErrUnknownReservation,
		"reservation-expired":   ErrReservationExpired,
		"reservation-released":  ErrReservationReleased,
		"reservation-confirmed": ErrReservationConfirmed,
		"reference-used":        ErrReferenceUsed,
		"order-returned":        ErrOrderReturned,
		"user-limit":            ErrUserLimit,
		"hold-limit":            ErrHoldLimit,
		"rate-limited":          ErrRateLimited,
		"busy":                  ErrBusy,
		"fenced":                ErrBusy,
		"lease-lost":            ErrBusy,
		"backend-unavailable":   ErrUnavailable,
		"stopping":              ErrUnavailable,
		"outcome-unknown":       ErrOutcomeUnknown,
		"unknown-goods":         ErrUnknownGoods,
		"unknown-order":         ErrUnknownOrder,
		"goods-exist":           ErrGoodsExist,
		"stock-limit":           ErrStockLimit,
		"below-zero":            ErrBelowZero,
		"key-reused":            ErrKeyReused,
		"unknown-strategy":      ErrUnknownStrategy,
		"strategy-refused":      ErrRefused,
		"choice-refused":        ErrChoiceRefused,
		"default-strategy":      ErrDefaultStrategy,
		"invalid-request":       ErrInvalid,
		"unauthorized":          ErrUnauthorized,
		"token-bound":           ErrTokenBound,
		"not-admitted":          ErrNotAdmitted,
		"no-waiting-room":       ErrNoRoom,
		"unknown-ticket":        ErrUnknownTicket,
	}[code]
}

// Problem is an RFC 9457 problem.
type Problem struct { //nolint:errname // it is RFC 9457's name
	// Code is the stable name of its kind, such as "insufficient-stock".
	Code string `json:"type"`
	// Status is the HTTP status.
	Status int `json:"-"`
	// Title and Detail are for humans.
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Errors are the wrong fields, each with what is allowed, and MoreErrors counts those beyond.
	Errors     []FieldError `json:"errors"`
	MoreErrors int          `json:"more_errors"`
	// Backend is the one that failed or is not configured.
	Backend string `json:"backend"`
	// RequestID is that of the call, if it has one: it finds out an unknown outcome. The
	// UnknownError has it as well.
	RequestID string `json:"request_id"`
	// Strategies are those that are neither switched off nor forbidden there, where the problem is the strategy.
	Strategies []string `json:"strategies"`
	// PerUser is the limit per buyer, or MaxHeld that of what a buyer holds, and Has the units that this
	// buyer has or holds, where the limit is the problem.
	PerUser int64 `json:"per_user"`
	MaxHeld int64 `json:"max_held"`
	Has     int64 `json:"has"`
	// Stock, Held and Sold are the units that can be sold, are held and are sold, where a correction is the problem.
	Stock int64 `json:"stock"`
	Held  int64 `json:"held"`
	Sold  int64 `json:"sold"`
	// StartsIn is the seconds until the sale of the item starts, where that is the problem.
	StartsIn float64 `json:"starts_in"`
	// GoodsID is the item of a Basket that is the cause.
	GoodsID int64 `json:"goods_id"`
	// Instance is the request id in the log of stockd.
	Instance string `json:"instance"`
	// RetryAfter is the pause before a retry; 0 means unknown.
	RetryAfter time.Duration `json:"-"`
}

// FieldError is one wrong field of a request.
type FieldError struct {
	Field string `json:"field"`
	Error string `json:"error"`
}

// Error is the kind of the problem and its detail, without the end of it that says the kind again.
func (p *Problem) Error() string {
	at := max(0, strings.LastIndex(p.Detail, ": "))
	detail, last := p.Detail, strings.TrimPrefix(p.Detail[at:], ": ")
	if strings.HasSuffix(strings.ToLower(p.Title), strings.ToLower(last)) {
		detail = p.Detail[:at]
	}
	return strings.TrimSuffix("stockd: "+p.Title+": "+detail, ": ")
}

// Unwrap is the Err… of this package, or nil.
func (p *Problem) Unwrap() error { return kindOf(p.Code) }

const problemPrefix = "urn:stockd:problem:"

// readProblem reads a failure; ok is false if it is not from stockd.
func readProblem(status int, header http.Header, body []byte) (p *Problem, ok bool) {
	if !json.Valid(body) {
		return nil, false
	}
	p = new(Problem)
	// A field of an unexpected type is ignored: the code decides.
	_ = json.Unmarshal(body, p)
	if p.Code, ok = strings.CutPrefix(p.Code, problemPrefix); !ok {
		return nil, false
	}
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 31)
	if err != nil {
		seconds = 0 // there is none, or it is a time of day
	}
	p.Status, p.RetryAfter = status, time.Duration(seconds)*time.Second
	return p, true
}

// UnknownError reports that a call was sent and its answer did not arrive, was cut off, was not a
// stockd's, or was that the outcome is unknown, or an internal error. It wraps ErrOutcomeUnknown and Err.
type UnknownError struct {
	// RequestID finds out the outcome: send the same request again with it. It is empty for
	// calls without one, which may be repeated.
	RequestID string
	Err       error
}

// Error names the request if it has an id.
func (e *UnknownError) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("stockd: outcome unknown: %v", e.Err)
	}
	return fmt.Sprintf("stockd: outcome of request %s unknown: %v", e.RequestID, e.Err)
}

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *UnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }
