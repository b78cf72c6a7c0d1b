package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/trial"
)

// WriteTrial writes a page with the libraries in the place of experiments, and what each was asked in that of parts.
func WriteTrial(path string, r *trial.Report) error {
	page := live.Report{Facts: serverFacts(r.Servers)}
	for i, l := range r.Libraries {
		play := &live.Play{Result: experiments.Result{Number: i + 1, Name: l.Name, Title: l.Name}, Parts: []live.PlayPart{}, Recordings: []live.Recording{}}
		marks := make(map[trial.Mark]int)
		for _, c := range r.Cells {
			at := slices.IndexFunc(r.Questions, func(q trial.Question) bool { return q.Name == c.Question })
			if c.Library != l.Name || c.History == nil || at < 0 {
				continue
			}
			marks[c.Mark]++
			q := r.Questions[at]
			part := experiments.PartResult{Name: q.Name, Does: q.Asks, Expect: c.Promise, Finding: checker.Finding{Says: c.Says}}
			shown := live.PlayPart{PartResult: part, Over: true, Chinese: experiments.PartWords{Does: q.Chinese, Says: c.Chinese}, Mark: string(c.Mark)}
			recording := live.OfHistory(l.Name+", "+q.Name, c.History)
			recording.Part, recording.Narration = &shown, experiments.Narration()
			play.Parts, play.Recordings = append(play.Parts, shown), append(play.Recordings, recording)
		}
		for _, mark := range []trial.Mark{trial.Holds, trial.Broken, trial.NotPromised} {
			if marks[mark] > 0 {
				play.Reason = strings.TrimPrefix(fmt.Sprintf("%s, %d × %s", play.Reason, marks[mark], mark), ", ")
			}
		}
		page.Experiments = append(page.Experiments, play)
	}
	return write(path, page.Save)
}
