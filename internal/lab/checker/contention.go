package checker

import (
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
)

// Contention is what other leases had to do with one, for pictures of it.
type Contention struct {
	// Died is when its holder died with it.
	Died time.Time
	// Ahead is who had the name when the lease was asked for, or empty.
	Ahead string
	// Beside are the other holders that had the name when the lease was granted, each once.
	Beside []Beside
	// Woke is how often waiters were notified of its release.
	Woke int
}

// Beside is a holder that had a name together with a later one.
type Beside struct {
	Holder   string
	From, To time.Time
}

// Contentions are those of the leases of a history, in their order. The ids of the leases differ.
func Contentions(h *history.History) []Contention {
	all, of := make([]Contention, len(h.Leases)), make(map[string]*Contention, len(h.Leases))
	for i, l := range h.Leases {
		of[l.ID] = &all[i]
	}
	for _, holdings := range holdingsOf(h) {
		asked := askedInOrder(h, holdings[0].Lease)
		for _, one := range holdings {
			if one.died {
				of[one.ID].Died = one.to
			}
		}
		for _, o := range overlapping(holdings) {
			of[o.B.ID].beside(o)
		}
		for id, holder := range ahead(asked, holdings) {
			of[id].Ahead = holder
		}
		for id, n := range woken(asked, holdings) {
			of[id].Woke = n
		}
	}
	return all
}

// beside adds an overlap with an earlier holder.
func (c *Contention) beside(o Overlap) {
	i := slices.IndexFunc(c.Beside, func(b Beside) bool { return b.Holder == o.A.Holder })
	switch {
	case i < 0:
		c.Beside = append(c.Beside, Beside{o.A.Holder, o.From, o.To})
	case o.To.After(c.Beside[i].To):
		c.Beside[i].To = o.To
	}
}

// ahead finds who had a name at the moments at which it was asked for, by the ids of the leases.
func ahead(asked []history.Lease, holdings []holding) map[string]string {
	found := make(map[string]string)
	var held []holding
	next := 0
	for _, l := range asked {
		for ; next < len(holdings) && !holdings[next].from.After(l.Asked); next++ {
			held = append(held, holdings[next])
		}
		held = slices.DeleteFunc(held, func(a holding) bool { return !a.to.After(l.Asked) })
		if i := slices.IndexFunc(held, func(a holding) bool { return a.ID != l.ID && exclude(a.Lease, l) }); i >= 0 {
			found[l.ID] = held[i].Holder
		}
	}
	return found
}

// woken counts the notifications of waiters from each release of a name to the next one, by the ids of the leases that
// were released. A waiter that looked again by its own timeout got none.
func woken(asked []history.Lease, holdings []holding) map[string]int {
	counts := make(map[string]int)
	released := slices.DeleteFunc(slices.Clone(holdings), func(one holding) bool { return one.Released.IsZero() })
	slices.SortStableFunc(released, func(a, b holding) int { return a.Released.Compare(b.Released) })
	for _, l := range asked {
		for _, n := range l.Notes {
			after, _ := slices.BinarySearchFunc(released, n.At, func(r holding, at time.Time) int {
				if r.Released.After(at) {
					return 1
				}
				return -1
			})
			if n.What != history.Woken || n.By == lock.ByTimeout || after == 0 {
				continue
			}
			counts[released[after-1].ID]++
		}
	}
	return counts
}
