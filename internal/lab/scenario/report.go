package scenario

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

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

// Reread judges a run once more, by the histories in its folder. Experiments that
// are not among the known ones stay as they are.
func Reread(folder string, known []Experiment, r *Report) error {
	var errs []error
	for i := range r.Experiments {
		result := &r.Experiments[i]
		at := slices.IndexFunc(known, func(e Experiment) bool { return e.Name == result.Name })
		if at < 0 {
			continue
		}
		if err := result.reread(folder, known[at]); err != nil {
			errs = append(errs, fmt.Errorf("judge %s again: %w", result.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Result) reread(folder string, e Experiment) error {
	for i := range r.Parts {
		part := &r.Parts[i]
		at := slices.IndexFunc(e.Parts, func(p Part) bool { return p.Name == part.Name })
		if at < 0 || part.NotRun != "" {
			continue
		}
		h, err := history.Read(filepath.Join(folder, part.History))
		if err != nil {
			return err
		}
		part.Finding = e.Parts[at].Check(h)
	}
	r.judge()
	return nil
}
