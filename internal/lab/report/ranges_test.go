package report

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesOfLimitsDoNotOverlap(t *testing.T) {
	p := Ranges{
		Title: "Rates", Rows: []string{"slow", "fast"},
		Panels: []Panel{{Title: "1 replica", Unit: "sales/s", Limits: []Limit{{"first", 4000}, {"second", 4500}, {"third", 20_000}}, Medians: []Median{
			{Row: 0, Value: 12, Min: 10, Max: 13}, {Row: 1, Value: 15_000, Min: 13_500, Max: 16_500, Grouped: true},
		}}},
	}.Draw()
	all := texts(t, p)
	for _, want := range []string{"1 replica, sales/s", "slow", "fast", "10,000", "third"} {
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

// A name stands in its own panel.
func TestANameOfALimitHasRoom(t *testing.T) {
	p := Ranges{Rows: []string{"one"}, Panels: []Panel{
		{Limits: []Limit{{"left of its line", 90_000}}, Medians: []Median{{Value: 10, Min: 10, Max: 10}}},
		{Limits: []Limit{{"right of its line", 12}}},
	}}.Draw()
	for _, s := range p.shapes {
		want := map[string]string{"left of its line": "end", "right of its line": "start"}[s.Text]
		if want != "" && (s.Anchor != want || (s.DX < 0) != (want == "end")) {
			t.Errorf("%q is anchored at its %s and moved by %g", s.Text, s.Anchor, s.DX)
		}
	}
	if all := texts(t, p); !strings.Contains(all, "left of") || !strings.Contains(all, "right of") {
		t.Errorf("a name is missing:\n%s", all)
	}
}

// Units have scales of their own, and no number is written over another.
func TestThePanelsOfAUnitShareAScale(t *testing.T) {
	dots := func(values ...float64) (list []Median) {
		for _, v := range values {
			list = append(list, Median{Value: v, Min: v, Max: v})
		}
		return list
	}
	p := Ranges{Rows: []string{"one"}, Panels: []Panel{
		{Unit: "sales/s", Medians: dots(0.2)}, {Unit: "sales/s", Medians: dots(900_000)}, {Unit: "µs", Medians: dots(20, 80)},
	}}.Draw()
	var numbers []string
	end := 0.0
	for _, s := range p.shapes {
		if s.Kind != "text" || s.Anchor != "middle" {
			continue
		}
		numbers = append(numbers, s.Text)
		middle, half := s.X/100*rangesWidth, letterWidth*float64(len(s.Text))/2
		if middle-half < end {
			t.Errorf("%s is written over what is before it: %q", s.Text, numbers)
		}
		end = middle + half
	}
	sales := []string{"0.1", "1", "10", "100", "1,000", "100,000"}
	if want := slices.Concat(sales, sales, []string{"10", "100"}); !slices.Equal(numbers, want) {
		t.Errorf("the scales are %q, want %q", numbers, want)
	}
}
