package history

import "time"

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

// start is when the first step began.
func (t Trace) start() (first time.Time) {
	for _, s := range t.Steps {
		if first.IsZero() || s.At.Before(first) {
			first = s.At
		}
	}
	return first
}
