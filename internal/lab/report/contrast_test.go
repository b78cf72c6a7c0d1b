package report

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luminance is that of a colour such as #1d2126, as WCAG defines it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	bits, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	linear := func(shift int) float64 {
		c := float64(bits>>shift&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(16) + 0.7152*linear(8) + 0.0722*linear(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Letters have a contrast of 4.5 to what they stand on, and shapes one of 3, by
// day and by night.
func TestColoursHaveContrast(t *testing.T) {
	day, night, _ := strings.Cut(Style, "@media (prefers-color-scheme: dark)")
	night, _, _ = strings.Cut(night, "svg.picture")
	for scheme, css := range map[string]string{"day": day, "night": night} {
		colour := map[string]string{}
		for _, found := range regexp.MustCompile(`--([a-z]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(css, -1) {
			colour[found[1]] = found[2]
		}
		for _, ground := range []string{"ground", "panel"} {
			for _, letters := range []string{"ink", "soft", "alarm", "good", "warn", "link"} {
				if got := contrast(t, colour[letters], colour[ground]); got < 4.5 {
					t.Errorf("by %s %s on %s has a contrast of %.2f, want 4.5", scheme, letters, ground, got)
				}
			}
		}
		for _, shape := range []string{"hold", "alarm", "good", "warn", "edge", "refused"} {
			if got := contrast(t, colour[shape], colour["ground"]); got < 3 {
				t.Errorf("by %s %s has a contrast of %.2f, want 3", scheme, shape, got)
			}
		}
		if got := contrast(t, colour["wait"], colour["hold"]); got < 2 {
			t.Errorf("by %s waiting and holding have a contrast of %.2f", scheme, got)
		}
	}
}
