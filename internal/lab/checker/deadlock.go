package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Deadlocked expects that a name was not granted to anybody for d or longer after
// its holder took it, or died with it, although a contender was waiting for it for so
// long. Choose d longer than anybody works under the lock: a holder at work keeps
// others waiting too.
func Deadlocked(d time.Duration) Check {
	return func(h *history.History) Finding {
		found := stalls(h)
		if len(found) == 0 {
			return inconclusive("no lease was granted")
		}
		longest := slices.MaxFunc(found, func(a, b stall) int { return cmp.Compare(a.waited, b.waited) })
		return Finding{
			Holds: longest.waited >= d,
			Says: fmt.Sprintf("no contender was granted %s for %s after %s %s, while one waited for %s of it; %s was expected",
				longest.Name, span(longest.until.Sub(longest.since)), longest.Holder, longest.how(), span(longest.waited), span(d)),
			Numbers: map[string]float64{"longest_deadlock_ms": ms(longest.waited)},
		}
	}
}

// Freed expects that each name whose holder died was granted to another contender
// within a time after that.
func Freed(within time.Duration) Check { return FreedBetween(0, within) }

// FreedBetween expects that each name whose holder died was granted to another contender
// else after that, neither sooner nor later than this.
func FreedBetween(least, most time.Duration) Check {
	return func(h *history.History) Finding {
		found := slices.DeleteFunc(stalls(h), func(s stall) bool { return !s.died })
		if len(found) == 0 {
			return inconclusive("no holder died with a lease")
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
		return Finding{
			Holds: freed == len(found),
			Says: fmt.Sprintf("%s died with a lease, and %d of these names were granted anew after %s to %s, as was expected; the longest took %s",
				count(len(found), "holder"), freed, span(least), span(most), span(last)),
			Numbers: map[string]float64{
				"died_holders": float64(len(found)), "freed_holders": float64(freed),
				"soonest_freed_ms": ms(first), "longest_freed_ms": ms(last),
			},
		}
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

func (s stall) how() string {
	if s.died {
		return "died"
	}
	return "took it"
}

// stalls are those of all leases that were granted. A lease that was followed by
// another before its holder died blocked no contender by that.
func stalls(h *history.History) (all []stall) {
	end := endOf(h)
	for _, holdings := range holdingsOf(h) {
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
			s.waited = waitedBetween(h, locked{one.Name, one.Lock}, s.since, s.until)
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b stall) int { return a.since.Compare(b.since) })
	return all
}

// waitedBetween is for how much of a time a contender was waiting for a name.
func waitedBetween(h *history.History, name locked, since, until time.Time) (sum time.Duration) {
	covered := since
	for _, l := range askedInOrder(h, name) {
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

func askedInOrder(h *history.History, name locked) (leases []history.Lease) {
	for _, l := range h.Leases {
		if (locked{l.Name, l.Lock}) == name {
			leases = append(leases, l)
		}
	}
	slices.SortStableFunc(leases, func(a, b history.Lease) int { return a.Asked.Compare(b.Asked) })
	return leases
}
