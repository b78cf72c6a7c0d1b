package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// The picture in the README shows the data that is kept beside it.
func TestTheOverviewIsDrawnFromItsData(t *testing.T) {
	const docs = "../../../docs"
	var sales []report.Sale
	if err := json.Unmarshal([]byte(text(t, filepath.Join(docs, "oversell.json"))), &sales); err != nil {
		t.Fatal(err)
	}
	var drawn bytes.Buffer
	if err := report.Sales(sales).File(&drawn); err != nil {
		t.Fatal(err)
	}
	if text(t, filepath.Join(docs, "oversell.svg")) != drawn.String() {
		t.Error("docs/oversell.svg is not drawn from docs/oversell.json: run stocklab lab overview DIR")
	}
}

func TestAnOverviewNeedsItsExperiment(t *testing.T) {
	run := t.TempDir()
	if err := report.Overview(t.TempDir(), run); err == nil {
		t.Error("a folder without a run is accepted")
	}
	if err := report.Write(run, &scenario.Report{}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := report.Overview(folder, run); err == nil {
		t.Error("a run without the experiment is accepted")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%d files are written: %v", len(left), err)
	}
}
