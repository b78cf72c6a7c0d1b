package report

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// replay writes a page into the folder of a run that plays the parts of an experiment again, and
// returns its file. It is empty where no part has a history.
func replay(folder string, e *scenario.Result) (name string, err error) {
	var list []live.Recording
	for _, p := range e.Parts {
		if p.NotRun != "" || p.History == "" {
			continue
		}
		one, err := live.OfPart(folder, e.Number, e.Name, p)
		if err != nil {
			continue // the part says so on the report's own page
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return "", nil
	}
	name = fmt.Sprintf("replay-%02d-%s.html", e.Number, e.Name)
	file, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		return "", fmt.Errorf("write replay: %w", err)
	}
	if err := live.Save(file, list...); err != nil {
		_ = file.Close() // the page was not written anyway
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("write replay: %w", err)
	}
	return name, nil
}
