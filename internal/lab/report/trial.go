package report

import (
	"slices"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/trial"
)

// WriteTrial writes a page with the libraries in the place of experiments, and what each was asked in that of parts.
func WriteTrial(path string, r *trial.Report) error {
	page := live.Report{Facts: serverFacts(r.Servers)}
	for i, l := range r.Libraries {
		play := &live.Play{Result: experiments.Result{Number: i + 1, Name: l.Name, Title: l.Name, Verdict: experiments.Reproduced}, Recordings: []live.Recording{}}
		for _, c := range r.Cells {
			at := slices.IndexFunc(r.Questions, func(q trial.Question) bool { return q.Name == c.Question })
			if c.Library != l.Name || c.History == nil || at < 0 {
				continue
			}
			if c.Mark == trial.Broken {
				play.Verdict = experiments.NotReproduced
			}
			q := r.Questions[at]
			part := experiments.PartResult{Name: q.Name, Does: q.Asks, Expect: c.Promise, Finding: checker.Finding{Holds: c.Mark != trial.Broken && c.Mark != trial.NotPromised, Says: c.Says}}
			shown := live.PlayPart{PartResult: part, Over: true, Chinese: experiments.PartWords{Does: q.Chinese, Says: c.Chinese}}
			recording := live.OfHistory(l.Name+", "+q.Name, c.History)
			recording.Part = &shown
			play.Parts, play.Recordings = append(play.Parts, shown), append(play.Recordings, recording)
		}
		page.Experiments = append(page.Experiments, play)
	}
	return write(path, page.Save)
}
