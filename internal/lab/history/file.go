package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// ErrBroken tells that a file is no history, or a damaged one. A last line that
// was cut off is no such damage: it is left out.
var ErrBroken = errors.New("history is broken")

// Read reads files as one history. Of figures with the same name the last one
// counts.
func Read(paths ...string) (*History, error) {
	h := &History{Figures: make(map[string]float64)}
	for _, path := range paths {
		if err := h.read(path); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	h.sort()
	return h, nil
}

func (h *History) read(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fold := Leases{}
	number := 0
	for text := range bytes.Lines(content) {
		number++
		var line Line
		err := json.Unmarshal(text, &line)
		if cutOff(text, err) {
			break // its writer was stopped in the middle of it
		}
		if err == nil {
			err = h.add(line, fold)
		}
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrBroken, number, err)
		}
	}
	for _, lease := range fold {
		h.Leases = append(h.Leases, *lease)
	}
	return nil
}

// cutOff tells a line that ends too early from one that is wrong.
func cutOff(text []byte, err error) bool {
	wrong, ok := errors.AsType[*json.SyntaxError](err)
	return ok && wrong.Offset == int64(len(text)) && !bytes.HasSuffix(text, []byte("\n"))
}

func (h *History) add(line Line, fold Leases) error {
	switch {
	case line.Request != nil:
		h.Requests = append(h.Requests, *line.Request)
	case line.Lease != nil:
		return fold.Add(*line.Lease)
	case line.Mark != nil:
		h.Marks = append(h.Marks, *line.Mark)
	case line.Audit != nil:
		h.Audits = append(h.Audits, *line.Audit)
	case line.Sample != nil:
		h.Samples = append(h.Samples, *line.Sample)
	case line.Trace != nil:
		h.Traces = append(h.Traces, *line.Trace)
	case line.Figure != nil:
		h.Figures[line.Figure.Name] = line.Figure.Value
	default:
		return errors.New("it says nothing")
	}
	return nil
}

// Leases have the leases of one file by their ids.
type Leases map[string]*Lease

// Add takes one event into its lease.
func (f Leases) Add(e Event) error {
	lease := f[e.ID]
	if e.What == Asked {
		if lease != nil {
			return fmt.Errorf("lease %q is asked for twice", e.ID)
		}
		f[e.ID] = &Lease{ID: e.ID, Name: e.Name, Holder: e.Holder, Lock: e.Lock, Shared: e.Shared, Asked: e.At, Request: e.Request}
		return nil
	}
	if lease == nil {
		return fmt.Errorf("lease %q is %s, and was never asked for", e.ID, e.What)
	}
	if slices.Contains([]EventKind{Renewed, NotRenewed, VotedFor, VotedAgainst, NoVote, Woken}, e.What) {
		lease.Notes = append(lease.Notes, e)
		return nil
	}
	switch e.What {
	case Granted:
		lease.Granted, lease.Key, lease.TTL = e.At, e.Key, e.TTL
		if e.TTL > 0 {
			lease.Expires = e.At.Add(e.Left)
		}
	case GaveUp:
		lease.GaveUp = e.At
	case Lost:
		lease.Lost = e.At
	case Released:
		lease.Released = e.At
	default:
		return fmt.Errorf("lease %q is %q, which is no kind of event", e.ID, e.What)
	}
	lease.Token = cmp.Or(lease.Token, e.Token)
	lease.Error = cmp.Or(lease.Error, e.Error)
	return nil
}

func (h *History) sort() {
	for i := range h.Leases {
		slices.SortStableFunc(h.Leases[i].Notes, func(a, b Event) int { return a.At.Compare(b.At) })
	}
	slices.SortStableFunc(h.Traces, func(a, b Trace) int { return a.Start().Compare(b.Start()) })
	slices.SortStableFunc(h.Requests, func(a, b Request) int { return a.Start.Compare(b.Start) })
	slices.SortFunc(h.Leases, func(a, b Lease) int {
		return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(h.Marks, func(a, b Mark) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(h.Audits, func(a, b Audit) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(h.Samples, func(a, b Sample) int { return a.At.Compare(b.At) })
}

// Writer writes lines to a file, each with one write to the system: a process
// that is killed has left every line that it added. It is safe for goroutines.
type Writer struct {
	file *os.File
}

// Create makes the file, and empties one that is there.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return &Writer{file: file}, nil
}

// Append goes on with a file, or makes it. Where its last writer was stopped
// within a line, that line is taken away: behind it every line would be broken. No other
// writer may have the file open, whose line could be taken away for that.
func Append(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("append to history: %w", err)
	}
	content, err := io.ReadAll(file)
	if err == nil {
		err = file.Truncate(int64(bytes.LastIndexByte(content, '\n') + 1))
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("append to history: %w", err)
	}
	return &Writer{file: file}, nil
}

// Add writes a line.
func (w *Writer) Add(line Line) error {
	content, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	if _, err := w.file.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Copy adds the lines of another file that happened at from or later. Of a lease
// that was asked for before, nothing is copied. The other file may still be
// written to: a last line without an end is left for another time.
func (w *Writer) Copy(path string, from time.Time) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("copy history: %w", err)
	}
	known := make(map[string]bool)
	for text := range bytes.Lines(content) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			return nil
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("copy history: %w: %w", ErrBroken, err)
		}
		if !line.since(from, known) {
			continue
		}
		if _, err := w.file.Write(text); err != nil {
			return fmt.Errorf("copy history: %w", err)
		}
	}
	return nil
}

// since tells whether a line happened at from or later; known are the leases that
// were asked for since then.
func (l Line) since(from time.Time, known map[string]bool) bool {
	switch {
	case l.Lease != nil && l.Lease.What == Asked:
		known[l.Lease.ID] = !l.Lease.At.Before(from)
		return known[l.Lease.ID]
	case l.Lease != nil:
		return known[l.Lease.ID]
	case l.Trace != nil:
		return !l.Trace.Start().Before(from)
	case l.Mark != nil:
		return !l.Mark.At.Before(from)
	default:
		return true
	}
}
