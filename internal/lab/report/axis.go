package report

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

type axis struct{ from, to float64 }

// share is the position of a value, from 0 to 1; values beyond the ends are put on
// them.
func (a axis) share(v float64) float64 {
	if a.to <= a.from {
		return 0
	}
	return min(max((v-a.from)/(a.to-a.from), 0), 1)
}

// ticks are round values within the axis, about as many as asked for.
func (a axis) ticks(about int) []float64 {
	step := a.step(about)
	if step == 0 {
		return nil
	}
	var list []float64
	for i := math.Ceil(a.from/step - 1e-9); i*step <= a.to+step*1e-9; i++ {
		list = append(list, i*step+0) // and never -0
	}
	return list
}

// step is 1, 2 or 5 times a power of ten.
func (a axis) step(about int) float64 {
	if a.to <= a.from {
		return 0
	}
	rough := (a.to - a.from) / float64(about)
	decade := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, times := range []float64{1, 2, 5} {
		if decade*times >= rough {
			return decade * times
		}
	}
	return decade * 10
}

// clock is the axis of time of a picture; times count from zero.
type clock struct {
	axis
	zero time.Time
}

func newClock(zero, from, to time.Time) clock {
	c := clock{zero: zero}
	c.from, c.to = c.seconds(from), c.seconds(to)
	if c.to <= c.from {
		c.to = c.from + 0.001 // everything was at once
	}
	return c
}

func (c clock) seconds(t time.Time) float64 { return t.Sub(c.zero).Seconds() }

func (c clock) percent(t time.Time) float64 { return 100 * c.share(c.seconds(t)) }

// unit is the position of a time in a path.
func (c clock) unit(t time.Time) int { return int(math.Round(Units * c.share(c.seconds(t)))) }

// lasts is the duration of a share of the width.
func (c clock) lasts(share float64) time.Duration {
	return time.Duration(share * (c.to - c.from) * float64(time.Second))
}

// label is that of a tick: all of an axis have one unit.
func (c clock) label(seconds, step float64) string {
	if c.to < 1 || step < 0.01 {
		return decimals(seconds*1000, step*1000) + " ms"
	}
	return decimals(seconds, step) + " s"
}

// decimals writes a value with as many digits as steps of its size need.
func decimals(v, step float64) string {
	digits := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// footHeight is what the axis of time takes below a picture.
const footHeight = 20

// timeAxis draws the axis of time from top to bottom, with its labels below.
func (p *Picture) timeAxis(c clock, top, bottom float64) {
	step := c.step(4)
	for _, v := range c.ticks(4) {
		x := 100 * c.share(v)
		p.line("grid", x, top, 0, bottom-top)
		p.text("soft", x, bottom+15, anchorAt(x), c.label(v, step))
	}
	p.line("base", 0, bottom, 100, 0)
}

// anchorAt keeps a text at an edge within the picture.
func anchorAt(x float64) string {
	switch {
	case x < 8:
		return "start"
	case x > 92:
		return "end"
	default:
		return "middle"
	}
}

// since is a time on the clock of the picture, for people.
func (c clock) since(t time.Time) string {
	s := c.seconds(t)
	if s >= 1 {
		return fmt.Sprintf("%.3f s", s)
	}
	return Duration(t.Sub(c.zero).Round(time.Microsecond))
}

// valueAxis draws the axis of values from bottom to top, with words for a value.
func (p *Picture) valueAxis(a axis, top, bottom float64, words func(float64) string) {
	for _, v := range a.ticks(4) {
		y := bottom - (bottom-top)*a.share(v)
		p.line("grid", 0, y, 100, 0)
		p.text("soft", 0, y-3, "", words(v))
	}
}

// The measures of marks. The width of a badge is estimated on a phone, in percent a
// pixel.
const (
	badgeHeight = 19
	onPhone     = 100.0 / 320
	mostListed  = 30
)

type track struct{ top, bottom float64 }

type badge struct {
	first, last int
	left, right float64
}

func (b badge) words() string {
	if b.first == b.last {
		return strconv.Itoa(b.first)
	}
	return fmt.Sprintf("%d–%d", b.first, b.last)
}

// badges are the numbers of marks beside each other; those that are too close are one.
func badges(marks []history.Mark, c clock) (list []badge) {
	for i, m := range marks {
		if !c.shows(m) {
			continue
		}
		b := badge{first: i + 1, last: i + 1}
		half := onPhone * badgeWidth(b.words()) / 2
		b.left, b.right = c.percent(m.At)-half, c.percent(m.At)+half
		if n := len(list) - 1; n >= 0 && b.left < list[n].right+onPhone {
			list[n].last = b.last // it grows to the right
			list[n].right = list[n].left + onPhone*badgeWidth(list[n].words())
			continue
		}
		list = append(list, b)
	}
	return list
}

func (c clock) shows(m history.Mark) bool {
	return c.seconds(later(m.At, m.Until)) >= c.from && c.seconds(m.At) <= c.to
}

// marksAbove draws the numbers of the marks on the clock, lists all marks, and
// returns where the rest of the picture begins.
func (p *Picture) marksAbove(marks []history.Mark, c clock) float64 {
	all := badges(marks, c)
	for _, b := range all {
		p.badge("mark", (b.left+b.right)/2, 0, b.words())
	}
	for i, m := range marks {
		if i == mostListed {
			p.notef("%s more are not listed.", Plural(len(marks)-i, "mark", "marks"))
			break
		}
		p.Marks = append(p.Marks, inWords(m, c))
	}
	if len(all) == 0 {
		return 2
	}
	return badgeHeight + 2
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
	for _, m := range marks {
		if !c.shows(m) {
			continue
		}
		x := c.percent(m.At)
		if !m.Until.IsZero() {
			on, ok := lanes[m.Who]
			if !ok {
				on = track{top, bottom}
			}
			p.rect("lasting", x, on.top, c.percent(m.Until)-x, on.bottom-on.top, inWords(m, c))
		}
		p.line("mark-line", x, top, 0, bottom-top)
	}
}
