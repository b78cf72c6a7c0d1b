package handler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// An error may be of several kinds. No client gets an answer that says nothing happened where
// that is not known, nor that it may simply try again where it has lost its lock.
func TestAnErrorOfSeveralKindsIsTheOneThatSaysLeast(t *testing.T) {
	backend := &stock.BackendError{Backend: "mysql", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		kinds []error
		want  string
	}{
		{[]error{stock.ErrBusy, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrLeaseLost, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrFenced, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{backend, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{context.DeadlineExceeded, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrBusy, stock.ErrLeaseLost}, "lease-lost"},
		{[]error{context.Canceled, stock.ErrLeaseLost}, "lease-lost"},
		{[]error{context.DeadlineExceeded, backend}, "backend-unavailable"},
	} {
		got := problemOf(fmt.Errorf("sell: %w", errors.Join(c.kinds...)))
		should.Be(t, got.Type, TypePrefix+c.want, c.kinds, c.want)
	}
}

// Which backend fails is for the client, where and how is not.
func TestABackendThatFailsIsNamedAndNotQuoted(t *testing.T) {
	for why, want := range map[stock.Rejection]string{"": "mysql does not answer", stock.ReadOnly: "mysql rejects writes: it is read-only"} {
		got := problemOf(fmt.Errorf("sell: %w", &stock.BackendError{Backend: "mysql", Rejects: why, Err: errors.New("dial 10.0.0.7:3306: refused")}))
		if got.Status != 503 || got.Type != TypePrefix+"backend-unavailable" || got.Backend != "mysql" || got.Detail != want {
			t.Errorf("it is answered with %+v, want %q", got, want)
		}
	}
}

// Clients that are rejected together do not return together.
func TestRetryAfterHasJitter(t *testing.T) {
	seen := make(map[string]int)
	for range 200 {
		seen[retryAfter()]++
		seen["of a rate: "+tooOften("it asks", 1200*time.Millisecond).retryAfter]++
	}
	for _, want := range []string{"1", "2", "3", "of a rate: 2", "of a rate: 3", "of a rate: 4"} {
		if seen[want] == 0 {
			t.Errorf("of 200 none is %s: %v", want, seen)
		}
	}
	should.Be(t, len(seen), 6, "Retry-After", seen)
}
