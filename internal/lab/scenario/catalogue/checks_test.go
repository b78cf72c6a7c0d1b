package catalogue_test

import (
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

// checkOf is the check of a part.
func checkOf(t *testing.T, experiment, part string) checker.Check {
	t.Helper()
	picked, err := catalogue.Pick([]string{experiment})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(picked[0].Parts, func(p scenario.Part) bool { return p.Name == part })
	if i < 0 {
		t.Fatalf("%s has no part %s", experiment, part)
	}
	return picked[0].Parts[i].Check
}

// judged is a history made by hand, and whether a part is then as expected.
type judged struct {
	experiment, part, name string
	history                *history.History
	holds                  bool
}

func assertJudged(t *testing.T, all ...judged) {
	t.Helper()
	for _, c := range all {
		if f := checkOf(t, c.experiment, c.part)(c.history); f.Holds != c.holds {
			t.Errorf("%s/%s, %s: it holds: %t, want %t: %s", c.experiment, c.part, c.name, f.Holds, c.holds, f.Says)
		}
	}
}

func figures(pairs map[string]float64) *history.History { return &history.History{Figures: pairs} }

func TestAMomentInWhichNoneIsPaidInTimeShowsNothing(t *testing.T) {
	moment := func(inTime, expired float64) *history.History {
		return figures(map[string]float64{step.PaidAndBack: 0, step.UnitsWrong: 0, step.PaidInTime: inTime, step.ExpiredFirst: expired})
	}
	assertJudged(
		t,
		judged{"holds", "one-decides", "both", moment(9, 31), true},
		judged{"holds", "one-decides", "none in time", moment(0, 40), false},
		judged{"holds", "one-decides", "none expired", moment(40, 0), false},
	)
}
