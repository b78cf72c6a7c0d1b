package checker

import (
	"fmt"

	"github.com/stockd/stockd/internal/lab/history"
)

// LockedItselfOut expects that a holder asked for a name that it held, and did
// not get it.
func LockedItselfOut() Check {
	return reentry(func(_, rejected int) bool { return rejected > 0 })
}

// Reentered expects that a holder asked for a name that it held, and got it each
// time.
func Reentered() Check {
	return reentry(func(got, rejected int) bool { return got > 0 && rejected == 0 })
}

func reentry(judge func(got, rejected int) bool) Check {
	return func(h *history.History) Finding {
		var got, rejected int
		for _, holdings := range holdingsOf(h) {
			for _, again := range askedInOrder(h, locked{holdings[0].Name, holdings[0].Lock}) {
				if !heldAlready(holdings, again) {
					continue
				}
				if again.Granted.IsZero() {
					rejected++
				} else {
					got++
				}
			}
		}
		return Finding{
			Holds:   judge(got, rejected),
			Says:    fmt.Sprintf("of %s that a holder asked for once more, %d were granted", count(got+rejected, "lease"), got),
			Numbers: map[string]float64{"reentered": float64(got), "locked_out": float64(rejected)},
		}
	}
}

// heldAlready tells whether a lease was asked for by a holder of another one of
// the same name at that time.
func heldAlready(holdings []holding, l history.Lease) bool {
	for _, one := range holdings {
		if one.ID != l.ID && one.Holder == l.Holder && !one.from.After(l.Asked) && one.to.After(l.Asked) {
			return true
		}
	}
	return false
}
