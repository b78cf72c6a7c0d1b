package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// The measures of wake-ups, in pixels, and how many releases are drawn.
const (
	wakesTop     = 16
	wakesHeight  = 120
	mostReleases = 80
)

// Wakes draw how many waiters looked again after each release. It is nil where no lease was released.
func Wakes(h *history.History) *Picture {
	counts := wokenBy(h)
	if len(counts) == 0 {
		return nil
	}
	sum := 0
	for _, n := range counts {
		sum += n
	}
	p := &Picture{Title: "Waiters that each release woke", height: wakesTop + wakesHeight + footHeight}
	p.Desc = fmt.Sprintf("%s, after which waiters were woken %s in all, and %s at most after one.", Plural(len(counts), "release", "releases"), Times(sum), Times(slices.Max(counts)))
	p.Legend = []Key{{"part", "waiters that looked again between this release and the next"}}
	if len(counts) > mostReleases {
		p.notef("The first %d of %d releases are drawn.", mostReleases, len(counts))
		counts = counts[:mostReleases]
	}
	a := axis{0, float64(max(holders(h), slices.Max(counts)))} // so that experiments can be compared
	p.valueAxis(a, wakesTop, wakesTop+wakesHeight)
	each := 94.0 / float64(len(counts)) // the labels of the axis are to the left
	for i, n := range counts {
		high := wakesHeight * a.share(float64(n))
		x := 6 + float64(i)*each
		p.rect("part", x, wakesTop+wakesHeight-high, each*0.7, high, fmt.Sprintf("release %d: %d", i+1, n))
	}
	p.line("base", 0, wakesTop+wakesHeight, 100, 0)
	p.text("soft", 6, wakesTop+wakesHeight+15, "", "first release")
	p.text("soft", 100, wakesTop+wakesHeight+15, "end", "last")
	return p
}

// wokenBy counts the wake-ups from each release to the next one.
func wokenBy(h *history.History) []int {
	var released, woken []time.Time
	for _, l := range h.Leases {
		if !l.Released.IsZero() {
			released = append(released, l.Released)
		}
		for _, n := range l.Notes {
			if n.What == history.Woken {
				woken = append(woken, n.At)
			}
		}
	}
	slices.SortFunc(released, time.Time.Compare)
	counts := make([]int, len(released))
	for _, at := range woken {
		i, found := slices.BinarySearchFunc(released, at, time.Time.Compare)
		if !found {
			i--
		}
		if i >= 0 { // what was woken before the first release was not by one
			counts[i]++
		}
	}
	return counts
}

// holders counts those that asked for a lease.
func holders(h *history.History) int {
	names := make(map[string]bool)
	for _, l := range h.Leases {
		names[l.Holder] = true
	}
	return len(names)
}
