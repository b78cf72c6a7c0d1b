package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// The waits are counted in bins that grow by the same factor each. All pictures
// have the same bins, so that parts can be compared.
const (
	shortest  = 100 * time.Microsecond
	perDecade = 5
	decades   = 6 // up to 100 s
	binCount  = perDecade*decades + 1
	binsHigh  = 130
	// letterWidth is that of a letter of a label, in pixels.
	letterWidth = 6.5
)

// Waits draws how long requests waited, in bins of time. It is nil without a
// request or a lease.
func Waits(h *history.History) *Picture {
	list, title := waited(h)
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	p := &Picture{Title: title}
	const head = 50 // of the three lines over the bins
	bottom := float64(head + binsHigh)
	bins := make([]int, binCount)
	for _, d := range list {
		bins[bin(d)]++
	}
	highest := slices.Max(bins)
	for decade := range decades + 1 {
		at := time.Duration(float64(shortest) * math.Pow(10, float64(decade)))
		x := binX(at)
		p.line("grid", x, head, 0, binsHigh)
		if decade > 0 && decade < decades {
			p.text("soft", x, bottom+15, "middle", Duration(at))
		}
	}
	p.text("soft", 0, bottom+15, "", "less")
	for i, n := range bins {
		if n == 0 {
			continue
		}
		high := max(2, math.Round(binsHigh*float64(n)/float64(highest)))
		p.rect("part", 100*float64(i)/binCount+0.15, bottom-high, 100.0/binCount-0.3, high, binWords(i, n))
	}
	p.line("base", 0, bottom, 100, 0)
	said := p.quantiles(list, bottom)
	p.height = bottom + footHeight
	p.Desc = fmt.Sprintf("%s in all: %s.", Count(len(list)), said)
	p.Legend = []Key{{"part", fmt.Sprintf("how many waited so long, of %s; the highest bar is %s", Count(len(list)), Count(highest))}}
	return p
}

// waited are the waits for the lock according to the answers or else to the
// leases; without any of both, the times until the answers.
func waited(h *history.History) (list []time.Duration, title string) {
	for _, r := range h.Requests {
		if r.Outcome == history.Sold || r.Outcome == history.Rejected || r.Wait > 0 {
			list = append(list, r.Wait)
		}
	}
	if slices.ContainsFunc(list, func(d time.Duration) bool { return d > 0 }) {
		return list, "How long requests waited for the lock"
	}
	list = nil
	for _, l := range h.Leases {
		if end := cmp.Or(l.Granted, l.GaveUp); !end.IsZero() {
			list = append(list, end.Sub(l.Asked))
		}
	}
	if len(list) > 0 {
		return list, "How long the lock was waited for"
	}
	for _, r := range h.Requests {
		list = append(list, r.End.Sub(r.Start))
	}
	return list, "How long requests took"
}

// bin counts durations below the shortest in the first bin, and those beyond the
// longest in the last.
func bin(d time.Duration) int {
	if d < shortest {
		return 0
	}
	i := 1 + int(math.Floor(perDecade*math.Log10(float64(d)/float64(shortest))+1e-9))
	return min(i, binCount-1)
}

// binX is the position of a time across, in percent.
func binX(d time.Duration) float64 {
	if d <= shortest {
		return 100.0 / binCount
	}
	return min(100, 100*(1+perDecade*math.Log10(float64(d)/float64(shortest)))/binCount)
}

func binWords(i, n int) string {
	edge := func(i int) string {
		return Duration(time.Duration(float64(shortest) * math.Pow(10, float64(i)/perDecade)))
	}
	if i == 0 {
		return fmt.Sprintf("%s: less than %s", Count(n), edge(0))
	}
	return fmt.Sprintf("%s: %s to %s", Count(n), edge(i-1), edge(i))
}

// quantiles draws the longest, what 99 of 100 kept within, and the median, and
// describes them. Their names are to the left of their lines, the longest at the
// top: so no line crosses another name.
func (p *Picture) quantiles(sorted []time.Duration, bottom float64) (said string) {
	for i, q := range []struct {
		name  string
		share float64
	}{{"longest", 1}, {"99 % within", 0.99}, {"median", 0.5}} {
		d := sorted[min(len(sorted)-1, max(0, int(math.Ceil(q.share*float64(len(sorted))))-1))]
		x, y := binX(d), float64(12+15*i)
		if d < shortest {
			x = 50.0 / binCount
		}
		label, anchor, aside := q.name+" "+Duration(d), "end", -4.0
		if x < onPhone*letterWidth*float64(len(label)) {
			anchor, aside = "start", 4
		}
		p.line("quantile", x, y-10, 0, bottom-y+10)
		p.text("", x, y, anchor, label)
		p.shapes[len(p.shapes)-1].DX = aside
		if i > 0 {
			said += ", "
		}
		said += label
	}
	return said
}
