package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/report"
)

// newProgress is a bar on a terminal, and plain lines elsewhere.
func newProgress(w io.Writer) demo.Progress {
	if isTerminal(w) {
		return newBar(w)
	}
	return &lines{w: w, start: time.Now()}
}

// newSteps is the same for a suite of the benchmark.
func newSteps(w io.Writer) bench.Progress {
	if isTerminal(w) {
		b := newBar(w)
		b.writer.SetMessageLength(72) // or the bar would move with each message
		return b
	}
	return &lines{w: w, start: time.Now()}
}

// lines writes one line for everything that happens.
type lines struct {
	w     io.Writer
	start time.Time
	runs  int
	done  int
}

func (l *lines) Say(words string) { l.linef("%s", words) }
func (l *lines) Begin(runs int)   { l.runs = runs }
func (l *lines) Run(string, int)  {}
func (l *lines) Answered(int)     {}
func (l *lines) End()             {}

func (l *lines) Done(r report.Run) {
	l.done++
	l.linef("%d/%d %s on %s: %s", l.done, l.runs, r.Name(), replicas(r.Replicas), summary(r))
}

// Step writes what one measurement came to.
func (l *lines) Step(words string, left time.Duration) {
	l.done++
	l.linef("%d/%d%s  %s", l.done, l.runs, timeLeft(left), words)
}

func (l *lines) linef(format string, args ...any) {
	//nolint:errcheck // progress that nobody reads is no failure
	fmt.Fprintf(l.w, "%5.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

func replicas(n int) string {
	if n == 0 {
		return "replicas that do not name themselves"
	}
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

func summary(r report.Run) string {
	if r.Verdict == report.NotRun {
		return "not run"
	}
	return fmt.Sprintf("sold %s of %s (%s), %s", humanize.Comma(r.Sold), humanize.Comma(r.Stock), r.Reason, r.Verdict)
}

// bar shows how far the whole is, and below it how far the run is.
type bar struct {
	writer  progress.Writer
	overall *progress.Tracker
	current *progress.Tracker
}

func newBar(w io.Writer) *bar {
	writer := progress.NewWriter()
	writer.SetOutputWriter(w)
	writer.SetAutoStop(false)
	writer.SetTrackerLength(30)
	writer.SetUpdateFrequency(100 * time.Millisecond)
	writer.SetStyle(progress.StyleBlocks)
	writer.Style().Visibility.ETA = true
	writer.Style().Visibility.Speed = false
	go writer.Render()
	return &bar{writer: writer}
}

func (b *bar) Say(words string) { b.writer.Log("%s", words) }

func (b *bar) Begin(runs int) {
	b.overall = &progress.Tracker{Message: "all runs", Total: int64(runs), Units: progress.UnitsDefault}
	b.writer.AppendTracker(b.overall)
}

func (b *bar) Run(name string, requests int) {
	b.current = &progress.Tracker{Message: name, Total: int64(requests), RemoveOnCompletion: true}
	b.writer.AppendTracker(b.current)
}

func (b *bar) Answered(requests int) { b.current.SetValue(int64(requests)) }

func (b *bar) Done(report.Run) {
	if b.current != nil {
		b.current.MarkAsDone()
	}
	b.overall.Increment(1)
}

// Step shows what one measurement came to beside the bar.
func (b *bar) Step(words string, left time.Duration) {
	b.overall.Increment(1)
	b.overall.UpdateMessage(words + timeLeft(left))
}

// timeLeft is empty where nobody knows it.
func timeLeft(left time.Duration) string {
	if left == 0 {
		return ""
	}
	return ", " + left.Round(time.Second).String() + " left"
}

func (b *bar) End() {
	b.writer.Stop()
	for b.writer.IsRenderInProgress() {
		time.Sleep(10 * time.Millisecond)
	}
}
