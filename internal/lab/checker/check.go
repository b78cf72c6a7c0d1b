// Package checker judges histories. A check is a function of the evidence alone, so
// that a report can be made again without running anything.
package checker

import (
	"github.com/stockd/stockd/internal/lab/history"
)

// Check judges the history of one try.
type Check func(h *history.History) Finding

// Finding is what a check found.
type Finding struct {
	// Holds tells whether what was expected is there.
	Holds bool `json:"holds"`
	// Says is the finding in one sentence, with its numbers, whether it holds or
	// not.
	Says string `json:"says"`
	// Numbers are the figures behind it, by name in snake_case with the unit at
	// the end: oversold_units, longest_wait_ms, wakeups_per_release.
	Numbers map[string]float64 `json:"numbers"`
}
