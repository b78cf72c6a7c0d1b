// Package history is the evidence of an experiment: what was asked and answered,
// which holder had which lock from when to when, and what was done to which server. It is written as
// JSON lines while the experiment runs, and everything that is concluded is
// concluded from the lines as they are read again.
package history

import (
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

// Line is one line of the file: one of its fields is set.
type Line struct {
	Request *Request `json:"request,omitempty"`
	Lease   *Event   `json:"lease,omitempty"`
	Mark    *Mark    `json:"mark,omitempty"`
	Audit   *Audit   `json:"audit,omitempty"`
	Sample  *Sample  `json:"sample,omitempty"`
	Figure  *Figure  `json:"figure,omitempty"`
	Trace   *Trace   `json:"trace,omitempty"`
}

// Request is one purchase as its buyer saw it.
type Request struct {
	// Start is when it was sent, End when the answer was there or given up.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Client tells buyers apart, from 0.
	Client   int    `json:"client"`
	Strategy string `json:"strategy"`
	GoodsID  int64  `json:"goods_id"`
	Quantity int64  `json:"quantity"`
	// Key is the Idempotency-Key that it was sent with, or empty.
	Key     string  `json:"key,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Problem is the last part of the problem's type where there was one.
	Problem string `json:"problem,omitempty"`
	Order   string `json:"order,omitempty"`
	// Remaining is what the answer says is left after this sale.
	Remaining int64  `json:"remaining"`
	Replica   string `json:"replica,omitempty"`
	Token     uint64 `json:"token,omitempty"`
	// Wait is for the lock, Hold under it, as the answer says.
	Wait time.Duration `json:"wait_ns"`
	Hold time.Duration `json:"hold_ns"`
}

// Outcome is what is known of a request's fate.
type Outcome string

// The outcomes.
const (
	Sold     Outcome = "sold"
	Rejected Outcome = "refused" // sold out
	Failed   Outcome = "failed"  // it is known that nothing happened; Problem says why
	Unknown  Outcome = "unknown" // no answer, or one that says so
)

// Event is one step in the life of a lease.
type Event struct {
	At time.Time `json:"at"`
	// ID is the lease's; it tells the leases of one file apart.
	ID string `json:"id"`
	// Name is what is locked, Holder which replica asks, or which contender of the
	// lab. A holder may have several leases, one after the other or at once.
	Name   string `json:"name"`
	Holder string `json:"holder"`
	Lock   string `json:"lock"`
	// Shared, where a lease is asked for: it excludes no other lease that is shared.
	Shared bool      `json:"shared,omitempty"`
	What   EventKind `json:"what"`
	Token  uint64    `json:"token,omitempty"`
	// Error says why a wait, a release, a renewal or a vote failed.
	Error string `json:"error,omitempty"`
	// Request is the id of the request that asked, or empty; see Trace.
	Request string `json:"request,omitempty"`

	// Key is the key or node that stands for a lease that was granted, where it has one.
	Key string `json:"key,omitempty"`
	// TTL is what the backend was asked for by the grant or the renewal, and Left what is
	// left of it at At; both are 0 where the lease does not end by itself.
	TTL  time.Duration `json:"ttl_ns,omitempty"`
	Left time.Duration `json:"left_ns,omitempty"`
	// Took is how long a renewal or a vote took, By what woke a waiter, or which master voted.
	Took time.Duration `json:"took_ns,omitempty"`
	By   string        `json:"by,omitempty"`
}

// EventKind is a step in the life of a lease.
type EventKind string

// The kinds of events, in the order in which they come.
const (
	Asked    EventKind = "asked"
	Granted  EventKind = "granted"
	GaveUp   EventKind = "gave-up" // was not granted
	Lost     EventKind = "lost"    // the holder was notified
	Released EventKind = "released"
)

// Notes are what a lock itself tells of a lease, in any order, also before it was granted
// and after it was released.
const (
	Renewed      = EventKind(lock.Renewed)
	NotRenewed   = EventKind(lock.NotRenewed)
	VotedFor     = EventKind(lock.VotedFor)
	VotedAgainst = EventKind(lock.VotedAgainst)
	NoVote       = EventKind(lock.NoVote)
	Woken        = EventKind(lock.Woken)
)

// Mark is something that the lab did, or that a replica reported having reached.
type Mark struct {
	At time.Time `json:"at"`
	// Until is the end of what lasts; zero for what happens at once.
	Until time.Time `json:"until,omitzero"`
	// Who it was done to: a replica, a server, or empty.
	Who  string `json:"who,omitempty"`
	What string `json:"what"`
}

// Audit is the audit of one item.
type Audit struct {
	At time.Time `json:"at"`
	stock.Audit
}

// Sample is the stock and the sales of one item at one time.
type Sample struct {
	At      time.Time `json:"at"`
	GoodsID int64     `json:"goods_id"`
	Stock   int64     `json:"stock"`
	Sold    int64     `json:"sold"`
}

// Figure is a number that the experiment measured by itself.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// History is all lines of one try, sorted by time.
type History struct {
	Requests []Request
	Leases   []Lease
	Marks    []Mark
	Audits   []Audit
	Samples  []Sample
	Figures  map[string]float64
	Traces   []Trace
}

// Extent is from the first to the last event, audits excepted.
func (h *History) Extent() (from, to time.Time) {
	add := func(times ...time.Time) {
		for _, t := range times {
			if !t.IsZero() && (from.IsZero() || t.Before(from)) {
				from = t
			}
			if t.After(to) {
				to = t
			}
		}
	}
	for _, r := range h.Requests {
		add(r.Start, r.End)
	}
	for _, l := range h.Leases {
		add(l.Asked, l.Granted, l.GaveUp, l.Lost, l.Released)
	}
	for _, m := range h.Marks {
		add(m.At, m.Until)
	}
	for _, s := range h.Samples {
		add(s.At)
	}
	return from, to
}

// Lease is what the events of one lease come to.
type Lease struct {
	ID, Name, Holder, Lock string
	Token                  uint64
	// Shared leases do not exclude each other.
	Shared bool
	// Asked is always set; the others are zero where it did not come to that. A
	// lease that was granted and has no End belonged to a holder that died, or
	// that still had it when the history ended.
	Asked, Granted, GaveUp, Lost, Released time.Time
	Error                                  string
	// Request is the id of the request that asked, or empty.
	Request string
	// Key is the key or node that stood for it in the backend, or empty.
	Key string
	// TTL is what the backend was asked for by the grant and by each renewal; 0 where the
	// lease lives in a session, or never ends by itself. Expires is one TTL after the grant was
	// asked for.
	TTL     time.Duration
	Expires time.Time
	// Notes are its renewals, votes and wake-ups, in the order of time.
	Notes []Event
}

// ExpiresAt is when the backend ends the lease, by what the last successful renewal before a
// time says; zero where it does not by itself.
func (l Lease) ExpiresAt(at time.Time) time.Time {
	if l.TTL == 0 {
		return time.Time{}
	}
	end := l.Expires
	for _, n := range l.Notes {
		if n.What == Renewed && !n.At.After(at) {
			end = n.At.Add(n.TTL)
		}
	}
	return end
}

// Outlived is when the TTL was over of a lease that its holder still had, or never ended; zero
// where that did not happen.
func (l Lease) Outlived() time.Time {
	last := l.End()
	if last.IsZero() && len(l.Notes) > 0 {
		last = l.Notes[len(l.Notes)-1].At
	}
	expires := l.ExpiresAt(last)
	if end := l.End(); !end.IsZero() && !expires.Before(end) {
		return time.Time{}
	}
	return expires
}

// End is when the holder knew that the lease had ended: by its loss or by its
// release, whichever came first.
func (l Lease) End() time.Time {
	if l.Lost.IsZero() || !l.Released.IsZero() && l.Released.Before(l.Lost) {
		return l.Released
	}
	return l.Lost
}

// Trace is the steps of one request within its replica. Of very many requests only some are
// traced.
type Trace struct {
	// Request is the request's id, which its leases have as well.
	Request string `json:"request"`
	Replica string `json:"replica"`
	Steps   []Step `json:"steps"`
}

// Step is a part of a request that took time. Steps may lie within each other.
type Step struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took_ns"`
	What StepKind      `json:"what"`
	// Of is the statement's verb and table, or the command of the server.
	Of string `json:"of,omitempty"`
	// Error is the kind of its failure, or empty.
	Error string `json:"error,omitempty"`
}

// End is when the step was over.
func (s Step) End() time.Time { return s.At.Add(s.Took) }

// StepKind is what is done in a step.
type StepKind string

// The kinds of steps.
const (
	StepPurchase StepKind = "purchase" // all of it
	StepAcquire  StepKind = "acquire"  // the wait for the lock
	StepConnect  StepKind = "connect"  // the wait for a connection, where it is new
	StepBegin    StepKind = "begin"
	StepRead     StepKind = "read"
	StepWork     StepKind = "work" // what the lab adds between read and write
	StepWrite    StepKind = "write"
	StepCommit   StepKind = "commit"
	StepRollback StepKind = "rollback"
	StepRelease  StepKind = "release"
	StepCommand  StepKind = "command" // of Redis
	StepOther    StepKind = "other"
)

// End is when the last step was over.
func (t Trace) End() (last time.Time) {
	for _, s := range t.Steps {
		if s.End().After(last) {
			last = s.End()
		}
	}
	return last
}

// Start is when the first step began.
func (t Trace) Start() (first time.Time) {
	for _, s := range t.Steps {
		if first.IsZero() || s.At.Before(first) {
			first = s.At
		}
	}
	return first
}
