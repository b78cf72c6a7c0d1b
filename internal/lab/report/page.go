// Package report presents the results of the lab: a table, a page with pictures, and the
// pages of docs/lab.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/load/verdict"
)

// The files of a report in the folder of its run.
const (
	jsonFile = "report.json"
	// File is the page, in the folder of a run.
	File = "report.html"
)

// Write writes report.json and report.html into the folder of a run, which has the histories of its parts, and beside
// them the same page for each experiment alone.
func Write(folder string, r *experiments.Report) error {
	if err := verdict.WriteJSON(filepath.Join(folder, jsonFile), r); err != nil {
		return err
	}
	whole := live.Report{Facts: facts(r), Interrupted: r.Interrupted, Experiments: []*live.Play{}}
	for i := range r.Experiments {
		e := played(folder, &r.Experiments[i])
		whole.Experiments = append(whole.Experiments, e)
		one := live.Report{Facts: whole.Facts, Experiments: []*live.Play{e}}
		if err := write(filepath.Join(folder, fmt.Sprintf("replay-%02d-%s.html", e.Number, e.Name)), one.Save); err != nil {
			return err
		}
	}
	return write(filepath.Join(folder, File), whole.Save)
}

// played is an experiment whose parts have left their histories in the folder of the run. A history that is missing or
// broken is said on the page and is no error.
func played(folder string, e *experiments.Result) *live.Play {
	made := &live.Play{Result: *e, Chinese: experiments.Chinese(e.Name), Recordings: []live.Recording{}}
	made.Evidence = nil // the parts have it
	for _, p := range e.Parts {
		part := live.PartOf(e.Name, p)
		if p.NotRun == "" && p.History != "" {
			h, err := history.Read(filepath.Join(folder, p.History))
			if err != nil {
				part.Trouble = err.Error()
			} else {
				made.Recordings = append(made.Recordings, live.OfPart(fmt.Sprint(e.Number, " ", e.Name), part, h))
				part.Tables = tables(h, p.Pictures)
			}
		}
		part.Figures = figures(p.Finding.Numbers)
		made.Parts = append(made.Parts, part)
	}
	return made
}

// write writes a file of a report, or of docs/lab.
func write(path string, save func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := errors.Join(save(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Read reads the report in the folder of a run again.
func Read(folder string) (*experiments.Report, error) {
	content, err := os.ReadFile(filepath.Join(folder, jsonFile))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var r experiments.Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("read report: %s: %w", filepath.Join(folder, jsonFile), err)
	}
	return &r, nil
}

// draw is a still of the replay of a history, of the kind that is asked for first; nil where there is nothing to see.
func draw(h *history.History, asked []experiments.Picture) *Picture {
	for _, one := range asked {
		switch {
		case one == experiments.Stock && len(h.Samples) > 0:
			return sales(sampled(h))
		case one == experiments.Timeline && len(h.Leases) > 0:
			return holders(live.OfHistory("", h))
		}
	}
	return nil
}

// WriteTrial writes a page with the libraries in the place of experiments, and what each was asked in that of parts.
func WriteTrial(path string, r *trial.Report) error {
	page := live.Report{Facts: serverFacts(r.Servers)}
	for i, l := range r.Libraries {
		play := &live.Play{Result: experiments.Result{Experiment: experiments.Experiment{Number: i + 1, Name: l.Name, Title: l.Name}}, Parts: []live.PlayPart{}, Recordings: []live.Recording{}}
		marks := make(map[trial.Mark]int)
		for _, c := range r.Cells {
			at := slices.IndexFunc(r.Questions, func(q trial.Question) bool { return q.Name == c.Question })
			if c.Library != l.Name || c.History == nil || at < 0 {
				continue
			}
			marks[c.Mark]++
			q := r.Questions[at]
			part := experiments.PartResult{Part: experiments.Part{Name: q.Name, Does: q.Asks, Expect: c.Promise}, Finding: checker.Finding{Says: c.Says}}
			shown := live.PlayPart{PartResult: part, Over: true, Chinese: experiments.PartWords{Does: q.Chinese, Says: c.Chinese}, Mark: string(c.Mark)}
			play.Parts, play.Recordings = append(play.Parts, shown), append(play.Recordings, live.OfPart(l.Name, shown, c.History))
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
