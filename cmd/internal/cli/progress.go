package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/stockd/stockd/internal/load/verdict"
)

// Progress reports how far a run is: on a terminal as bars, elsewhere as lines.
type Progress interface {
	// Say reports an event.
	Say(words string)
	// Begin announces the number of runs, once.
	Begin(runs int)
	// Run reports the begin of a run with so many requests, Answered how many of them are
	// answered, Done its result.
	Run(name string, requests int)
	Answered(requests int)
	Done(r verdict.Run)
	// Step reports the result of a measurement, and the time that is left, or 0.
	Step(words string, left time.Duration)
	// Update changes what is reported as being done.
	Update(words string)
	// Finish reports the result of a part in words.
	Finish(words string)
	// End is called once, after everything else.
	End()
}

// NewProgress writes to w; width bounds the words beside a bar, and 0 does not.
func NewProgress(w io.Writer, width int) Progress {
	if !IsTerminal(w) {
		return &lines{w: w, start: time.Now()}
	}
	b := newBar(w)
	if width > 0 {
		b.writer.SetMessageLength(width) // or the bar would move with each message
	}
	return b
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// lines writes one line for each event.
type lines struct {
	w     io.Writer
	start time.Time
	runs  int
	done  int

	run      string // that is made
	requests int    // of it; 0: it ends by its time
	said     time.Time
}

// answeredEvery is how often a run that is made says how far it is: a shorter run needs no such line.
const answeredEvery = 4 * time.Second

func (l *lines) Say(words string) { l.linef("%s", words) }
func (l *lines) Begin(runs int)   { l.runs = runs }
func (l *lines) End()             {}

func (l *lines) Run(name string, requests int) {
	l.run, l.requests, l.said = name, requests, time.Now()
}

func (l *lines) Answered(requests int) {
	if time.Since(l.said) < answeredEvery {
		return
	}
	l.said = time.Now()
	of := ""
	if l.requests > 0 {
		of = " of " + humanize.Comma(int64(l.requests))
	}
	l.linef("%s: %s%s requests answered", l.run, humanize.Comma(int64(requests)), of)
}

func (l *lines) Done(r verdict.Run) {
	l.done++
	l.linef("%d/%d %s on %s: %s", l.done, l.runs, r.Name(), replicas(r.Replicas), summary(r))
}

func (l *lines) Step(words string, left time.Duration) {
	l.done++
	l.linef("%d/%d%s  %s", l.done, l.runs, timeLeft(left), words)
}

// Update writes what is done again alone: the rest is in the lines of what is done.
func (l *lines) Update(string) {}

func (l *lines) Finish(words string) {
	l.done++
	l.linef("%d/%d %s", l.done, l.runs, words)
}

func (l *lines) linef(format string, args ...any) {
	//nolint:errcheck // progress is not a result
	fmt.Fprintf(l.w, "%5.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

func replicas(n int) string {
	if n == 0 {
		return "an unknown number of replicas"
	}
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

func summary(r verdict.Run) string {
	words := r.Words()
	if r.Verdict == verdict.NotRun {
		return words
	}
	if r.Verdict == verdict.Unexpected {
		words = r.Remark()
	}
	return fmt.Sprintf("sold %s of %s: %s", humanize.Comma(r.Sold), humanize.Comma(r.Stock), words)
}

// bar shows how far the whole is, and below it how far the run is.
type bar struct {
	writer  progress.Writer
	drawn   chan struct{} // closed when the last is drawn
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
	drawn := make(chan struct{})
	go func() {
		defer close(drawn)
		writer.Render()
	}()
	return &bar{writer: writer, drawn: drawn}
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

func (b *bar) Update(words string) { b.overall.UpdateMessage(words) }

func (b *bar) Finish(words string) {
	b.overall.Increment(1)
	b.writer.Log("%s", words)
}

func (b *bar) Answered(requests int) { b.current.SetValue(int64(requests)) }

func (b *bar) Done(verdict.Run) {
	if b.current != nil {
		b.current.MarkAsDone()
	}
	b.overall.Increment(1)
}

func (b *bar) Step(words string, left time.Duration) {
	b.overall.Increment(1)
	b.overall.UpdateMessage(words + timeLeft(left))
}

// timeLeft is empty where it is not known.
func timeLeft(left time.Duration) string {
	if left == 0 {
		return ""
	}
	return ", " + left.Round(time.Second).String() + " left"
}

func (b *bar) End() {
	for {
		b.writer.Stop() // has no effect before the drawing has begun
		select {
		case <-b.drawn:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// errUnexpected makes the exit status say what the table says.
var errUnexpected = errors.New("not every run came out as expected")

// Show prints a report, writes it to the file where path names one, and returns an error
// where a run was not as its strategy guarantees.
func Show(r *verdict.Report, out io.Writer, path string) error {
	if len(r.Runs) == 0 {
		return nil
	}
	if err := r.Table(out, IsTerminal(out)); err != nil {
		return err
	}
	if path != "" {
		if err := verdict.WriteJSON(path, r); err != nil {
			return err
		}
	}
	if !r.AsExpected() {
		return errUnexpected
	}
	return nil
}
