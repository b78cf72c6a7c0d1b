package checker

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// busy is the problem of a request that did not get its lock in time.
const busy = "busy"

// Busy expects that at least so many requests got "busy", each of them within a
// time.
func Busy(least int, within time.Duration) Check { return FailedWith(busy, least, within) }

// FailedWith expects that at least so many requests failed with a problem, and
// that each of these was answered within a time. The problem is the last part of
// its type.
func FailedWith(problem string, least int, within time.Duration) Check {
	return func(h *history.History) Finding {
		var failed int
		var longest time.Duration
		for _, r := range h.Requests {
			if r.Outcome == history.Failed && r.Problem == problem {
				failed++
				longest = max(longest, r.End.Sub(r.Start))
			}
		}
		name := snake(problem)
		return Finding{
			Holds: failed >= max(1, least) && longest <= within,
			Says: fmt.Sprintf("%d of %s failed with %s, after at most %s; %d or more within %s were expected",
				failed, count(len(h.Requests), "request"), problem, span(longest), max(1, least), span(within)),
			Numbers: map[string]float64{name + "_requests": float64(failed), "longest_" + name + "_ms": ms(longest)},
		}
	}
}

// Outcomes expects that at least so many requests came to this.
func Outcomes(of history.Outcome, least int) Check {
	return func(h *history.History) Finding {
		seen := 0
		for _, r := range h.Requests {
			if r.Outcome == of {
				seen++
			}
		}
		return Finding{
			Holds:   seen >= max(1, least),
			Says:    fmt.Sprintf("%d of %s came to %s; %d or more were expected", seen, count(len(h.Requests), "request"), of, max(1, least)),
			Numbers: map[string]float64{string(of) + "_requests": float64(seen)},
		}
	}
}
