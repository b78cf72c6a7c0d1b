package checker

import (
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Waits picks the waits of a history that a check is about.
type Waits func(h *history.History) []time.Duration

// OfClients picks the waits of the requests of some clients, or of all where none
// is named. A sale's answer says how long it waited for its lock; any other
// request waited from its start to its end.
func OfClients(clients ...int) Waits {
	return ofRequests(func(r history.Request) bool { return len(clients) == 0 || slices.Contains(clients, r.Client) })
}

// OfOutcomes picks the waits of the requests that came to this.
func OfOutcomes(outcomes ...history.Outcome) Waits {
	return ofRequests(func(r history.Request) bool { return slices.Contains(outcomes, r.Outcome) })
}

// OfStrategy picks the waits of the requests to a strategy.
func OfStrategy(name string) Waits {
	return ofRequests(func(r history.Request) bool { return r.Strategy == name })
}

func ofRequests(where func(r history.Request) bool) Waits {
	return func(h *history.History) (waits []time.Duration) {
		for _, r := range h.Requests {
			if where(r) {
				waits = append(waits, waitOf(r))
			}
		}
		return waits
	}
}

func waitOf(r history.Request) time.Duration {
	if r.Outcome == history.Sold {
		return r.Wait
	}
	return r.End.Sub(r.Start)
}

// OfHolders picks the waits for leases of some holders, or of all where none is
// named: until the grant, until the holder gave up or died, or to the end of the
// history.
func OfHolders(holders ...string) Waits {
	return func(h *history.History) (waits []time.Duration) {
		end := endOf(h)
		for _, l := range h.Leases {
			if len(holders) == 0 || slices.Contains(holders, l.Holder) {
				waits = append(waits, waitedUntil(h, l, end).Sub(l.Asked))
			}
		}
		return waits
	}
}

// waitedUntil is when the wait for a lease was over.
func waitedUntil(h *history.History, l history.Lease, end time.Time) time.Time {
	for _, at := range []time.Time{l.Granted, l.GaveUp, deathOf(h, l.Holder, l.Asked)} {
		if !at.IsZero() {
			return at
		}
	}
	return end
}

// Distribution is what many waits come to. The percentiles are waits that were
// seen: so many in a hundred were not longer.
type Distribution struct {
	Waits             int
	P50, P99, Longest time.Duration
}

// Distribute sums up waits.
func Distribute(waits []time.Duration) Distribution {
	if len(waits) == 0 {
		return Distribution{}
	}
	sorted := slices.Sorted(slices.Values(waits))
	at := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
	return Distribution{Waits: len(sorted), P50: at(50), P99: at(99), Longest: sorted[len(sorted)-1]}
}

// Unfairness is how many times as long as the median the longest wait was. A
// median below a microsecond counts as one.
func (d Distribution) Unfairness() float64 {
	if d.Waits == 0 {
		return 0
	}
	return float64(d.Longest) / float64(max(d.P50, time.Microsecond))
}

// WaitedAtLeast expects that the longest of the waits was d or longer.
func WaitedAtLeast(d time.Duration, of Waits) Check {
	return waited(of, "at least "+span(d)+" was expected", func(seen Distribution) bool { return seen.Longest >= d })
}

// WaitedAtMost expects that none of the waits was longer than d.
func WaitedAtMost(d time.Duration, of Waits) Check {
	return waited(of, "at most "+span(d)+" was expected", func(seen Distribution) bool { return seen.Longest <= d })
}

// Unfair expects that the longest of the waits was so many times as long as the
// median, or longer.
func Unfair(times float64, of Waits) Check {
	return waited(of, fmt.Sprintf("at least %.1f times was expected", times), func(seen Distribution) bool { return seen.Unfairness() >= times })
}

// Fair expects that the longest of the waits was no more than so many times as
// long as the median.
func Fair(times float64, of Waits) Check {
	return waited(of, fmt.Sprintf("at most %.1f times was expected", times), func(seen Distribution) bool { return seen.Unfairness() <= times })
}

// Waited expects that there were waits, and tells how they were distributed.
func Waited(of Waits) Check {
	return waited(of, "", func(Distribution) bool { return true })
}

// waited is a check of waits. It does not hold where there are none.
func waited(of Waits, expected string, judge func(seen Distribution) bool) Check {
	return func(h *history.History) Finding {
		seen := Distribute(of(h))
		if seen.Waits == 0 {
			return inconclusive("no request waited")
		}
		says := fmt.Sprintf("the longest of %s took %s, %.1f times the median of %s", count(seen.Waits, "wait"),
			span(seen.Longest), seen.Unfairness(), span(seen.P50))
		if expected != "" {
			says += "; " + expected
		}
		return Finding{Holds: judge(seen), Says: says, Numbers: map[string]float64{
			"waits": float64(seen.Waits), "p50_wait_ms": ms(seen.P50), "p99_wait_ms": ms(seen.P99),
			"longest_wait_ms": ms(seen.Longest), "longest_to_median": seen.Unfairness(),
		}}
	}
}
