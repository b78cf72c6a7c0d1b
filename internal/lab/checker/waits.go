package checker

import (
	"cmp"
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
	return func(h *history.History) (waits []time.Duration) {
		for _, r := range h.Requests {
			switch {
			case len(clients) > 0 && !slices.Contains(clients, r.Client):
			case r.Outcome == history.Sold:
				waits = append(waits, r.Wait)
			default:
				waits = append(waits, r.End.Sub(r.Start))
			}
		}
		return waits
	}
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
	return waited(of, []Fact{Say("at-least", d)}, func(seen Distribution) bool { return seen.Longest >= d })
}

// WaitedAtMost expects that none of the waits was longer than d.
func WaitedAtMost(d time.Duration, of Waits) Check {
	return waited(of, []Fact{Say("at-most", d)}, func(seen Distribution) bool { return seen.Longest <= d })
}

// WaitedBetween expects that the longest of the waits was neither shorter than least nor longer than most.
func WaitedBetween(least, most time.Duration, of Waits) Check {
	return waited(of, []Fact{Say("between", least, most)}, func(seen Distribution) bool { return seen.Longest >= least && seen.Longest <= most })
}

// Unfair expects that the longest of the waits was so many times as long as the
// median, or longer.
func Unfair(times float64, of Waits) Check {
	return waited(of, []Fact{Say("at-least-times", fmt.Sprintf("%.1f", times))}, func(seen Distribution) bool { return seen.Unfairness() >= times })
}

// InTurn expects that no wait for a lease was overtaken by more than so many that began
// later. Those that ask at the same moment come in any order: that is up to as many as there are
// contenders, and twice as many where one of them is slow to send.
func InTurn(most int) Check {
	return func(h *history.History) Finding {
		worst, end := 0, endOf(h)
		for _, l := range h.Leases {
			worst = max(worst, overtakers(h, l, waitedUntil(h, l, end)))
		}
		if len(h.Leases) == 0 {
			return inconclusive("no-lease-asked")
		}
		return Found(worst <= most, map[string]float64{"most_overtakers": float64(worst)}, Say("overtaken", worst), Say("at-most", most))
	}
}

// overtakers counts the grants of a lease's name, until its wait was over, to those who had
// asked after it.
func overtakers(h *history.History, l history.Lease, until time.Time) int {
	return count(h.Leases, func(other history.Lease) bool {
		return compare(other, l) == 0 && other.Asked.After(l.Asked) && !other.Granted.IsZero() && other.Granted.Before(until)
	})
}

// Waited expects that there were waits, and tells how they were distributed.
func Waited(of Waits) Check {
	return waited(of, nil, func(Distribution) bool { return true })
}

// waited is a check of waits. It does not hold where there are none.
func waited(of Waits, expected []Fact, judge func(seen Distribution) bool) Check {
	return func(h *history.History) Finding {
		seen := Distribute(of(h))
		if seen.Waits == 0 {
			return inconclusive("no-wait")
		}
		says := Say("waits", seen.Waits, seen.Longest, fmt.Sprintf("%.1f", seen.Unfairness()), seen.P50)
		return Found(judge(seen), map[string]float64{
			"waits": float64(seen.Waits), "p50_wait_ms": ms(seen.P50), "p99_wait_ms": ms(seen.P99),
			"longest_wait_ms": ms(seen.Longest), "longest_to_median": seen.Unfairness(),
		}, append([]Fact{says}, expected...)...)
	}
}

// Deadlocked expects that a name was granted to no client for d or longer after
// its holder took it, or died with it, although some contender, one after another, was
// waiting for it for so long. Choose d longer than any holder works under the lock: a holder at work keeps
// others waiting too.
func Deadlocked(d time.Duration) Check {
	return func(h *history.History) Finding {
		found := stalls(h)
		if len(found) == 0 {
			return inconclusive("no-grant")
		}
		longest := slices.MaxFunc(found, func(a, b stall) int { return cmp.Compare(a.waited, b.waited) })
		code := "stalled-by-holder"
		if longest.died {
			code = "stalled-by-death"
		}
		says := Say(code, longest.Name, longest.until.Sub(longest.since), longest.Holder, longest.waited)
		return Found(longest.waited >= d, map[string]float64{"longest_deadlock_ms": ms(longest.waited)}, says, Say("exactly", d))
	}
}

// Freed expects that each name whose holder died was granted anew within a time after that.
func Freed(within time.Duration) Check { return FreedBetween(0, within) }

// FreedBetween expects that each name whose holder died was granted anew after that, neither
// sooner than least nor later than most.
func FreedBetween(least, most time.Duration) Check {
	return func(h *history.History) Finding {
		found := slices.DeleteFunc(stalls(h), func(s stall) bool { return !s.died })
		if len(found) == 0 {
			return inconclusive("no-death")
		}
		freed := 0
		first, last := found[0].until.Sub(found[0].since), time.Duration(0)
		for _, s := range found {
			after := s.until.Sub(s.since)
			first, last = min(first, after), max(last, after)
			if s.granted && after >= least && after <= most {
				freed++
			}
		}
		return Found(freed == len(found), map[string]float64{
			"died_holders": float64(len(found)), "freed_holders": float64(freed),
			"soonest_freed_ms": ms(first), "longest_freed_ms": ms(last),
		}, Say("freed", len(found), freed, least, most), Say("longest-took", last))
	}
}

// stall is the time from a grant, or from the death of the holder, to the next
// grant of the same name, or to the end of the history.
type stall struct {
	holding
	since, until time.Time
	granted      bool          // there was a next grant
	waited       time.Duration // how much of the time a contender waited
}

// stalls are those of all leases that were granted. A lease that was followed by
// another before its holder died blocked no contender by that.
func stalls(h *history.History) (all []stall) {
	end := endOf(h)
	for _, holdings := range holdingsOf(h) {
		asked := askedInOrder(h, holdings[0].Lease)
		for i, one := range holdings {
			s := stall{holding: one, since: one.from, until: end}
			if one.died {
				s.since = one.to
			}
			if i+1 < len(holdings) {
				s.until, s.granted = holdings[i+1].from, true
			}
			if s.until.Before(s.since) {
				continue
			}
			s.waited = waitedBetween(h, asked, s.since, s.until)
			all = append(all, s)
		}
	}
	return all
}

// waitedBetween is for how much of a time a contender was waiting for a name, which was
// asked for in this order.
func waitedBetween(h *history.History, asked []history.Lease, since, until time.Time) (sum time.Duration) {
	covered := since
	for _, l := range asked {
		if l.Asked.After(until) {
			break
		}
		from, to := l.Asked, waitedUntil(h, l, until)
		if from.Before(covered) {
			from = covered
		}
		if to.After(until) {
			to = until
		}
		if to.After(from) {
			sum += to.Sub(from)
			covered = to
		}
	}
	return sum
}

// askedInOrder are the leases that exclude one, and itself, in the order in which they were asked for.
func askedInOrder(h *history.History, one history.Lease) []history.Lease {
	leases := slices.DeleteFunc(slices.Clone(h.Leases), func(l history.Lease) bool { return compare(l, one) != 0 })
	slices.SortStableFunc(leases, func(a, b history.Lease) int { return a.Asked.Compare(b.Asked) })
	return leases
}
