package scenario

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

// made runs one experiment that needs nothing.
func made(t *testing.T, parts ...Part) (Result, error) {
	t.Helper()
	backends := &servers.Backends{Database: &servers.Database{}, Missing: map[string]string{"zookeeper": "needs ZooKeeper: not found"}}
	plan := Plan{Folder: t.TempDir(), Progress: silent{}}
	r := &run{plan: plan, provisioner: &provisioner{plan: plan, backends: backends}}
	return r.experiment(t.Context(), Experiment{Number: 7, Name: "made-up", Parts: parts})
}

type silent struct{}

func (silent) Say(string)                {}
func (silent) Begin(int)                 {}
func (silent) Try(Experiment, Part, int) {}
func (silent) Done(Result)               {}
func (silent) End()                      {}

// measured writes a figure, which grows with each try.
func measured() Step {
	value := 0.0
	return func(_ context.Context, s *Environment) error {
		value++
		return s.Figure("measured", value)
	}
}

// reaches holds from a figure of at least.
func reaches(least float64) checker.Check {
	return func(h *history.History) checker.Finding {
		value := h.Figures["measured"]
		return checker.Finding{Holds: value >= least, Says: "it says", Numbers: map[string]float64{"measured": value}}
	}
}

// staysBelow holds below a figure.
func staysBelow(most float64) checker.Check {
	return func(h *history.History) checker.Finding {
		return checker.Finding{Holds: h.Figures["measured"] < most, Says: "it says"}
	}
}

func TestAPartThatHoldsIsReproducedByWhatIsInItsHistory(t *testing.T) {
	r, err := made(t, Part{Name: "one", Steps: []Step{measured()}, Check: reaches(1)})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Reproduced || r.Tries != 1 || r.Evidence["one.measured"] != 1 {
		t.Errorf("%+v", r)
	}
}

func TestAFailureByChanceIsTriedUntilItIsSeenAndEveryTryCounts(t *testing.T) {
	r, err := made(t, Part{Name: "one", Steps: []Step{measured()}, Check: reaches(3), Tries: 5})
	if err != nil || r.Verdict != Reproduced || r.Tries != 3 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestTriesAreBounded(t *testing.T) {
	r, err := made(t, Part{Name: "one", Steps: []Step{measured()}, Check: reaches(10), Tries: 4})
	if err != nil || r.Verdict != NotReproduced || r.Tries != 4 || r.Reason == "" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestARemedyMustHoldInEachOfItsRounds(t *testing.T) {
	for rounds, want := range map[int]Verdict{2: Reproduced, 3: NotReproduced} {
		r, err := made(t, Part{Name: "one", Remedy: true, Steps: []Step{measured()}, Check: staysBelow(3), Rounds: rounds})
		if err != nil || r.Verdict != want || r.Tries != rounds {
			t.Errorf("%d rounds: %v, %+v", rounds, err, r)
		}
	}
}

func TestARemedyThatFailsOnceIsNotTriedAgain(t *testing.T) {
	r, err := made(t, Part{Name: "one", Remedy: true, Steps: []Step{measured()}, Check: reaches(2), Tries: 5})
	if err != nil || r.Verdict != NotReproduced || r.Tries != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestBothHalvesMustHold(t *testing.T) {
	holds := Part{Name: "failure", Steps: []Step{measured()}, Check: reaches(1)}
	fails := Part{Name: "remedy", Remedy: true, Steps: []Step{measured()}, Check: reaches(2)}
	r, err := made(t, holds, fails)
	if err != nil || r.Verdict != NotReproduced || len(r.Parts) != 2 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestWhatIsMissingIsNotRunAndSaysWhy(t *testing.T) {
	r, err := made(t, Part{Name: "one", Stage: Stage{Needs: []Need{ZooKeeper}}, Steps: []Step{measured()}, Check: reaches(1)})
	if err != nil || r.Verdict != NotRun || r.Reason != "one: needs ZooKeeper: not found" || r.Tries != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestAServerThatAStageLacksIsNotRunAndNoError(t *testing.T) {
	lacking := func(context.Context, *Environment) ([]string, error) {
		return nil, &servers.MissingError{What: "a clock", How: "a shop has them"}
	}
	r, err := made(t, Part{Name: "one", Stage: Stage{Servers: lacking}, Steps: []Step{measured()}, Check: reaches(1)})
	if err != nil || r.Verdict != NotRun || r.Reason != "one: needs a clock; a shop has them" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestSQLiteIsNoMySQL(t *testing.T) {
	th := &provisioner{backends: &servers.Backends{Database: &servers.Database{Info: servers.Info{Started: servers.Embedded}}}}
	if th.lacks(Stage{Needs: []Need{MySQL}}) == "" {
		t.Error("SQLite passes for MySQL")
	}
	th.backends.Database.Started = servers.Local
	if reason := th.lacks(Stage{Needs: []Need{MySQL}}); reason != "" {
		t.Error(reason)
	}
}

func TestAStepThatFailsIsAnErrorAndNoVerdict(t *testing.T) {
	broken := errors.New("the server is gone")
	r, err := made(t, Part{
		Name: "one", Check: reaches(0), Tries: 3,
		Steps: []Step{func(context.Context, *Environment) error { return broken }},
	})
	if !errors.Is(err, broken) || r.Verdict != NotRun || r.Tries != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestWhatATryLeavesBehindIsEndedAlsoWhenItFails(t *testing.T) {
	ended := 0
	_, err := made(t, Part{Name: "one", Check: reaches(0), Steps: []Step{func(_ context.Context, s *Environment) error {
		s.Later(func() error { ended++; return nil })
		return errors.New("no")
	}}})
	if err == nil || ended != 1 {
		t.Errorf("%v, ended %d times", err, ended)
	}
}

func TestAReportIsJudgedAgainByItsHistories(t *testing.T) {
	folder := t.TempDir()
	plan := Plan{Folder: folder, Progress: silent{}}
	r := &run{plan: plan, provisioner: &provisioner{plan: plan, backends: &servers.Backends{Database: &servers.Database{}}}}
	e := Experiment{Number: 7, Name: "made-up", Parts: []Part{{Name: "one", Steps: []Step{measured()}, Check: reaches(1)}}}
	result, err := r.experiment(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	report := &Report{Experiments: []Result{result}}
	file := filepath.Join(folder, "07-made-up", "one-1.jsonl")
	if err := os.WriteFile(file, []byte(`{"figure":{"name":"measured","value":0}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Reread(folder, []Experiment{e}, report); err != nil {
		t.Fatal(err)
	}
	if got := report.Experiments[0]; got.Verdict != NotReproduced || got.Evidence["one.measured"] != 0 {
		t.Errorf("%+v", got)
	}
}
