package report

import (
	"cmp"
	_ "embed" // for the template and the colours
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
)

//go:embed picture.svg.tmpl
var drawing string

// style is the colours of all pictures, as CSS.
//
//go:embed picture.css
var style string

// Picture is a chart of primitives, as wide as its container: positions across are
// in percent, and those down, like the letters, in pixels. So it is legible on a
// phone as on a desktop.
type Picture struct {
	// Title and Desc describe it, for screen readers as well.
	Title, Desc string
	// Legend explains the colours, Marks the numbers at the upper edge, and Notes
	// what was left out or merged.
	Legend []Key
	Marks  []string
	Notes  []string

	height float64
	width  float64 // as a file, in pixels; 0: fileWidth
	shapes []shape
}

const fileWidth = 760

// Key is a colour of the legend: Class is its CSS class.
type Key struct{ Class, Words string }

// glyph is the character that stands for the key; empty: none.
func (k Key) glyph() string {
	return map[string]string{
		"renewed": "+", "not-renewed": "×", "expired": "▼", "woken": "○",
	}[k.Class]
}

// shape is a rectangle, a line, a text, a dot or a path. X and W are in
// percent of the width, the rest in pixels; DX shifts by pixels.
type shape struct {
	Kind, Class string
	X, Y, W, H  float64
	DX          float64
	Text        string
	// Anchor is the fixed end of a text: start, middle or end.
	Anchor string
	// After follows a text, in a lighter colour.
	After string
}

func (p *Picture) rect(class string, x, y, w, h float64, title string) {
	p.shapes = append(p.shapes, shape{Kind: "rect", Class: class, X: x, Y: y, W: w, H: h, Text: title})
}

// line goes from x, y by w across and h down.
func (p *Picture) line(class string, x, y, w, h float64) {
	p.shapes = append(p.shapes, shape{Kind: "line", Class: class, X: x, Y: y, W: w, H: h})
}

func (p *Picture) text(class string, x, y float64, anchor, words string) {
	if words == "" {
		return
	}
	p.shapes = append(p.shapes, shape{Kind: "text", Class: class, X: x, Y: y, Anchor: anchor, Text: words})
}

func (p *Picture) dot(class string, x, y float64, title string) {
	p.shapes = append(p.shapes, shape{Kind: "dot", Class: class, X: x, Y: y, Text: title})
}

// notef adds what was left out or merged.
func (p *Picture) notef(format string, a ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, a...))
}

func (p *Picture) behind(draw func()) {
	before := p.shapes
	p.shapes = nil
	draw()
	p.shapes = append(p.shapes, before...)
}

// path is drawn in a grid that is stretched over the whole width: Units across,
// pixels down from y.
func (p *Picture) path(class string, y, h float64, d string) {
	if d != "" {
		p.shapes = append(p.shapes, shape{Kind: "path", Class: class, Y: y, W: 100, H: h, Text: d})
	}
}

// Units is how many steps a path has from left to right.
const Units = 10_000

// File writes the picture as a file of its own, with its legend and its marks in it.
func (p *Picture) File(w io.Writer) error {
	whole := *p
	whole.shapes = slices.Clone(p.shapes)
	for _, key := range p.Legend {
		whole.height += captionHeight
		whole.swatch(key, whole.height)
	}
	for i, mark := range p.Marks {
		whole.height += captionHeight
		whole.text("", 0.5, whole.height-4, "", fmt.Sprintf("%d. %s", i+1, mark))
	}
	for _, note := range p.Notes {
		whole.height += captionHeight
		whole.text("soft", 0.5, whole.height-4, "", note)
	}
	return whole.write(w)
}

// captionHeight is a line below a picture, in pixels.
const captionHeight = 18

func (p *Picture) swatch(key Key, bottom float64) {
	switch {
	case key.glyph() != "":
		p.text(key.Class, 1.7, bottom-4, "middle", key.glyph())
	case key.line():
		p.line(key.Class, 0.5, bottom-8, 2.5, 0)
	default:
		p.rect(key.Class, 0.5, bottom-13, 2.5, 10, "")
	}
	p.text("", 4, bottom-4, "", key.Words)
}

// line tells whether the colour is that of a line, and not of a surface.
func (k Key) line() bool {
	return slices.Contains([]string{"curve", "curve left", "limit", "lost", "polled", "woken", "queued"}, k.Class)
}

func (p *Picture) write(w io.Writer) error {
	t, err := template.New("picture").Funcs(template.FuncMap{"n": number}).Parse(drawing)
	if err != nil {
		return fmt.Errorf("read template of pictures: %w", err)
	}
	err = t.Execute(w, map[string]any{
		"Style": template.CSS(style), "Title": p.Title, "Desc": p.Desc, //nolint:gosec // the style is our own
		"Width": cmp.Or(p.width, fileWidth), "Height": p.height, "Units": Units, "Shapes": p.shapes,
	})
	if err != nil {
		return fmt.Errorf("draw %q: %w", p.Title, err)
	}
	return nil
}

// number has two digits after the point at most: less than what a screen shows.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// Right is where a shape ends across, Bottom where it ends down.
func (s shape) Right() float64 { return s.X + s.W }

// Bottom is where it ends.
func (s shape) Bottom() float64 { return s.Y + s.H }
