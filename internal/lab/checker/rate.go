package checker

import (
	"fmt"

	"github.com/stockd/stockd/internal/lab/history"
)

// Faster expects more sales a second through one strategy than so many times
// those through another, in one history.
func Faster(fast, slow string, times float64) Check {
	return func(h *history.History) Finding {
		a, b := rate(h, fast), rate(h, slow)
		f := Finding{Numbers: map[string]float64{snake(fast) + "_sales_per_s": a, snake(slow) + "_sales_per_s": b}}
		if a == 0 || b == 0 {
			f.Says = fmt.Sprintf("nothing to compare: %.0f sales a second through %s, %.0f through %s", a, fast, b, slow)
			return f
		}
		f.Numbers["ratio"] = a / b
		f.Holds = a > times*b
		f.Says = fmt.Sprintf("%.0f sales a second through %s, %.0f through %s: %.2f times as many", a, fast, b, slow, a/b)
		return f
	}
}

// rate is how many a second were sold through a strategy, from the first request
// to the last answer.
func rate(h *history.History, strategy string) float64 {
	var sold float64
	var first, last history.Request
	for _, r := range h.Requests {
		if r.Strategy != strategy {
			continue
		}
		if first.Start.IsZero() || r.Start.Before(first.Start) {
			first = r
		}
		if r.End.After(last.End) {
			last = r
		}
		if r.Outcome == history.Sold {
			sold++
		}
	}
	if sold == 0 {
		return 0
	}
	return sold / last.End.Sub(first.Start).Seconds()
}
