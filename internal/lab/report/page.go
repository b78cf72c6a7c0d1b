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
func show(part *live.Evidence, p experiments.PartResult, h *history.History) error {
	part.Figures = figures(p.Finding.Numbers)
	if h == nil {
		return nil
	}
	for _, drawn := range draw(h, unplayed(h, p.Pictures)) {
		var b strings.Builder
		if err := drawn.File(&b); err != nil {
			return err
		}
		part.Pictures = append(part.Pictures, live.Picture{Says: drawn.Title + ": " + drawn.Desc, SVG: b.String()})
	}
	return nil
}

// unplayed are the pictures of what a replay does not show: it has leases, and the stock over time.
func unplayed(h *history.History, asked []experiments.Picture) []experiments.Picture {
	return slices.DeleteFunc(slices.Clone(asked), func(one experiments.Picture) bool {
		return one == experiments.Stock && len(h.Samples) > 0 || one == experiments.Timeline && len(h.Leases) > 0
	})
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

// draw draws what there is of a history of the pictures that are asked for.
func draw(h *history.History, asked []experiments.Picture) (list []*Picture) {
	by := map[experiments.Picture]func(*history.History) *Picture{
		experiments.Timeline: Timeline, experiments.Stock: Stock, experiments.Waits: Waits, experiments.Steps: Steps,
		experiments.Votes: Votes, experiments.Wakes: Wakes, experiments.Rows: Rows,
	}
	for _, one := range asked {
		if of := by[one]; of != nil { // of bars the page has a table
			list = append(list, of(h))
		}
	}
	return slices.DeleteFunc(list, func(p *Picture) bool { return p == nil })
}
