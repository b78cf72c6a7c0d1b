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

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/live"
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
	whole := live.Report{Facts: facts(r), Interrupted: r.Interrupted, Experiments: []*live.Chapter{}}
	for i := range r.Experiments {
		c, err := live.ChapterOf(folder, &r.Experiments[i], show)
		if err != nil {
			return err
		}
		whole.Experiments = append(whole.Experiments, c)
		one := live.Report{Facts: whole.Facts, Experiments: []*live.Chapter{c}}
		if err := write(filepath.Join(folder, fmt.Sprintf("replay-%02d-%s.html", c.Number, c.Name)), one.Save); err != nil {
			return err
		}
	}
	return write(filepath.Join(folder, File), whole.Save)
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

// show adds the figures of a part, and what its replay does not show.
func show(part *live.Evidence, p experiments.PartResult, h *history.History) {
	part.Figures = figures(p.Finding.Numbers)
	if h != nil {
		part.Tables = tables(h, p.Pictures)
	}
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
		switch sale := SaleOf(h); {
		case one == experiments.Stock && len(sale.Points) > 0:
			return Sales([]Sale{sale})
		case one == experiments.Timeline && len(h.Leases) > 0:
			return holders(live.OfHistory("", h))
		case one == experiments.Timeline, one == experiments.Steps:
			unlocked := *h
			unlocked.Leases = nil
			if r := live.OfHistory("", &unlocked); len(r.Leases) > 0 {
				return requests(r)
			}
		}
	}
	return nil
}
