package report

import (
	"strings"
	"testing"
)

func TestNamesOfLimitsDoNotOverlap(t *testing.T) {
	p := Ranges{
		Title: "Rates", Rows: []string{"slow", "fast"},
		Panels: []Panel{{Title: "1 replica", Limits: []Limit{{"first", 4000}, {"second", 4500}, {"third", 20_000}}, Medians: []Median{
			{Row: 0, Value: 12, Min: 10, Max: 13}, {Row: 1, Value: 15_000, Min: 13_500, Max: 16_500, Grouped: true},
		}}},
	}.Draw()
	all := texts(t, p)
	for _, want := range []string{"1 replica", "slow", "fast", "10,000", "third"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	var names, dots []shape
	for _, s := range p.shapes {
		switch {
		case s.Kind == "text" && s.Anchor == "end" && s.DX != 0:
			names = append(names, s)
		case s.Kind == "dot":
			dots = append(dots, s)
		case s.Kind == "line" && (s.X < 0 || s.X+s.W > 100):
			t.Errorf("a line leaves the picture: %+v", s)
		}
	}
	if len(names) != 3 || len(dots) != 2 {
		t.Fatalf("%d names and %d dots, want 3 and 2", len(names), len(dots))
	}
	for i, name := range names {
		if i > 0 && (names[i-1].X > name.X || names[i-1].Y-name.Y < 12) {
			t.Errorf("%q is in the way of %q", names[i-1].Text, name.Text)
		}
		if name.Y < 44 || name.Y > dots[0].Y {
			t.Errorf("%q is at %g, want it between the title and the dots", name.Text, name.Y)
		}
	}
	if dots[0].X >= dots[1].X || dots[0].Y >= dots[1].Y {
		t.Errorf("the dots are at %+v", dots)
	}
}
