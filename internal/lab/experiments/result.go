package experiments

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Verdict is what came of an experiment.
type Verdict string

// The verdicts.
const (
	Reproduced    Verdict = "reproduced"
	NotReproduced Verdict = "not reproduced"
	NotRun        Verdict = "not run"
)

// Result is an experiment with what came of it, as JSON has it.
type Result struct {
	Experiment

	// Verdict is reproduced where every part held.
	Verdict Verdict `json:"verdict"`
	// Reason is the findings in words, after what was not run, and why.
	Reason string `json:"reason"`
	// Tries is how often its parts were made, all together.
	Tries   int     `json:"tries"`
	Seconds float64 `json:"seconds"`
	// Evidence has the numbers of all parts: "naive.oversold_units".
	Evidence map[string]float64 `json:"evidence"`
	Parts    []PartResult       `json:"parts"`
}

// PartResult is what came of a part: the finding of its last try.
type PartResult struct {
	Part

	Tries   int             `json:"tries"`
	Finding checker.Finding `json:"finding"`
	// History is the file of the last try, relative to the folder of the run.
	History string `json:"history"`
	// Contradiction is porcupine's picture of answers that no order of the purchases
	// explains, beside the history, or empty.
	Contradiction string `json:"contradiction,omitempty"`
	// NotRun is why it was not, or empty.
	NotRun string    `json:"not_run,omitempty"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
}

// judge concludes the verdict from the parts: reproduced where each of them held,
// not run where one of them was not made, and not reproduced otherwise. One that
// did not hold weighs more than one that was not made.
func (r *Result) judge() {
	var contradicted, missing, held []string
	r.Tries, r.Evidence = 0, make(map[string]float64)
	for _, p := range r.Parts {
		r.Tries += p.Tries
		for name, value := range p.Finding.Numbers {
			r.Evidence[p.Name+"."+name] = value
		}
		switch {
		case p.NotRun != "":
			missing = append(missing, p.Name+": "+p.NotRun)
		case !p.Finding.Holds:
			contradicted = append(contradicted, p.Name+": "+p.Finding.Says)
		default:
			held = append(held, p.Name+": "+p.Finding.Says)
		}
	}
	switch {
	case len(contradicted) > 0:
		r.Verdict, r.Reason = NotReproduced, strings.Join(contradicted, "; ")
	case len(missing) > 0 || len(held) == 0:
		r.Verdict, r.Reason = NotRun, strings.Join(append(missing, held...), "; ")
	default:
		r.Verdict, r.Reason = Reproduced, strings.Join(held, "; ")
	}
}

// Report is what a run of experiments came to: report.json in the folder of the
// run, beside the histories.
type Report struct {
	// Machine says where it ran, Servers on what.
	Machine servers.Machine         `json:"machine"`
	Servers map[string]servers.Info `json:"servers"`
	Start   time.Time               `json:"start"`
	Seconds float64                 `json:"seconds"`
	// Interrupted tells that the run was ended before its last experiment.
	Interrupted bool     `json:"interrupted"`
	Experiments []Result `json:"experiments"`
}

// Reread judges a run once more, by the histories in its folder. Parts that are not among the known ones stay as they are.
func Reread(folder string, known []Experiment, r *Report) error {
	checks := make(map[string]checker.Check)
	for _, e := range known {
		for _, p := range e.Parts {
			checks[e.Name+"/"+p.Name] = p.Check
		}
	}
	for i := range r.Experiments {
		result := &r.Experiments[i]
		for j := range result.Parts {
			part := &result.Parts[j]
			check := checks[result.Name+"/"+part.Name]
			if check == nil || part.NotRun != "" {
				continue
			}
			h, err := history.Read(filepath.Join(folder, part.History))
			if err != nil {
				return fmt.Errorf("judge %s again: %w", result.Name, err)
			}
			part.Finding = check(h)
			result.judge()
		}
	}
	return nil
}
