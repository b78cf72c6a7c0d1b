package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Killed begins the mark that ends all leases of the replica that it names: it is not there
// any more. Words may follow.
const Killed = "killed"

// Overlap is a time during which a name had two holders.
type Overlap struct {
	A, B     history.Lease // A was granted first
	From, To time.Time
}

// For is how long it was.
func (o Overlap) For() time.Duration { return o.To.Sub(o.From) }

// OverlappingHolders expects that a name had two holders at once.
func OverlappingHolders() Check {
	return holders(func(_ int, overlaps []Overlap) bool { return len(overlaps) > 0 })
}

// ExclusiveHolders expects that no name had two holders at once. Where no name
// was granted twice it does not hold: nothing could have overlapped.
func ExclusiveHolders() Check {
	return holders(func(most int, overlaps []Overlap) bool { return most > 1 && len(overlaps) == 0 })
}

// Overlaps finds the times during which a name had two holders, in the order of
// time.
//
// A lease is held from its grant until its holder knew of its end: so a holder
// that has lost its lease and does not know it yet still counts as one, since it
// goes on as one. A lease without an end was held until the holder is marked as
// Killed. Where it never is, nothing says that the holder ever stopped,
// and it counts as held to the end of the history. Two leases of the same holder
// with the same token are one lease that was reentered. Shared leases do not overlap
// with each other. All times are of one machine's clock.
func Overlaps(h *history.History) (overlaps []Overlap) {
	for _, holdings := range holdingsOf(h) {
		overlaps = append(overlaps, overlapping(holdings)...)
	}
	slices.SortStableFunc(overlaps, func(a, b Overlap) int { return a.From.Compare(b.From) })
	return overlaps
}

func holders(judge func(most int, overlaps []Overlap) bool) Check {
	return func(h *history.History) Finding {
		leases, most := 0, 0
		for _, holdings := range holdingsOf(h) {
			leases += len(holdings)
			most = max(most, len(holdings))
		}
		overlaps := Overlaps(h)
		numbers := map[string]float64{"leases": float64(leases), "overlaps": float64(len(overlaps)), "longest_overlap_ms": 0}
		says := Say("no-overlap", leases)
		switch {
		case len(overlaps) > 0:
			longest := slices.MaxFunc(overlaps, func(a, b Overlap) int { return cmp.Compare(a.For(), b.For()) })
			numbers["longest_overlap_ms"] = ms(longest.For())
			says = Say("overlaps", len(overlaps), leases, longest.A.Holder, longest.B.Holder, longest.A.Name, longest.For())
		case most < 2:
			says = Say("too-few-leases", leases)
		}
		return Found(judge(most, overlaps), numbers, says)
	}
}

type holding struct {
	history.Lease
	from, to time.Time
	died     bool // its holder did, and had it then
}

// compare is 0 where two leases are of the same name by means of the same lock: their holders exclude each other.
func compare(a, b history.Lease) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Lock, b.Lock))
}

// holdingsOf are the leases that were granted, those of one name and lock together
// and in the order of their grants.
func holdingsOf(h *history.History) (sorted [][]holding) {
	var all []holding
	end := endOf(h)
	for _, l := range h.Leases {
		if l.Granted.IsZero() {
			continue
		}
		one := holding{Lease: l, from: l.Granted, to: l.End()}
		if one.to.IsZero() {
			if one.to = deathOf(h, l.Holder, l.Granted); one.to.IsZero() {
				one.to = end
			} else {
				one.died = true
			}
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b holding) int { return cmp.Or(compare(a.Lease, b.Lease), a.from.Compare(b.from)) })
	for i, one := range all {
		if i == 0 || compare(all[i-1].Lease, one.Lease) != 0 {
			sorted = append(sorted, nil)
		}
		sorted[len(sorted)-1] = append(sorted[len(sorted)-1], one)
	}
	return sorted
}

// Ends tells whether a mark is of the end of a holder.
func Ends(m history.Mark) bool {
	return strings.HasPrefix(m.What, Killed)
}

func deathOf(h *history.History, holder string, after time.Time) (at time.Time) {
	for _, m := range h.Marks {
		if Ends(m) && m.Who == holder && !m.At.Before(after) && (at.IsZero() || m.At.Before(at)) {
			at = m.At
		}
	}
	return at
}

func endOf(h *history.History) time.Time {
	_, end := h.Extent()
	for _, a := range h.Audits {
		if a.At.After(end) {
			end = a.At
		}
	}
	return end
}

// overlapping are the overlaps of holdings that exclude each other.
func overlapping(holdings []holding) []Overlap {
	return slices.DeleteFunc(together(holdings), func(o Overlap) bool { return !exclude(o.A, o.B) })
}

// exclude reports whether two leases of one name and lock are not to be held at once.
func exclude(a, b history.Lease) bool { return !a.Shared || !b.Shared }

// together compares each holding with those that are still held when it begins.
func together(holdings []holding) (overlaps []Overlap) {
	var held []holding
	for _, b := range holdings {
		held = slices.DeleteFunc(held, func(a holding) bool { return !a.to.After(b.from) })
		if !b.to.After(b.from) {
			continue
		}
		for _, a := range held {
			if a.Holder == b.Holder && a.Token == b.Token && a.Token != 0 {
				continue
			}
			until := b.to
			if a.to.Before(until) {
				until = a.to
			}
			overlaps = append(overlaps, Overlap{A: a.Lease, B: b.Lease, From: b.from, To: until})
		}
		held = append(held, b)
	}
	return overlaps
}

// TakenEarly expects that a name was granted to a contender while another held it
// whose lease could not have run out yet: it must have been taken away.
func TakenEarly(ttl time.Duration) Check {
	return early(ttl, func(_, taken int) bool { return taken > 0 })
}

// NeverTakenEarly expects that no contender was granted a name while the lease of
// another was good. It needs two leases of one name to hold.
func NeverTakenEarly(ttl time.Duration) Check {
	return early(ttl, func(most, taken int) bool { return most > 1 && taken == 0 })
}

// A lease is asked for before it is granted, and the server counts from somewhere
// in between: what comes within a tenth of the time from its end may be due to
// that.
const tolerance = 10

func early(ttl time.Duration, judge func(most, taken int) bool) Check {
	return func(h *history.History) Finding {
		leases, most, taken := 0, 0, 0
		for _, holdings := range holdingsOf(h) {
			leases += len(holdings)
			most = max(most, len(holdings))
			taken += count(overlapping(holdings), func(o Overlap) bool { return o.From.Sub(o.A.Granted) < ttl-ttl/tolerance })
		}
		return Found(judge(most, taken), map[string]float64{"leases_taken_early": float64(taken)}, Say("taken-early", taken, leases, ttl))
	}
}

// RejectedWithin expects that at least one contender gave up because another holder
// had the name, and that each of them gave up within this time.
func RejectedWithin(d time.Duration) Check {
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
		numbers := map[string]float64{"refused_tries": float64(rejected), "longest_refused_try_ms": ms(longest)}
		return Found(rejected > 0 && late == 0, numbers, Say("gave-up", rejected, late, d), Say("longest-took", longest))
	}
}

// GrantedTo expects that a contender was granted a name that it asked for.
func GrantedTo(holder string) Check {
	return grants(holder, func(_, granted int) bool { return granted > 0 })
}

// NeverGrantedTo expects that a contender asked for a name, and was not granted it.
func NeverGrantedTo(holder string) Check {
	return grants(holder, func(asked, granted int) bool { return asked > 0 && granted == 0 })
}

// Granted expects that at least so many leases were granted.
func Granted(least int) Check {
	return allGrants(Say("or-more", max(1, least)), func(_, granted int) bool { return granted >= max(1, least) })
}

// NeverGranted expects that leases were asked for, and that none was granted.
func NeverGranted() Check {
	return allGrants(Say("none"), func(asked, granted int) bool { return asked > 0 && granted == 0 })
}

func allGrants(expected Fact, judge func(asked, granted int) bool) Check {
	return func(h *history.History) Finding {
		asked, granted := countGrants(h.Leases)
		return Found(judge(asked, granted), map[string]float64{"granted_leases": float64(granted)}, Say("granted", asked, granted), expected)
	}
}

func grants(holder string, judge func(asked, granted int) bool) Check {
	return func(h *history.History) Finding {
		asked, granted := countGrants(slices.DeleteFunc(slices.Clone(h.Leases), func(l history.Lease) bool { return l.Holder != holder }))
		return Found(judge(asked, granted), map[string]float64{"granted_to_" + holder: float64(granted)}, Say("granted-to", asked, holder, granted))
	}
}

func countGrants(leases []history.Lease) (asked, granted int) {
	return len(leases), count(leases, func(l history.Lease) bool { return !l.Granted.IsZero() })
}

// heldByAnother tells whether another holder had the name when this one gave up.
func heldByAnother(h *history.History, gaveUp history.Lease) bool {
	return slices.ContainsFunc(h.Leases, func(l history.Lease) bool {
		another := compare(l, gaveUp) == 0 && l.Holder != gaveUp.Holder
		return another && !l.Granted.IsZero() && l.Granted.Before(gaveUp.GaveUp) && (l.End().IsZero() || l.End().After(gaveUp.GaveUp))
	})
}

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
			for _, again := range askedInOrder(h, holdings[0].Lease) {
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
		numbers := map[string]float64{"reentered": float64(got), "locked_out": float64(rejected)}
		return Found(judge(got, rejected), numbers, Say("reentered", got+rejected, got))
	}
}

// heldAlready tells whether a lease was asked for by a holder of another one of
// the same name at that time.
func heldAlready(holdings []holding, l history.Lease) bool {
	return slices.ContainsFunc(holdings, func(one holding) bool {
		return one.ID != l.ID && one.Holder == l.Holder && !one.from.After(l.Asked) && one.to.After(l.Asked)
	})
}

// Together expects that two holders had a name at the same time, also where they may share it.
func Together(a, b string) Check {
	return pair(a, b, func(_, together int) bool { return together > 0 })
}

// Apart expects that two holders had a name, each of them, and never at the same time.
func Apart(a, b string) Check {
	return pair(a, b, func(granted, together int) bool { return granted == 2 && together == 0 })
}

func pair(a, b string, judge func(granted, together int) bool) Check {
	return func(h *history.History) Finding {
		granted := make(map[string]bool)
		for _, l := range h.Leases {
			if !l.Granted.IsZero() && (l.Holder == a || l.Holder == b) {
				granted[l.Holder] = true
			}
		}
		both := 0
		for _, holdings := range holdingsOf(h) {
			both += count(together(holdings), func(o Overlap) bool {
				return o.A.Holder == a && o.B.Holder == b || o.A.Holder == b && o.B.Holder == a
			})
		}
		says := Say("not-both", len(granted), a, b)
		switch {
		case both > 0:
			says = Say("together", a, b)
		case len(granted) == 2:
			says = Say("apart", a, b)
		}
		return Found(judge(len(granted), both), map[string]float64{"granted_of_two": float64(len(granted)), "together": float64(both)}, says)
	}
}

// ReadersShare expects that two holders of shared leases had a name at the same time.
func ReadersShare() Check {
	return func(h *history.History) Finding {
		shared, leases := 0, 0
		for _, holdings := range holdingsOf(h) {
			leases += count(holdings, func(one holding) bool { return one.Shared })
			shared += count(together(holdings), func(o Overlap) bool { return o.A.Shared && o.B.Shared && o.A.Holder != o.B.Holder })
		}
		return Found(shared > 0, map[string]float64{"shared_leases": float64(leases), "shared_overlaps": float64(shared)}, Say("shared", shared, leases))
	}
}

// HalfMadePages expects a page on which what is left and what is sold are not the units that
// there were.
func HalfMadePages(units int64) Check {
	return pages(units, func(_, halfMade int) bool { return halfMade > 0 })
}

// WholePages expects pages, and no such page among them.
func WholePages(units int64) Check {
	return pages(units, func(all, halfMade int) bool { return all > 0 && halfMade == 0 })
}

func pages(units int64, judge func(all, halfMade int) bool) Check {
	return func(h *history.History) Finding {
		halfMade := count(h.Samples, func(page history.Sample) bool { return page.Stock+page.Sold != units })
		return Found(judge(len(h.Samples), halfMade),
			map[string]float64{"pages": float64(len(h.Samples)), "half_made_pages": float64(halfMade)}, Say("half-made-pages", halfMade, len(h.Samples)))
	}
}

// LossNoticed expects that a holder knew of the loss of its lease within a time from a mark
// that begins with these words. To learn of it by the release is too late.
func LossNoticed(holder, mark string, within time.Duration) Check {
	return func(h *history.History) Finding {
		for _, m := range h.Marks {
			if !strings.HasPrefix(m.What, mark) {
				continue
			}
			for _, l := range h.Leases {
				if l.Holder != holder || l.Granted.IsZero() || l.Lost.Before(m.At) || !l.End().Equal(l.Lost) {
					continue
				}
				took := l.Lost.Sub(m.At)
				return Found(took <= within, map[string]float64{"loss_noticed_ms": ms(took)}, Say("loss-noticed", holder, took), Say("at-most", within))
			}
		}
		return inconclusive("no-loss-noticed", holder)
	}
}
