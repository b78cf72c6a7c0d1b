package live

import (
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// The bounds of what is kept of one lease: the newest.
const (
	mostRenewals = 40
	mostVotes    = 25
	mostWakes    = 40
	mostSteps    = 60
)

// Renewal is a renewal of a lease by its watchdog.
type Renewal struct {
	At Millis `json:"at"`
	// Until is when the lease expires by it; 0: it failed.
	Until Millis `json:"until,omitempty"`
	// Left is what was left of the lease when it began, in milliseconds.
	Left  float64 `json:"left"`
	Error string  `json:"error,omitempty"`
}

// Vote is the answer of one of several masters.
type Vote struct {
	At     Millis  `json:"at"`
	Took   float64 `json:"took"` // in milliseconds
	Master string  `json:"master"`
	// What is voted-for, voted-against or no-vote.
	What history.EventKind `json:"what"`
}

// Wake is a waiter that looked again.
type Wake struct {
	At Millis `json:"at"`
	By string `json:"by"`
}

// Step is a part of a request; see history.Step.
type Step struct {
	At    Millis           `json:"at"`
	Took  float64          `json:"took"` // in milliseconds
	What  history.StepKind `json:"what"`
	Of    string           `json:"of,omitempty"`
	Error string           `json:"error,omitempty"`
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// granted takes what the grant says of key and expiry.
func (l *Lease) granted(at time.Time, key string, ttl time.Duration, expires time.Time) {
	l.Granted, l.Key, l.TTL = millis(at), key, inMillis(ttl)
	if ttl > 0 {
		l.Expires = millis(expires)
	}
}

// note takes what the lock itself told of the lease, and reports whether that is what the event is.
// Lists are copied, because older forms of the lease are still being sent.
func (l *Lease) note(e history.Event) bool {
	switch at := millis(e.At); e.What {
	case history.Renewed:
		l.Renewals = appended(l.Renewals, mostRenewals, Renewal{At: at, Until: millis(e.At.Add(e.TTL)), Left: inMillis(e.Left)})
	case history.NotRenewed:
		l.Renewals = appended(l.Renewals, mostRenewals, Renewal{At: at, Left: inMillis(e.Left), Error: e.Error})
	case history.VotedFor, history.VotedAgainst, history.NoVote:
		l.Votes = appended(l.Votes, mostVotes, Vote{At: at, Took: inMillis(e.Took), Master: e.By, What: e.What})
	case history.Woken:
		l.Woken++
		l.Wakes = appended(l.Wakes, mostWakes, Wake{At: at, By: e.By})
	default:
		return false
	}
	return true
}

// traced takes the steps of the request that asked for the lease.
func (l *Lease) traced(t history.Trace) {
	l.Steps = nil
	for _, s := range t.Steps {
		l.Steps = append(l.Steps, Step{At: millis(s.At), Took: inMillis(s.Took), What: s.What, Of: s.Of, Error: s.Error})
	}
	l.Steps = bounded(l.Steps, mostSteps)
}

// appended is a new list with one more, and the last so many.
func appended[T any](list []T, most int, one T) []T {
	from := max(0, len(list)+1-most)
	return append(append(make([]T, 0, len(list)+1-from), list[from:]...), one)
}
