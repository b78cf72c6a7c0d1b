package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// TypePrefix begins the type of every problem.
const TypePrefix = "urn:stockd:problem:"

// problemType is the media type of a problem.
const problemType = "application/problem+json"

// busy is the problem of a request that found no room in time.
const busy = "busy"

// instancePrefix begins the request id in a problem.
const instancePrefix = "urn:stockd:request:"

// problem is an RFC 9457 problem. Its type is stable: clients may branch on it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Instance is the request id, as in X-Request-Id of the answer.
	Instance string `json:"instance,omitempty"`
	// Errors are the wrong fields, each with what is allowed.
	Errors []fieldError `json:"errors,omitempty"`
	// MoreErrors counts the wrong fields beyond Errors.
	MoreErrors int `json:"more_errors,omitempty"`
	// Backend is the one that failed or is not configured.
	Backend string `json:"backend,omitempty"`
	// RequestID is what to send as Idempotency-Key to learn an unknown outcome.
	RequestID string `json:"request_id,omitempty"`
	// PerUser is the limit of a buyer, or MaxHeld that of what it holds, and Has how many units it has or holds.
	PerUser int64  `json:"per_user,omitempty"`
	MaxHeld int64  `json:"max_held,omitempty"`
	Has     *int64 `json:"has,omitempty"`
	// Stock, Held and Sold are the units of an item that cannot be corrected so far.
	Stock *int64 `json:"stock,omitempty"`
	Held  *int64 `json:"held,omitempty"`
	Sold  *int64 `json:"sold,omitempty"`
	// StartsIn is the seconds until the sale starts.
	StartsIn float64 `json:"starts_in,omitempty"`
	// GoodsID is the item of a basket that is the cause.
	GoodsID int64 `json:"goods_id,omitempty"`
	// Strategies are the known ones.
	Strategies []string `json:"strategies,omitempty"`

	retryAfter   string // seconds, where it is not the usual
	authenticate string // WWW-Authenticate
}

// fieldError is one wrong field of a request.
type fieldError struct {
	Field string `json:"field"`
	Error string `json:"error"`
}

// statusClientGone is nginx's status for a client that has disconnected; only the log has it.
const statusClientGone = 499

// kindOf is the problem of an error's kind, the most specific first: an unknown outcome is also a
// failure of its backend.
func kindOf(err error) (p problem, known bool) {
	const unavailable = http.StatusServiceUnavailable
	for _, kind := range []struct {
		err         error
		status      int
		slug, title string
	}{
		{stock.ErrSaleNotStarted, http.StatusConflict, "sale-not-started", "The sale has not started"},
		{stock.ErrSaleClosed, http.StatusConflict, "sale-closed", "The sale is closed"},
		{stock.ErrInsufficientStock, http.StatusConflict, "insufficient-stock", "Not enough stock is left"},
		{stock.ErrUserLimit, http.StatusConflict, "user-limit", "The limit per buyer is reached"},
		{stock.ErrHoldLimit, http.StatusConflict, "hold-limit", "The buyer holds as many units as it may"},
		{stock.ErrNotAdmitted, http.StatusForbidden, "not-admitted", "The waiting room has not admitted the buyer"},
		{stock.ErrNoRoom, http.StatusNotFound, "no-waiting-room", "The item has no waiting room"},
		{stock.ErrUnknownTicket, http.StatusNotFound, "unknown-ticket", "Unknown ticket"},
		{stock.ErrUnknownGoods, http.StatusNotFound, "unknown-goods", "Unknown item"},
		{stock.ErrUnknownOrder, http.StatusNotFound, "unknown-order", "Unknown order"},
		{stock.ErrUnknownReservation, http.StatusNotFound, "unknown-reservation", "Unknown reservation"},
		{stock.ErrExpired, http.StatusConflict, "reservation-expired", "The reservation has expired"},
		{stock.ErrReleased, http.StatusConflict, "reservation-released", "The reservation was released"},
		{stock.ErrConfirmed, http.StatusConflict, "reservation-confirmed", "The reservation is an order already"},
		{stock.ErrReferenceUsed, http.StatusConflict, "reference-used", "The payment reference was used for another reservation"},
		{stock.ErrReturned, http.StatusConflict, "order-returned", "Fewer units of the order are left"},
		{stock.ErrGoodsExist, http.StatusConflict, "goods-exist", "The item exists already"},
		{stock.ErrStockLimit, http.StatusConflict, "stock-limit", "The stock would exceed its limit"},
		{stock.ErrApart, http.StatusConflict, "items-apart", "The items are not sold together"},
		{stock.ErrBelowZero, http.StatusConflict, "below-zero", "Fewer units can be sold"},
		{stock.ErrKeyReused, http.StatusUnprocessableEntity, "key-reused", "The idempotency key was used for another request"},
		{service.ErrUnknownStrategy, http.StatusBadRequest, "unknown-strategy", "Unknown strategy"},
		{service.ErrStrategyRejected, http.StatusForbidden, "strategy-refused", "The strategy is not available here"},
		{service.ErrChoiceRejected, http.StatusForbidden, "choice-refused", "The strategy cannot be chosen by requests"},
		{stock.ErrUnknownOutcome, unavailable, "outcome-unknown", "The outcome is unknown"},
		{stock.ErrFenced, unavailable, "fenced", "A later holder of the lock wrote first"},
		{stock.ErrLeaseLost, unavailable, "lease-lost", "The lock was lost before the write"},
		{stock.ErrBusy, unavailable, busy, "Too busy, try again"},
		{stock.ErrBackendUnavailable, unavailable, "backend-unavailable", "A backend is unavailable"},
		{context.DeadlineExceeded, unavailable, busy, "Too busy, try again"},
		{context.Canceled, statusClientGone, "client-gone", "The client disconnected"},
	} {
		if errors.Is(err, kind.err) {
			return newProblem(kind.status, kind.slug, kind.title), true
		}
	}
	return newProblem(http.StatusInternalServerError, "internal", "Internal error"), false
}

// problemOf is the problem that a client gets for an error. An error that is not in the map is
// an internal error, whose text stays in the log.
func problemOf(err error) problem {
	if p, ok := errors.AsType[problem](err); ok {
		return p
	}
	if errors.Is(err, service.ErrSeveralBuyers) {
		return invalid(fieldError{"user_id", "is missing; several buyers have orders under this request_id"})
	}
	p, known := kindOf(err)
	if !known {
		return p
	}
	p.Detail = err.Error()
	if backend, ok := errors.AsType[*stock.BackendError](err); ok {
		p.Backend, p.Detail = backend.Backend, backend.Summary() // where and how is for the log
	}
	if lacks, ok := errors.AsType[*service.UnconfiguredError](err); ok {
		p.Backend = lacks.Backend
	}
	if limit, ok := errors.AsType[*stock.UserLimitError](err); ok {
		p.PerUser, p.Has = limit.PerUser, &limit.Has
	}
	if limit, ok := errors.AsType[*stock.HoldLimitError](err); ok {
		p.MaxHeld, p.Has = limit.MaxHeld, &limit.Has
	}
	if early, ok := errors.AsType[*stock.NotStartedError](err); ok {
		p.StartsIn, p.retryAfter = early.In.Seconds(), strconv.Itoa(int(math.Ceil(early.In.Seconds())))
	}
	if below, ok := errors.AsType[*stock.BelowZeroError](err); ok {
		p.Stock, p.Held, p.Sold = &below.Stock, &below.Held, &below.Sold
	}
	return p
}

func invalid(errs ...fieldError) problem { return invalidAnd(0, errs...) }

// invalidAnd is invalid for a request with more wrong fields than are named.
func invalidAnd(more int, errs ...fieldError) problem {
	p := newProblem(http.StatusBadRequest, "invalid-request", "The request is not valid")
	p.Errors, p.MoreErrors = errs, more
	p.Detail = errs[0].Field + " " + errs[0].Error
	if others := more + len(errs) - 1; others > 0 {
		p.Detail += fmt.Sprintf(" (and %d more)", others)
	}
	return p
}

func newProblem(status int, slug, title string) problem {
	return problem{Type: TypePrefix + slug, Title: title, Status: status}
}

func (p problem) detail(format string, args ...any) problem {
	p.Detail = fmt.Sprintf(format, args...)
	return p
}

// Error makes a problem an error, so that any layer of this package can return one.
func (p problem) Error() string { return p.Title + ": " + p.Detail }

func answer(c *gin.Context, err error) {
	p := problemOf(err)
	p.Instance = instancePrefix + requestID(c)
	noteProblem(c, p.Type)
	if p.Status == http.StatusServiceUnavailable {
		p.retryAfter = cmp.Or(p.retryAfter, retryAfter())
	}
	if p.retryAfter != "" {
		c.Header("Retry-After", p.retryAfter)
	}
	if p.authenticate != "" {
		c.Header("WWW-Authenticate", p.authenticate)
	}
	neverStored(c)
	c.Header("Idempotency-Replayed", "")          // what was sold before is not the answer
	c.Header("X-Content-Type-Options", "nosniff") // a problem quotes the request
	body, err := json.Marshal(p)
	if err != nil { // impossible: strings and numbers
		panic(err)
	}
	c.Abort()
	c.Data(p.Status, problemType, append(body, '\n'))
}

// Answer is an answer of HTTP/1.1 with a problem for a connection whose request no route gets. Of the statuses of net/http
// 431 is kept, as the balancer has it, and 503 is busy; any other is an invalid request. An empty reason is the
// status's own. It ends the connection.
func Answer(status int, reason string) []byte {
	reason = cmp.Or(reason, strings.ToLower(http.StatusText(status)))
	p, retry := newProblem(http.StatusBadRequest, "invalid-request", "The request is not valid"), ""
	switch status {
	case http.StatusServiceUnavailable:
		p, retry = problemOf(stock.ErrBusy), "Retry-After: "+retryAfter()+"\r\n"
	case http.StatusRequestHeaderFieldsTooLarge:
		p = newProblem(status, "header-too-large", "The header is too large")
	}
	body, err := json.Marshal(p.detail("%s", reason))
	if err != nil { // impossible: strings and numbers
		panic(err)
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s\n",
		p.Status, http.StatusText(p.Status), problemType, retry, len(body)+1, body)
}

// jitter spreads the retries of clients that were rejected together, in seconds.
const jitter = 3

// retryAfter is how many seconds a client is asked to wait.
func retryAfter() string { return strconv.Itoa(1 + rand.N(jitter)) }

func unauthorized() problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "A valid bearer token is required")
	p.authenticate = `Bearer realm="stockd"`
	return p
}
