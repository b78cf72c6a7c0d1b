package checker

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// RefusedWithin expects that at least one contender gave up because another holder
// had the name, and that each of them gave up within this time.
func RefusedWithin(d time.Duration) Check {
	return func(h *history.History) Finding {
		var rejected, late int
		var longest time.Duration
		for _, l := range h.Leases {
			if l.GaveUp.IsZero() || !heldByAnother(h, l) {
				continue
			}
			rejected++
			took := l.GaveUp.Sub(l.Asked)
			longest = max(longest, took)
			if took > d {
				late++
			}
		}
		return Finding{
			Holds: rejected > 0 && late == 0,
			Says: fmt.Sprintf("%s gave up while another had the lock, %d of them later than %s; the longest took %s",
				count(rejected, "contender"), late, span(d), span(longest)),
			Numbers: map[string]float64{"refused_tries": float64(rejected), "longest_refused_try_ms": ms(longest)},
		}
	}
}

// heldByAnother tells whether another holder had the name when this one gave up.
func heldByAnother(h *history.History, gaveUp history.Lease) bool {
	for _, l := range h.Leases {
		same := l.Name == gaveUp.Name && l.Lock == gaveUp.Lock && l.Holder != gaveUp.Holder
		if same && !l.Granted.IsZero() && l.Granted.Before(gaveUp.GaveUp) && (l.End().IsZero() || l.End().After(gaveUp.GaveUp)) {
			return true
		}
	}
	return false
}
