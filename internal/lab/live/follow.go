package live

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/service/strategy"
)

// The pace of the lanes.
const (
	followEvery = 100 * time.Millisecond
	// settle is how long an event waits for those of other replicas that happened before
	// it: each line is written as soon as it happens.
	settle = 150 * time.Millisecond
	// maxEnded is how many leases that have ended are looked at again: the trace of their request is recorded just
	// after them, as is what their release did to those that wait.
	maxEnded = 500
	// maxATick is how many leases are passed on at a time.
	maxATick = 300
	// maxRecorded is the size of the records at which the replicas of the next sale begin
	// new ones.
	maxRecorded = 256 << 20
)

// follower reads what the replicas record while they do.
type follower struct {
	hub *hub
	// trapped is called when a replica records that it is about to stop itself.
	trapped func(replica string, at time.Time)

	mu      sync.Mutex
	records []record
	shows   func(history.Line) bool // whether it is of a lease to show
	pending []history.Event
	open    history.Leases           // those that have not ended
	ended   []*history.Lease         // the last ones that have
	deaths  []history.Mark           // of the holders of these
	traces  map[string]history.Trace // by their requests
	sent    map[string]Lease         // these leases as they were passed on
	lanes   Lanes
}

// record is the file of a replica, and how far it has been read.
type record struct {
	path string
	read int64
}

// files has other files read from now on.
func (f *follower) files(paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = make([]record, len(paths))
	for i, path := range paths {
		f.records[i].path = path
	}
}

// add has one more file read.
func (f *follower) add(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = append(f.records, record{path: path})
}

// overlaps counts the leases that were granted while another holder had the same lock.
func (f *follower) overlaps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lanes.Overlaps
}

// full tells that the records have become large.
func (f *follower) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum int64
	for _, r := range f.records {
		sum += r.read
	}
	return sum > maxRecorded
}

// sale begins with the leases of another item. The other lines are of the work, which the
// page knows.
func (f *follower) sale(item int64) {
	f.begin(func(l history.Line) bool {
		if l.Lease == nil {
			return false
		}
		its, err := strategy.ItemOf(l.Lease.Name)
		return err == nil && its == item
	})
}

// attempt begins with the files of an experiment.
func (f *follower) attempt(paths []string, shows func(history.Line) bool) {
	f.begin(shows)
	f.files(paths)
}

// rest passes on what is recorded, and follows nothing more.
func (f *follower) rest() {
	_ = f.step(time.Now().Add(settle)) // a record that is gone has been read
	f.begin(func(history.Line) bool { return false })
	f.files(nil)
}

func (f *follower) begin(shows func(history.Line) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shows, f.pending, f.open, f.lanes = shows, nil, make(history.Leases), Lanes{}
	f.ended, f.deaths, f.traces, f.sent = nil, nil, make(map[string]history.Trace), make(map[string]Lease)
}

// died ends the leases that a replica had when it ended.
func (f *follower) died(holder string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = append(f.pending, history.Event{At: at, Holder: holder, What: died})
}

// died is no event of a record: the end of a process is seen from outside.
const died history.EventKind = "died"

// step passes on what was recorded up to a moment ago.
func (f *follower) step(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed error
	for i := range f.records {
		if err := f.readMore(&f.records[i]); err != nil {
			failed = err
		}
	}
	slices.SortStableFunc(f.pending, func(a, b history.Event) int { return a.At.Compare(b.At) })
	until := now.Add(-settle)
	for len(f.pending) > 0 && f.pending[0].At.Before(until) {
		f.fold(f.pending[0])
		f.pending = f.pending[1:]
	}
	changed := f.changed(until)
	if len(changed) == 0 && len(f.open) == 0 {
		return failed
	}
	f.lanes.Until = millis(until)
	f.lanes.Waiting = make(map[string]int)
	for _, l := range f.open {
		if l.Granted.IsZero() {
			f.lanes.Waiting[l.Holder]++
		}
	}
	f.hub.publish(recorded{f.lanes, f.newest(changed)})
	return failed
}

// newest are the leases to pass on, of many the newest ones.
func (f *follower) newest(list []Lease) []Lease {
	slices.SortFunc(list, func(a, b Lease) int { return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.ID, b.ID)) })
	if over := len(list) - maxATick; over > 0 {
		f.lanes.Whole = max(f.lanes.Whole, list[over].Granted)
		list = list[over:]
	}
	return list
}

// fold takes one event into the leases. Those that were asked for before the sale are unknown.
func (f *follower) fold(e history.Event) {
	if e.What == died {
		f.deaths = append(f.deaths, history.Mark{At: e.At, Who: e.Holder, What: checker.Killed})
		for _, l := range f.open {
			if l.Holder == e.Holder {
				f.end(l)
			}
		}
		return
	}
	if err := f.open.Add(e); err != nil {
		return // so it is with a kind that a later version records
	}
	switch e.What {
	case history.Granted:
		f.lanes.Granted++
	case history.GaveUp, history.Released:
		f.end(f.open[e.ID])
	default: // of a loss the release is still to come
	}
}

func (f *follower) end(l *history.Lease) {
	delete(f.open, l.ID)
	f.ended = append(f.ended, l)
}

// changed are the leases that are not as they were passed on. Those that only wait are counted.
func (f *follower) changed(until time.Time) (list []Lease) {
	h := &history.History{Marks: append(slices.Clone(f.deaths), history.Mark{At: until})}
	for _, l := range slices.Concat(f.ended, slices.Collect(maps.Values(f.open))) {
		h.Leases = append(h.Leases, *l)
	}
	contentions, sent := checker.Contentions(h), f.sent
	f.sent = make(map[string]Lease, len(h.Leases))
	list = []Lease{} // the page gets a list also where there are none
	for i, l := range h.Leases {
		if l.Granted.IsZero() && l.GaveUp.IsZero() {
			continue
		}
		one := ofRecord(l, contentions[i], f.traces[l.Request], until)
		before, known := sent[l.ID]
		if one.Steps == nil { // its trace has come, and is not kept any more
			one.Steps = before.Steps
		}
		if before.Granted == 0 && len(one.Beside) > 0 {
			f.lanes.Overlaps++
		}
		if !known || !reflect.DeepEqual(before, one) {
			list = append(list, one)
		}
		f.sent[l.ID] = one
	}
	f.ended = bounded(f.ended, maxEnded)
	maps.DeleteFunc(f.traces, func(_ string, t history.Trace) bool { return t.End().Before(until.Add(-traceFor)) })
	return list
}

// traceFor is how long the trace of a request is kept for its lease.
const traceFor = 5 * time.Second

// readMore reads the whole lines that were added to a record.
func (f *follower) readMore(r *record) error {
	file, err := os.Open(r.path)
	if err != nil {
		return fmt.Errorf("follow the record: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	if _, err := file.Seek(r.read, io.SeekStart); err != nil {
		return fmt.Errorf("follow the record: %w", err)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("follow the record: %w", err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	r.read += int64(len(content))
	for text := range bytes.Lines(content) {
		var line history.Line
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("follow the record: %w: %w", history.ErrBroken, err)
		}
		if m := line.Mark; m != nil && m.What == failpoint.Paused {
			go f.trapped(m.Who, m.At) // it waits for the stage, which may wait for us
		}
		if line.Trace != nil {
			f.traces[line.Trace.Request] = *line.Trace
		}
		if f.shows(line) {
			f.pending = append(f.pending, *line.Lease)
		}
	}
	return nil
}

// The bounds of what is kept of one lease: the newest.
const (
	maxNotes = 100
	maxSteps = 60
)

// Note is a renewal of a lease, a vote on it, or a wake-up of its waiter: see history.Event.
type Note struct {
	At   Millis            `json:"at"`
	What history.EventKind `json:"what"`
	// By is which master voted, or what woke the waiter.
	By string `json:"by,omitempty"`
	// Took and Left are in milliseconds: of a vote, and what was left of a lease when its renewal began.
	Took  float64 `json:"took,omitempty"`
	Left  float64 `json:"left,omitempty"`
	Error string  `json:"error,omitempty"`
}

// Beside is another holder of the same lock, which had it when this lease was granted.
type Beside struct {
	Holder string `json:"holder"`
	From   Millis `json:"from"`
	// To is the end of it; 0: it goes on.
	To Millis `json:"to,omitempty"`
}

// Step is a part of a request; see history.Step.
type Step struct {
	At    Millis           `json:"at"`
	Took  float64          `json:"took"` // in milliseconds
	What  history.StepKind `json:"what"`
	Of    string           `json:"of,omitempty"`
	Error string           `json:"error,omitempty"`
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ofRecord is a lease as the page draws it at a time, with the trace of its request.
func ofRecord(l history.Lease, c checker.Contention, t history.Trace, until time.Time) Lease {
	one := Lease{
		ID: l.ID, Holder: l.Holder, Lock: l.Lock, Name: l.Name, Shared: l.Shared, Token: l.Token, Asked: millis(l.Asked), Granted: millis(l.Granted),
		GaveUp: millis(l.GaveUp), Lost: millis(l.Lost), Released: millis(l.Released), Died: millis(c.Died), Error: l.Error, Request: l.Request,
		Key: l.Key, TTL: inMillis(l.TTL), Expires: millis(l.Expires), Ahead: c.Ahead, Woke: c.Woke,
	}
	if at := l.Outlived(); !at.After(until) {
		one.Outlived = millis(at)
	}
	for _, b := range c.Beside {
		other := Beside{Holder: b.Holder, From: millis(b.From)}
		if b.To.Before(until) {
			other.To = millis(b.To)
		}
		one.Beside = append(one.Beside, other)
	}
	for _, n := range l.Notes {
		one.Notes = append(one.Notes, Note{At: millis(n.At), What: n.What, By: n.By, Took: inMillis(n.Took), Left: inMillis(n.Left), Error: n.Error})
		if n.What == history.Woken {
			one.Woken++
		}
	}
	one.Notes = bounded(one.Notes, maxNotes)
	for _, s := range t.Steps[max(0, len(t.Steps)-maxSteps):] {
		one.Steps = append(one.Steps, Step{At: millis(s.At), Took: inMillis(s.Took), What: s.What, Of: s.Of, Error: s.Error})
	}
	return one
}
