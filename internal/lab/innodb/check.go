package innodb

import (
	"fmt"
	"strconv"

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

// figure is that of a place of the matrix in a history, which is 1 where it is locked: "plain_rr.gap_5_10".
func (c Combination) figure(place string) string { return c.String() + "." + place }

// AsClaimed expects what the source says of the statement, place by place. Where
// a server is known to differ, the finding says so and holds.
func AsClaimed(s Statement) checker.Check {
	return func(h *history.History) checker.Finding {
		holds, numbers := true, make(map[string]float64)
		var differences []checker.Fact
		exact := 0
		for _, c := range Combinations() {
			same, excused, different := c.compare(s, h.Figures, numbers)
			exact += int(checker.OneIf(same))
			holds = holds && (same || excused)
			differences = append(differences, different...)
		}
		numbers["combinations_as_claimed"] = float64(exact)
		return checker.Found(holds, numbers, append([]checker.Fact{checker.Say("as-claimed", exact, len(Combinations()))}, differences...)...)
	}
}

func (c Combination) compare(s Statement, figures, numbers map[string]float64) (same, excused bool, different []checker.Fact) {
	same, excused = true, true
	for _, p := range c.Index.Places() {
		locked, tried := figures[c.figure(p.Name)]
		if p.Kind != Entry { // an entry is locked with its row
			numbers[fmt.Sprintf("%s_%ss_locked", c, p.Kind)] += locked
		}
		switch claimed := c.Claims(s, p); {
		case !tried:
			excused = false
			different = append(different, checker.Say("place-not-tried", c, p.Name))
		case locked == checker.OneIf(claimed):
			continue
		case claimed:
			excused = false
			different = append(different, checker.Say("place-free", c, p.Name))
		default:
			why := c.excuse(s, p)
			excused = excused && why != ""
			different = append(different, checker.Say("place-locked", c, p.Name))
			if why != "" {
				different = append(different, checker.Say("excused", why))
			}
		}
		same = false
	}
	return same, excused, different
}

// LocksInPassing expects a DELETE that reads every row to wait for one that does not
// match. What an UPDATE does is reported beside it.
func LocksInPassing() checker.Check {
	return func(h *history.History) checker.Finding {
		facts := []checker.Fact{passing("DELETE", h.Figures[DeleteWaits]), passing("UPDATE", h.Figures[UpdateWaits])}
		if h.Figures[UpdateWaits] == 0 {
			facts = append(facts, checker.Say("semi-consistent"))
		}
		numbers := map[string]float64{DeleteWaits: h.Figures[DeleteWaits], UpdateWaits: h.Figures[UpdateWaits]}
		return checker.Found(h.Figures[DeleteWaits] == 1, numbers, facts...)
	}
}

func passing(statement string, figure float64) checker.Fact {
	if figure == 1 {
		return checker.Say("waits-in-passing", statement)
	}
	return checker.Say("passes", statement)
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
		numbers := make(map[string]float64)
		for _, name := range []string{Inserted, Duplicates, Deadlocks} {
			numbers[name] = h.Figures[name]
		}
		facts := make([]checker.Fact, 0, 1+len(h.Marks))
		facts = append(facts, checker.Say("insertions", h.Figures[Inserted], h.Figures[Duplicates], h.Figures[Deadlocks]))
		for _, m := range h.Marks {
			facts = append(facts, checker.Say("server-says", strconv.Quote(m.What)))
		}
		return checker.Found(holds(h), numbers, facts...)
	}
}
