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
	// ErrSoldOut: not enough units are left.
	ErrSoldOut = errors.New("sold out")
	// ErrUserLimit: the buyer has reached the limit per buyer.
	ErrUserLimit = errors.New("limit of one buyer")
	// ErrRateLimited: this buyer or this address sends too many requests.
	ErrRateLimited = errors.New("asked too often")
	// ErrBusy: the service is busy, after all attempts of the client.
	ErrBusy = errors.New("busy")
	// ErrUnavailable: stockd, or one of its backends, cannot be reached.
	ErrUnavailable = errors.New("unavailable")
	// ErrOutcomeUnknown: the request was sent, and may have happened or not.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnknownGoods: there is no such item.
	ErrUnknownGoods = errors.New("unknown item")
	// ErrUnknownOrder: there is no such order.
	ErrUnknownOrder = errors.New("unknown order")
	// ErrUnknownReservation: there is no such reservation, or it is another buyer's.
	ErrUnknownReservation = errors.New("unknown reservation")
	// ErrReservationExpired: its time is over. It stays so, whatever is paid later.
	ErrReservationExpired = errors.New("reservation expired")
	// ErrReservationReleased: it was released.
	ErrReservationReleased = errors.New("reservation released")
	// ErrReservationConfirmed: it is an order already.
	ErrReservationConfirmed = errors.New("reservation confirmed already")
	// ErrReferenceUsed: the payment reference has confirmed another reservation.
	ErrReferenceUsed = errors.New("payment reference was used for another reservation")
	// ErrOrderReturned: fewer units of the order are left.
	ErrOrderReturned = errors.New("order returned already")
	// ErrGoodsExist: the item exists already.
	ErrGoodsExist = errors.New("item exists already")
	// ErrStockLimit: the stock would exceed the limit of an item or of the strategy.
	ErrStockLimit = errors.New("stock limit")
	// ErrKeyReused: the request id was used for another request.
	ErrKeyReused = errors.New("request id was used for something else")
	// ErrUnknownStrategy: there is no such strategy.
	ErrUnknownStrategy = errors.New("unknown strategy")
	// ErrRefused: the strategy is not available.
	ErrRefused = errors.New("strategy refused")
	// ErrChoiceRefused: purchases may not ask for a strategy, group or fence other than their
	// item's.
	ErrChoiceRefused = errors.New("choice refused")
	// ErrConcealed: the public API does not reveal this.
	ErrConcealed = errors.New("concealed from the public")
	// ErrDefaultStrategy: the default cannot be switched off.
	ErrDefaultStrategy = errors.New("default strategy")
	// ErrInvalid: the request is invalid; Problem.Errors has the fields.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized: the token is missing or wrong.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrTokenBound: the buyer's token is for another item.
	ErrTokenBound = errors.New("token is for another item")
)

// kindOf is the error of the code of a problem; nil for an unknown code.
func kindOf(code string) error {
	return map[string]error{
		"insufficient-stock": ErrSoldOut,

		"unknown-reservation":   ErrUnknownReservation,
		"reservation-expired":   ErrReservationExpired,
		"reservation-released":  ErrReservationReleased,
		"reservation-confirmed": ErrReservationConfirmed,
		"reference-used":        ErrReferenceUsed,
		"order-returned":        ErrOrderReturned,

		"user-limit":          ErrUserLimit,
		"rate-limited":        ErrRateLimited,
		"busy":                ErrBusy,
		"fenced":              ErrBusy,
		"lease-lost":          ErrBusy,
		"backend-unavailable": ErrUnavailable,
		"stopping":            ErrUnavailable,
		"outcome-unknown":     ErrOutcomeUnknown,
		"unknown-goods":       ErrUnknownGoods,
		"unknown-order":       ErrUnknownOrder,
		"goods-exist":         ErrGoodsExist,
		"stock-limit":         ErrStockLimit,
		"key-reused":          ErrKeyReused,
		"unknown-strategy":    ErrUnknownStrategy,
		"strategy-refused":    ErrRefused,
		"choice-refused":      ErrChoiceRefused,
		"default-strategy":    ErrDefaultStrategy,
		"invalid-request":     ErrInvalid,
		"unauthorized":        ErrUnauthorized,
		"token-bound":         ErrTokenBound,
	}[code]
}

// Problem is an RFC 9457 problem.
type Problem struct { //nolint:errname // it is RFC 9457's name
	// Code is the stable name of its kind, such as "insufficient-stock".
	Code string
	// Status is the HTTP status.
	Status int
	// Title and Detail are for humans.
	Title, Detail string
	// Errors are the wrong fields, each with what is allowed.
	Errors []FieldError
	// MoreErrors counts the wrong fields beyond Errors.
	MoreErrors int
	// Backend is the one that failed or is not configured.
	Backend string
	// RequestID is that of the call, if it has one: it finds out an unknown outcome. The
	// UnknownError has it as well.
	RequestID string
	// Strategies are the known ones, where the problem is the strategy.
	Strategies []string
	// PerUser is the limit per buyer, and Has the units of this buyer, where the limit is the
	// problem.
	PerUser, Has int64
	// GoodsID is the item of a Basket that is the cause.
	GoodsID int64
	// Instance is the request id in the log of stockd.
	Instance string
	// RetryAfter is the pause before a retry; 0 means unknown.
	RetryAfter time.Duration
}

// FieldError is one wrong field of a request.
type FieldError struct {
	Field string `json:"field"`
	Error string `json:"error"`
}

// Error is the kind of the problem and its detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return "stockd: " + p.Title
	}
	return "stockd: " + p.Title + ": " + p.Detail
}

// Unwrap is the Err… of this package, or nil.
func (p *Problem) Unwrap() error { return kindOf(p.Code) }

const problemPrefix = "urn:stockd:problem:"

// readProblem reads a failure; ok is false if it is not from stockd.
func readProblem(status int, header http.Header, body []byte) (p *Problem, ok bool) {
	var said struct {
		Type       string       `json:"type"`
		Title      string       `json:"title"`
		Detail     string       `json:"detail"`
		Instance   string       `json:"instance"`
		Errors     []FieldError `json:"errors"`
		MoreErrors int          `json:"more_errors"`
		Backend    string       `json:"backend"`
		RequestID  string       `json:"request_id"`
		Strategies []string     `json:"strategies"`
		PerUser    int64        `json:"per_user"`
		GoodsID    int64        `json:"goods_id"`
		Has        int64        `json:"has"`
	}
	if !json.Valid(body) {
		return nil, false
	}
	// A field of an unexpected type is ignored: the code decides.
	_ = json.Unmarshal(body, &said)
	code, ours := strings.CutPrefix(said.Type, problemPrefix)
	if !ours {
		return nil, false
	}
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 31)
	if err != nil {
		seconds = 0 // there is none, or it is a time of day
	}
	return &Problem{
		Code: code, Status: status, Title: said.Title, Detail: said.Detail,
		Errors: said.Errors, MoreErrors: said.MoreErrors, Backend: said.Backend, RequestID: said.RequestID, Strategies: said.Strategies,
		PerUser: said.PerUser, Has: said.Has, GoodsID: said.GoodsID, Instance: said.Instance, RetryAfter: time.Duration(seconds) * time.Second,
	}, true
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
