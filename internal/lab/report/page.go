// Package report presents the results of the lab: a table, a page with pictures, and the
// pages of docs/lab.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load/verdict"
)

// The files of a report in the folder of its run.
const (
	jsonFile = "report.json"
	// File is the page, in the folder of a run.
	File = "report.html"
)

// Write writes report.json and report.html into the folder of a run, which has
// the histories of its parts. A history that is missing or broken is said on the
// page and is no error.
func Write(folder string, r *scenario.Report) error {
	if err := verdict.WriteJSON(filepath.Join(folder, jsonFile), r); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, File))
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := writeHTML(file, folder, r); err != nil {
		_ = file.Close() // the page was not written anyway
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Read reads the report in the folder of a run again.
func Read(folder string) (*scenario.Report, error) {
	content, err := os.ReadFile(filepath.Join(folder, jsonFile))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var r scenario.Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("read report: %s: %w", filepath.Join(folder, jsonFile), err)
	}
	return &r, nil
}
