package main

import (
	"fmt"
	"io"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// newLabProgress reports experiments on w.
func newLabProgress(w io.Writer) scenario.Progress {
	return labProgress{cli.NewProgress(w, 48), cli.IsTerminal(w)}
}

// labProgress reports experiments.
type labProgress struct {
	cli.Progress

	terminal bool
}

// Try reports what is tried; as a line only what is tried again.
func (p labProgress) Try(e scenario.Experiment, part scenario.Part, try int) {
	words := e.Name + ", " + part.Name
	switch {
	case p.terminal && try > 1:
		p.Update(fmt.Sprintf("%s (%d)", words, try))
	case p.terminal:
		p.Update(words)
	case try > 1 && part.Rounds < 2:
		p.Say(fmt.Sprintf("%s: try %d", words, try))
	}
}

// Done reports the verdict over an experiment.
func (p labProgress) Done(r scenario.Result) {
	p.Finish(fmt.Sprintf("%2d %s: %s", r.Number, r.Name, r.Verdict))
}
