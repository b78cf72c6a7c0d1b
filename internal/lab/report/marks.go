package report

import (
	"fmt"
	"strconv"

	"github.com/stockd/stockd/internal/lab/history"
)

// The measures of marks. The width of a badge is estimated on a phone, in percent a
// pixel.
const (
	badgeStep   = 19
	badgeLevels = 3
	onPhone     = 100.0 / 320
	mostListed  = 30
)

// track is the extent of a lane.
type track struct{ top, bottom float64 }

// numbered is a mark with its number in the whole history, from 1.
type numbered struct {
	history.Mark
	number int
}

// badge shows the numbers of marks from first to last.
type badge struct {
	first, last int
	x           float64
	level       int
}

func (b badge) words() string {
	if b.first == b.last {
		return strconv.Itoa(b.first)
	}
	return fmt.Sprintf("%d–%d", b.first, b.last)
}

// width is that of a badge on a phone, in percent.
func (b badge) width() float64 { return onPhone * badgeWidth(b.words()) }

// badges puts marks beside each other, below each other where they are too
// close, and merges them where that is not enough.
func badges(marks []numbered, c clock) []badge {
	var list []badge
	free := [badgeLevels]float64{-100, -100, -100} // a badge at the edge reaches beyond it
	for _, m := range marks {
		b := badge{first: m.number, last: m.number, x: c.percent(m.At)}
		for b.level < badgeLevels && b.x-b.width()/2 < free[b.level] {
			b.level++
		}
		if b.level == badgeLevels {
			latest := &list[len(list)-1]
			left := latest.x - latest.width()/2
			latest.last = m.number
			latest.x = left + latest.width()/2 // it grows to the right
			b = *latest
		} else {
			list = append(list, b)
		}
		free[b.level] = b.x + b.width()/2 + onPhone
	}
	return list
}

// within are the marks on the clock.
func within(marks []history.Mark, c clock) []numbered {
	var list []numbered
	for i, m := range marks {
		if c.seconds(later(m.At, m.Until)) >= c.from && c.seconds(m.At) <= c.to {
			list = append(list, numbered{m, i + 1})
		}
	}
	return list
}

// marksAbove draws the numbers of the marks on the clock, lists all marks, and
// returns where the rest of the picture begins.
func (p *Picture) marksAbove(marks []history.Mark, c clock) float64 {
	deepest := -1
	for _, b := range badges(within(marks, c), c) {
		deepest = max(deepest, b.level)
		p.badge("mark", b.x, float64(b.level*badgeStep), b.words())
	}
	for i, m := range marks {
		if i == mostListed {
			p.notef("%s more are not listed.", Plural(len(marks)-i, "mark", "marks"))
			break
		}
		p.Marks = append(p.Marks, inWords(m, c))
	}
	return float64((deepest+1)*badgeStep) + 2
}

func inWords(m history.Mark, c clock) string {
	said := c.since(m.At) + ": "
	if m.Who != "" {
		said += m.Who + " "
	}
	said += m.What
	if !m.Until.IsZero() {
		said += ", until " + c.since(m.Until)
	}
	return said
}

// markLines draws the marks as lines, and those that last as bands, as high as the
// lane of the participant where there is one.
func (p *Picture) markLines(marks []history.Mark, c clock, top, bottom float64, lanes map[string]track) {
	for _, m := range within(marks, c) {
		x := c.percent(m.At)
		if !m.Until.IsZero() {
			on, ok := lanes[m.Who]
			if !ok {
				on = track{top, bottom}
			}
			p.rect("lasting", x, on.top, c.percent(m.Until)-x, on.bottom-on.top, inWords(m.Mark, c))
		}
		p.line("mark-line", x, top, 0, bottom-top)
	}
}
