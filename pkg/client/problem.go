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

// What a stockd may refuse; errors.Is tells them apart.
var (
	// ErrSoldOut: not enough units are left.
	ErrSoldOut = errors.New("sold out")
	// ErrUserLimit: the buyer has what one buyer may have.
	ErrUserLimit = errors.New("limit of one buyer")
	// ErrRateLimited: this buyer, or this address, asks too often.
	ErrRateLimited = errors.New("asked too often")
	// ErrBusy: not now. It was tried as often as the client may.
	ErrBusy = errors.New("busy")
	// ErrUnavailable: a backend of the stockd, or the stockd itself, cannot be reached.
	ErrUnavailable = errors.New("unavailable")
	// ErrOutcomeUnknown: it was sent, and nobody knows what came of it.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnknownGoods: there is no such goods.
	ErrUnknownGoods = errors.New("unknown goods")
	// ErrUnknownOrder: there is no such order.
	ErrUnknownOrder = errors.New("unknown order")
	// ErrGoodsExist: there is such a goods already.
	ErrGoodsExist = errors.New("goods exist already")
	// ErrStockLimit: no goods may have that much stock, or the strategy cannot keep it.
	ErrStockLimit = errors.New("stock limit")
	// ErrKeyReused: the request id was used for something else.
	ErrKeyReused = errors.New("request id was used for something else")
	// ErrUnknownStrategy: there is no such strategy.
	ErrUnknownStrategy = errors.New("unknown strategy")
	// ErrRefused: the owner does not want the strategy used.
	ErrRefused = errors.New("strategy refused")
	// ErrChoiceRefused: purchases may not ask for another strategy, group or fence than
	// their item has.
	ErrChoiceRefused = errors.New("choice refused")
	// ErrConcealed: the stockd does not tell the public.
	ErrConcealed = errors.New("concealed from the public")
	// ErrDefaultStrategy: the default cannot be switched off.
	ErrDefaultStrategy = errors.New("default strategy")
	// ErrInvalid: the request is wrong, as Problem.Errors tells.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized: the token is missing or wrong.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrTokenBound: the buyer's token is for another item.
	ErrTokenBound = errors.New("token is for another item")
)

// kindOf is what errors.Is finds behind the code of a problem; nil where it has no
// name here.
func kindOf(code string) error {
	return map[string]error{
		"insufficient-stock":  ErrSoldOut,
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

// Problem is an answer of the stockd that is no success, as RFC 9457 has it.
type Problem struct { //nolint:errname // it is RFC 9457's name
	// Code is the stable name of its kind, such as "insufficient-stock".
	Code string
	// Status is that of HTTP.
	Status int
	// Title and Detail are for people.
	Title, Detail string
	// Errors name each field that is wrong, and what is allowed.
	Errors []FieldError
	// MoreErrors counts the wrong fields that Errors leaves out.
	MoreErrors int
	// Backend is the one that failed, or that is not configured.
	Backend string
	// RequestID is what finds out an unknown outcome; the UnknownError has it too.
	RequestID string
	// Strategies are those that may be asked for, where one was not.
	Strategies []string
	// PerUser is how many units one buyer may have, and Has how many this one has,
	// where that is the problem.
	PerUser, Has int64
	// Instance names the request, for the log of the stockd.
	Instance string
	// RetryAfter is when another try is worth it; 0 where that is not known.
	RetryAfter time.Duration
}

// FieldError is one wrong field of a request.
type FieldError struct {
	Field string `json:"field"`
	Error string `json:"error"`
}

// Error is the detail, after what kind of problem it is.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return "stockd: " + p.Title
	}
	return "stockd: " + p.Title + ": " + p.Detail
}

// Unwrap is the Err… of this package that the problem is, or nil.
func (p *Problem) Unwrap() error { return kindOf(p.Code) }

const problemPrefix = "urn:stockd:problem:"

// readProblem reads an answer that is no success; ok is false where a stockd cannot
// have given it.
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
		Has        int64        `json:"has"`
	}
	if !json.Valid(body) {
		return nil, false
	}
	// A field of another type than ours is read as far as it goes: the code decides.
	_ = json.Unmarshal(body, &said)
	if !strings.HasPrefix(said.Type, problemPrefix) {
		return nil, false
	}
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil {
		seconds = 0 // there is none
	}
	return &Problem{
		Code: strings.TrimPrefix(said.Type, problemPrefix), Status: status, Title: said.Title, Detail: said.Detail,
		Errors: said.Errors, MoreErrors: said.MoreErrors, Backend: said.Backend, RequestID: said.RequestID, Strategies: said.Strategies,
		PerUser: said.PerUser, Has: said.Has, Instance: said.Instance, RetryAfter: time.Duration(seconds) * time.Second,
	}, true
}

// UnknownError tells that a call was sent and its answer did not come, was cut off, or
// was that the stockd itself does not know. It is ErrOutcomeUnknown, and whatever Err is.
type UnknownError struct {
	// RequestID finds out what came of it: send the same again with it. It is empty
	// where a call has none, and may be sent again as it is.
	RequestID string
	Err       error
}

// Error names the request where it has an id.
func (e *UnknownError) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("stockd: outcome unknown: %v", e.Err)
	}
	return fmt.Sprintf("stockd: outcome of request %s unknown: %v", e.RequestID, e.Err)
}

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *UnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }
