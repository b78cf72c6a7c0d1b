package report

import (
	"cmp"
	_ "embed" // for the colors
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
)

// style is the colours of all pictures, as CSS.
//
//go:embed picture.css
var style string

// Picture is a static chart of primitives, in pixels.
type Picture struct {
	// Title and Desc describe it, for screen readers as well.
	Title, Desc string
	// Legend explains the colours, Marks the numbers at the upper edge, and Notes
	// what was left out or merged.
	Legend []Key
	Marks  []string
	Notes  []string

	width, height float64
	shapes        string
}

const fileWidth = 760

// Key is a colour of the legend: Class is its CSS class.
type Key struct{ Class, Words string }

// addf draws an element whose format has %v alone: for numbers, and for texts that are yet to be escaped.
func (p *Picture) addf(format string, a ...any) {
	for i := range a {
		switch v := a[i].(type) {
		case float64:
			a[i] = number(v)
		case string:
			a[i] = html.EscapeString(v)
		}
	}
	p.shapes += fmt.Sprintf(format, a...) + "\n"
}

func (p *Picture) rect(class string, x, y, w, h float64) {
	p.addf(`<rect class="%v" x="%v" y="%v" width="%v" height="%v"/>`, class, x, y, w, h)
}

// line goes from x, y by w across and h down.
func (p *Picture) line(class string, x, y, w, h float64) {
	p.addf(`<line class="%v" x1="%v" y1="%v" x2="%v" y2="%v"/>`, class, x, y, x+w, y+h)
}

// text has its start, its middle or its end at x; anchor says which.
func (p *Picture) text(class string, x, y float64, anchor, words string) {
	p.addf(`<text class="%v" x="%v" y="%v" text-anchor="%v">%v</text>`, class, x, y, cmp.Or(anchor, "start"), words)
}

func (p *Picture) dot(class string, x, y float64, title string) {
	p.addf(`<circle class="%v" cx="%v" cy="%v" r="3.5"><title>%v</title></circle>`, class, x, y, title)
}

func (p *Picture) path(class, d string) {
	if d != "" {
		p.addf(`<path class="%v" d="%v"/>`, class, d)
	}
}

// notef adds what was left out or merged.
func (p *Picture) notef(format string, a ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, a...))
}

// File writes the picture as a file of its own, with its legend and its marks in it.
func (p *Picture) File(w io.Writer) error {
	whole := *p
	for _, key := range p.Legend {
		whole.height += captionHeight
		whole.swatch(key, whole.height)
	}
	for i, mark := range p.Marks {
		whole.height += captionHeight
		whole.text("", 4, whole.height-4, "", fmt.Sprintf("%d. %s", i+1, mark))
	}
	for _, note := range p.Notes {
		whole.height += captionHeight
		whole.text("soft", 4, whole.height-4, "", note)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" class="picture" role="img" aria-labelledby="picture-title picture-desc">
<title id="picture-title">%[3]s</title><desc id="picture-desc">%[4]s</desc>
<style>%[5]s</style><rect class="ground" width="100%%" height="100%%"/>
%[6]s</svg>
`, number(whole.width), number(whole.height), html.EscapeString(p.Title), html.EscapeString(p.Desc), style, whole.shapes)
	if err != nil {
		return fmt.Errorf("draw %q: %w", p.Title, err)
	}
	return nil
}

// captionHeight is a line below a picture, in pixels.
const captionHeight = 18

func (p *Picture) swatch(key Key, bottom float64) {
	if key.line() {
		p.line(key.Class, 4, bottom-8, 19, 0)
	} else {
		p.rect(key.Class, 4, bottom-13, 19, 10)
	}
	p.text("", 30, bottom-4, "", key.Words)
}

// line tells whether the colour is that of a line, and not of a surface.
func (k Key) line() bool {
	return slices.Contains([]string{"curve", "curve left", "limit", "lost", "polled", "woken", "queued"}, k.Class)
}

// number has two digits after the point at most: less than what a screen shows.
func number(v float64) string { return rounded(v, 100) }

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
