package checker

import (
	"fmt"
	"math"
	"time"
)

// inconclusive is the finding where the evidence is missing.
func inconclusive(says string) Finding {
	return Finding{Says: says, Numbers: make(map[string]float64)}
}

// count is a number with its noun: 1 unit, 2 units.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ms is a time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return math.Round(float64(d.Nanoseconds())/1e3) / 1e3
}

// span is a time in words, as exact as one reads it.
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "0 ms"
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", ms(d))
	default:
		return fmt.Sprintf("%.2f ms", ms(d))
	}
}
