package check

import (
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Died is when the holder of a lease is marked as Crashed or Killed after it was
// granted, or zero where it never is.
func Died(h *history.History, l history.Lease) time.Time { return deathOf(h, l.Holder, l.Granted) }
