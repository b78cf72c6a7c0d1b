package checker

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// TakenEarly expects that a name was granted to a contender while another held it
// whose lease could not have run out yet: it must have been taken away.
func TakenEarly(ttl time.Duration) Check {
	return early(ttl, func(_, taken int) bool { return taken > 0 })
}

// NeverTakenEarly expects that no contender was granted a name while the lease of
// another was good. It needs two leases of one name to hold.
func NeverTakenEarly(ttl time.Duration) Check {
	return early(ttl, func(leases, taken int) bool { return leases > 1 && taken == 0 })
}

// A lease is asked for before it is granted, and the server counts from somewhere
// in between: what comes within a tenth of the time from its end may be due to
// that.
const tolerance = 10

func early(ttl time.Duration, judge func(leases, taken int) bool) Check {
	return func(h *history.History) Finding {
		leases, taken := 0, 0
		for _, holdings := range holdingsOf(h) {
			leases += len(holdings)
			for _, o := range overlapping(holdings) {
				if o.From.Sub(o.A.Granted) < ttl-ttl/tolerance {
					taken++
				}
			}
		}
		return Finding{
			Holds: judge(leases, taken),
			Says: fmt.Sprintf("%d of %s began while another was held that was good for %s and had begun less than that before",
				taken, count(leases, "lease"), span(ttl)),
			Numbers: map[string]float64{"leases_taken_early": float64(taken)},
		}
	}
}
