package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// signHeight is the strip of a lane in which its signs are, in pixels, mostSigns how many are
// drawn in a lane.
const (
	signHeight = 13
	mostSigns  = 80
)

// sign is what happened to a lease at a moment: a shape, and not a colour alone.
type sign struct {
	Key
	at time.Time
}

// signs are the kinds of signs, in the order of the legend.
func signs() []Key {
	return []Key{
		{"renewed", "renewed"},
		{"unrenewed", "not renewed"},
		{"expired", "its TTL was over"},
		{"woke", "a waiter was woken"},
	}
}

func signOf(class string, at time.Time) sign {
	all := signs()
	return sign{all[slices.IndexFunc(all, func(k Key) bool { return k.Class == class })], at}
}

// signsOf is what happened to leases within a window.
func signsOf(leases []history.Lease, window span) []sign {
	var list []sign
	for _, l := range leases {
		for _, n := range l.Notes {
			switch n.What {
			case history.Renewed:
				list = append(list, signOf("renewed", n.At))
			case history.NotRenewed:
				list = append(list, signOf("unrenewed", n.At))
			case history.Woken:
				list = append(list, signOf("woke", n.At))
			default: // votes have a picture of their own
			}
		}
		if at := l.Outlived(); !at.IsZero() {
			list = append(list, signOf("expired", at))
		}
	}
	list = slices.DeleteFunc(list, func(s sign) bool { return !window.meets(span{s.at, s.at}) })
	slices.SortStableFunc(list, func(a, b sign) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Class, b.Class)) })
	return list
}

// signed draws the signs of a lane below y, where it has any, and returns where it ends.
func (p *Picture) signed(c clock, list []sign, y float64) float64 {
	if len(list) == 0 {
		return y
	}
	if len(list) > mostSigns {
		p.notef("Of a lane with %d signs those of wake-ups are not drawn.", len(list))
		list = slices.DeleteFunc(slices.Clone(list), func(s sign) bool { return s.Class == "woke" })
		list = list[:min(len(list), mostSigns)]
	}
	for _, s := range list {
		p.text(s.Class, c.percent(s.at), y+signHeight-3, "middle", s.Glyph())
	}
	return y + signHeight
}
