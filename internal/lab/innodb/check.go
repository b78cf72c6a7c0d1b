package innodb

import (
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

// The figures of the other probes, in a history.
const (
	DeleteWaits = "delete_waits_in_passing"
	UpdateWaits = "update_waits_in_passing"
	Deadlocks   = "deadlocks"
	Inserted    = "inserted_rows"
	Duplicates  = "duplicate_keys"
)

// Figures are the matrix as the figures of a history: 1 for what is locked, by
// combination and place: "plain_rr.gap_5_10".
func Figures(matrix map[Combination]Locked) map[string]float64 {
	figures := make(map[string]float64)
	for c, locked := range matrix {
		for place, blocked := range locked {
			figures[c.figure(place)] = oneIf(blocked)
		}
	}
	return figures
}

func (c Combination) figure(place string) string { return c.String() + "." + place }

func oneIf(locked bool) float64 {
	if locked {
		return 1
	}
	return 0
}

// AsClaimed expects what the source says of the statement, place by place. Where
// a server is known to differ, the finding says so and holds.
func AsClaimed(s Statement) checker.Check {
	return func(h *history.History) checker.Finding {
		f := checker.Finding{Holds: true, Numbers: make(map[string]float64)}
		var differences []string
		exact := 0
		for _, c := range Combinations() {
			same, excused, words := c.compare(s, h.Figures, f.Numbers)
			exact += int(oneIf(same))
			f.Holds = f.Holds && (same || excused)
			differences = append(differences, words...)
		}
		f.Numbers["combinations_as_claimed"] = float64(exact)
		f.Says = strings.Join(append([]string{
			fmt.Sprintf("in %d of %d combinations exactly what the source says is locked", exact, len(Combinations())),
		}, differences...), "; ")
		return f
	}
}

func (c Combination) compare(s Statement, figures, numbers map[string]float64) (same, excused bool, words []string) {
	same, excused = true, true
	for _, p := range c.Index.Places() {
		locked, tried := figures[c.figure(p.Name)]
		if p.Kind != Entry { // an entry is locked with its row
			numbers[fmt.Sprintf("%s_%ss_locked", c, p.Kind)] += locked
		}
		switch claimed := c.claims(s, p); {
		case !tried:
			excused = false
			words = append(words, fmt.Sprintf("%s: %s was not tried", c, p.Name))
		case locked == oneIf(claimed):
			continue
		case claimed:
			excused = false
			words = append(words, fmt.Sprintf("%s: %s is free, though the source has it locked", c, p.Name))
		default:
			why := c.excuse(s, p)
			excused = excused && why != ""
			words = append(words, strings.TrimSuffix(fmt.Sprintf("%s: %s is locked, though the source has it free: %s", c, p.Name, why), ": "))
		}
		same = false
	}
	return same, excused, words
}

// LocksInPassing expects a DELETE that reads every row to wait for one that does not
// match. What an UPDATE does is reported beside it.
func LocksInPassing() checker.Check {
	return func(h *history.History) checker.Finding {
		f := checker.Finding{Numbers: map[string]float64{
			DeleteWaits: h.Figures[DeleteWaits], UpdateWaits: h.Figures[UpdateWaits],
		}}
		f.Holds = h.Figures[DeleteWaits] == 1
		f.Says = "DELETE " + passing(h.Figures[DeleteWaits]) + "; UPDATE " + passing(h.Figures[UpdateWaits])
		if h.Figures[UpdateWaits] == 0 {
			f.Says += ", since it looks at the row as it was last committed first (a semi-consistent read), of which the source says nothing"
		}
		return f
	}
}

func passing(figure float64) string {
	if figure == 1 {
		return "waits for a locked row that does not match"
	}
	return "passes a locked row that does not match"
}

// OneDeadlockEach expects the server to have ended a deadlock in every round.
func OneDeadlockEach(rounds int) checker.Check {
	return insertions(func(h *history.History) bool {
		return h.Figures[Deadlocks] == float64(rounds) && h.Figures[Inserted] == float64(rounds)
	})
}

// NoDeadlock expects one of the two to have inserted the row in every round, and
// the other one to have got a duplicate key.
func NoDeadlock(rounds int) checker.Check {
	return insertions(func(h *history.History) bool {
		return h.Figures[Deadlocks] == 0 && h.Figures[Inserted] == float64(rounds) && h.Figures[Duplicates] == float64(rounds)
	})
}

func insertions(holds func(*history.History) bool) checker.Check {
	return func(h *history.History) checker.Finding {
		f := checker.Finding{Holds: holds(h), Numbers: make(map[string]float64)}
		for _, name := range []string{Inserted, Duplicates, Deadlocks} {
			f.Numbers[name] = h.Figures[name]
		}
		f.Says = fmt.Sprintf("%.0f rows inserted, %.0f duplicate keys, %.0f deadlocks", h.Figures[Inserted], h.Figures[Duplicates], h.Figures[Deadlocks])
		for _, m := range h.Marks {
			f.Says += fmt.Sprintf("; the server: %q", m.What)
		}
		return f
	}
}
