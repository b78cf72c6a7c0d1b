package checker

import (
	"math"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
)

// Reported passes when every figure was recorded, and lists them.
func Reported(names ...string) Check {
	return func(h *history.History) Finding {
		f := Finding{Holds: true, Numbers: make(map[string]float64)}
		var says []string
		for _, name := range names {
			v, measured := h.Figures[name]
			if !measured || math.IsNaN(v) || math.IsInf(v, 0) {
				f.Holds = false
				says = append(says, words(name)+" was not measured")
				continue
			}
			f.Numbers[name] = v
			says = append(says, words(name)+" is "+number(v))
		}
		f.Says = strings.Join(says, ", ")
		return f
	}
}
