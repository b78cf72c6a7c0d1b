package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// ErrBroken tells that a file is no history, or a damaged one. A last line that
// was cut off is no such damage: see History.Cut.
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
			h.Cut = append(h.Cut, path)
			break
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
	if isNote(e.What) {
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

// isNote reports whether a lock itself told of an event.
func isNote(what EventKind) bool {
	return slices.Contains([]EventKind{Renewed, NotRenewed, VotedFor, VotedAgainst, NoVote, Woken}, what)
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
