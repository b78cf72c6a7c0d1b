package metrics

import (
	"context"
	"errors"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// The outcomes of a deduction that are told apart.
const (
	accepted = "accepted"
	replayed = "replayed"
	failed   = "failed" // by a mistake of ours
)

// refusal is an outcome and the error that it stands for.
type refusal struct {
	outcome string
	is      error
}

// refusals is the one map from an error to an outcome, the most specific first:
// an unknown outcome is also a failure of its backend.
func refusals() []refusal {
	return []refusal{
		{"sold-out", stock.ErrInsufficientStock},
		{"user-limit", stock.ErrUserLimit},
		{"user-missing", stock.ErrUserUnknown},
		{"stock-limit", stock.ErrStockLimit},
		{"unknown-goods", stock.ErrUnknownGoods},
		{"key-reused", stock.ErrKeyReused},
		{"not-configured", backend.ErrNotConfigured},
		{"unknown", stock.ErrUnknownOutcome},
		{"fenced", stock.ErrFenced},
		{"lease-lost", stock.ErrLeaseLost},
		{"busy", stock.ErrBusy},
		{"backend-failure", stock.ErrBackendUnavailable},
		{"busy", context.DeadlineExceeded},
		{"cancelled", context.Canceled},
	}
}

// outcomes lists every outcome there is.
func outcomes() []string {
	kinds := refusals()
	list := make([]string, 0, len(kinds)+3)
	list = append(list, accepted, replayed, failed)
	for _, r := range kinds {
		list = append(list, r.outcome)
	}
	return list
}

func outcomeOf(o stock.Outcome, err error) string {
	if err == nil {
		err = o.Refused
	}
	if err == nil {
		if o.Replayed {
			return replayed
		}
		return accepted
	}
	for _, r := range refusals() {
		if errors.Is(err, r.is) {
			return r.outcome
		}
	}
	return failed
}
