package metrics

import (
	"context"
	"errors"

	"github.com/stockd/stockd/internal/stock"
)

// The outcomes that are not rejections.
const (
	accepted = "accepted"
	replayed = "replayed"
	failed   = "failed" // an internal error
)

// rejection is an outcome and its error.
type rejection struct {
	outcome string
	err     error
}

// rejections maps errors to outcomes, the most specific first: an unknown outcome is also a
// failure of its backend.
func rejections() []rejection {
	return []rejection{
		{"sold-out", stock.ErrInsufficientStock},
		{"sale-closed", stock.ErrSaleClosed},
		{"sale-not-started", stock.ErrSaleNotStarted},
		{"user-limit", stock.ErrUserLimit},
		{"hold-limit", stock.ErrHoldLimit},
		{"user-missing", stock.ErrUserUnknown},
		{"stock-limit", stock.ErrStockLimit},
		{"unknown-goods", stock.ErrUnknownGoods},
		{"key-reused", stock.ErrKeyReused},
		{"unknown", stock.ErrUnknownOutcome},
		{"fenced", stock.ErrFenced},
		{"lease-lost", stock.ErrLeaseLost},
		{"busy", stock.ErrBusy},
		{"backend-failure", stock.ErrBackendUnavailable},
		{"busy", context.DeadlineExceeded},
		{"cancelled", context.Canceled},
	}
}

func outcomes() []string {
	kinds := rejections()
	list := append(make([]string, 0, 3+len(kinds)), accepted, replayed, failed)
	for _, r := range kinds {
		list = append(list, r.outcome)
	}
	return list
}

func outcomeOf(o stock.Outcome, err error) string {
	if err == nil {
		err = o.Rejected
	}
	if err == nil {
		if o.Replayed {
			return replayed
		}
		return accepted
	}
	for _, r := range rejections() {
		if errors.Is(err, r.err) {
			return r.outcome
		}
	}
	return failed
}
