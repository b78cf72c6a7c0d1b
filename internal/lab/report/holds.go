package report

import (
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

type span struct{ from, to time.Time }

func (s span) meets(other span) bool { return !s.to.Before(other.from) && !s.from.After(other.to) }

// hold is a lease while it was held.
type hold struct {
	span
	lease history.Lease
	// open means that no end of it is known: to is then the death of its holder,
	// or the end of the history.
	open bool
}

// overlap is a stretch of time in which a name was held more than once.
type overlap struct {
	span
	of      locked
	holders []string
}

// locked is what holders exclude each other from: a name by means of a lock.
type locked struct{ name, lock string }

func lockedBy(l history.Lease) locked { return locked{l.Name, l.Lock} }

func holds(h *history.History, end time.Time) []hold {
	var list []hold
	contentions := checker.Contentions(h)
	for i, l := range h.Leases {
		if l.Granted.IsZero() {
			continue
		}
		one := hold{span: span{l.Granted, l.End()}, lease: l}
		if one.to.IsZero() {
			one.open, one.to = true, contentions[i].Died
		}
		if one.to.IsZero() {
			one.to = end
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b hold) int { return a.from.Compare(b.from) })
	return list
}

// overlaps merges the pairs of leases that the checker finds.
func overlaps(h *history.History) []overlap {
	pairs := checker.Overlaps(h)
	list := make([]overlap, 0, len(pairs))
	last := map[locked]int{} // index in list of the latest of each, from 1
	for _, pair := range pairs {
		of := lockedBy(pair.A)
		if i := last[of]; i == 0 || pair.From.After(list[i-1].to) {
			list = append(list, overlap{span: span{pair.From, pair.To}, of: of})
			last[of] = len(list)
		}
		o := &list[last[of]-1]
		o.to = later(o.to, pair.To)
		for _, holder := range []string{pair.A.Holder, pair.B.Holder} {
			if !slices.Contains(o.holders, holder) {
				o.holders = append(o.holders, holder)
			}
		}
	}
	return list
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func extent(h *history.History) (s span) {
	s.from, s.to = h.Extent()
	return s
}
