package main

import (
	"fmt"
	"io"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// newLabProgress is a bar on a terminal, and plain lines elsewhere.
func newLabProgress(w io.Writer) scenario.Progress {
	if isTerminal(w) {
		b := newBar(w)
		b.writer.SetMessageLength(48) // or the bar would move with each part
		return labBar{b}
	}
	return &labLines{&lines{w: w, start: time.Now()}}
}

// labLines writes a line for each experiment.
type labLines struct{ *lines }

// Try says nothing but what is not made for the first time.
func (l *labLines) Try(e scenario.Experiment, p scenario.Part, try int) {
	if try > 1 && p.Rounds < 2 {
		l.linef("%s, %s: try %d", e.Name, p.Name, try)
	}
}

// Done writes what an experiment came to.
func (l *labLines) Done(r scenario.Result) {
	l.done++
	l.linef("%d/%d %s: %s", l.done, l.runs, r.Name, r.Verdict)
}

// labBar shows how far the whole is, and what is being made.
type labBar struct{ *bar }

// Try shows what is being made beside the bar.
func (b labBar) Try(e scenario.Experiment, p scenario.Part, try int) {
	words := e.Name + ", " + p.Name
	if try > 1 {
		words += fmt.Sprintf(" (%d)", try)
	}
	b.overall.UpdateMessage(words)
}

// Done puts what an experiment came to above the bar.
func (b labBar) Done(r scenario.Result) {
	b.overall.Increment(1)
	b.writer.Log("%2d %s: %s", r.Number, r.Name, r.Verdict)
}
