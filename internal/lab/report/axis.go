package report

import (
	"math"
	"strconv"
)

// axis has from at first, and to so many pixels further: across, or down where there are more.
type axis struct{ from, to, first, length float64 }

// share is the position of a value, from 0 to 1; values beyond the ends are put on
// them.
func (a axis) share(v float64) float64 {
	if a.to <= a.from {
		return 0
	}
	return min(max((v-a.from)/(a.to-a.from), 0), 1)
}

// at is the position of a value in pixels.
func (a axis) at(v float64) float64 { return a.first + a.length*a.share(v) }

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

// label is that of a tick of seconds: all of an axis have one unit.
func (a axis) label(seconds, step float64) string {
	if a.to < 1 || step < 0.01 {
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

// timeAxis draws an axis of seconds from top to bottom, with its labels below.
func (p *Picture) timeAxis(a axis, top, bottom float64) {
	step := a.step(4)
	for _, v := range a.ticks(4) {
		p.line("grid", a.at(v), top, 0, bottom-top)
		p.text("soft", a.at(v), bottom+15, a.anchor(v), a.label(v, step))
	}
	p.line("base", a.first, bottom, a.length, 0)
}

// anchor keeps a text at an edge within the picture.
func (a axis) anchor(v float64) string {
	switch share := a.share(v); {
	case share < 0.08:
		return "start"
	case share > 0.92:
		return "end"
	default:
		return "middle"
	}
}

// valueAxis draws lines from x on for an axis of values, with words for each.
func (p *Picture) valueAxis(a axis, x, width float64, words func(float64) string) {
	for _, v := range a.ticks(4) {
		p.line("grid", x, a.at(v), width, 0)
		p.text("soft", x, a.at(v)-3, "", words(v))
	}
}
