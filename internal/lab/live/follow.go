package live

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

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
	// mostEnded is how many leases wait for the trace of their request, which is recorded just
	// after them.
	mostEnded = 1000
	// mostATick is how many leases are passed on at a time.
	mostATick = 300
	// mostRecorded is the size of the records at which the replicas of the next sale begin
	// new ones.
	mostRecorded = 256 << 20
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
	open    map[string]*Lease // those that have not ended, by their ids
	ended   []*Lease          // the last ones that have, whose traces may still come
	traces  []history.Trace   // those that have come and were not taken yet
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

// full tells that the records have become large.
func (f *follower) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum int64
	for _, r := range f.records {
		sum += r.read
	}
	return sum > mostRecorded
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
	f.shows, f.pending, f.open, f.lanes = shows, nil, make(map[string]*Lease), Lanes{}
	f.ended, f.traces = nil, nil
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
	changed := make(map[string]Lease)
	for len(f.pending) > 0 && f.pending[0].At.Before(until) {
		f.fold(f.pending[0], changed)
		f.pending = f.pending[1:]
	}
	f.trace(changed, until)
	if len(changed) == 0 && len(f.open) == 0 {
		return failed
	}
	f.lanes.Until = millis(until)
	f.lanes.Waiting = make(map[string]int)
	for _, l := range f.open {
		if l.Granted == 0 {
			f.lanes.Waiting[l.Holder]++
		}
	}
	f.hub.publish(recorded{f.lanes, f.newest(changed)})
	return failed
}

// newest are the leases to pass on, of many the newest ones.
func (f *follower) newest(changed map[string]Lease) []Lease {
	list := make([]Lease, 0, len(changed))
	for _, l := range changed {
		if l.Granted > 0 || l.GaveUp > 0 { // those that only wait are counted
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b Lease) int { return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.ID, b.ID)) })
	if over := len(list) - mostATick; over > 0 {
		f.lanes.Whole = max(f.lanes.Whole, list[over].Granted)
		list = list[over:]
	}
	return list
}

// fold takes one event into the leases.
func (f *follower) fold(e history.Event, changed map[string]Lease) {
	if e.What == died {
		for id, l := range f.open {
			if l.Holder == e.Holder {
				l.Died = millis(e.At)
				changed[id] = *l
				delete(f.open, id)
			}
		}
		return
	}
	if e.What == history.Asked {
		f.open[e.ID] = &Lease{ID: e.ID, Holder: e.Holder, Lock: e.Lock, Name: e.Name, Shared: e.Shared, Asked: millis(e.At), Request: e.Request}
		return
	}
	l := f.open[e.ID]
	if l == nil {
		return // it was asked for before the sale
	}
	if l.note(e) {
		changed[e.ID] = *l
		return
	}
	l.Token, l.Error = cmp.Or(l.Token, e.Token), cmp.Or(l.Error, e.Error)
	switch at := millis(e.At); e.What {
	case history.Granted:
		l.granted(e.At, e.Key, e.TTL, e.At.Add(e.Left))
		f.lanes.Granted++
		if f.heldByAnother(*l) {
			f.lanes.Overlaps++
		}
	case history.GaveUp:
		l.GaveUp = at
		f.end(l)
	case history.Lost:
		l.Lost = at // its release is still to come
	case history.Released:
		l.Released = at
		f.end(l)
	default: // a kind that a later version records
	}
	changed[e.ID] = *l
}

// end keeps a lease for the trace of its request.
func (f *follower) end(l *Lease) {
	delete(f.open, l.ID)
	f.ended = bounded(append(f.ended, l), mostEnded)
}

// trace gives the traces of requests to the leases that they asked for. A trace may be read before
// the end of its lease is taken, and has no lease where its strategy has no lock.
func (f *follower) trace(changed map[string]Lease, until time.Time) {
	if len(f.traces) == 0 {
		return
	}
	of := make(map[string]*Lease, len(f.ended))
	for _, l := range f.ended {
		of[l.Request] = l
	}
	f.traces = slices.DeleteFunc(f.traces, func(t history.Trace) bool {
		l := of[t.Request]
		if l == nil {
			return t.End().Before(until.Add(-time.Second))
		}
		l.traced(t)
		changed[l.ID] = *l
		return true
	})
}

// heldByAnother reports whether another holder has what a lease excludes. The same token of the
// same holder is a lease that was reentered, as the checker sees it.
func (f *follower) heldByAnother(l Lease) bool {
	for id, other := range f.open {
		same := other.Holder == l.Holder && other.Token == l.Token && l.Token != 0
		if id != l.ID && other.Granted > 0 && other.Lost == 0 && exclude(&l, other) && !same {
			return true
		}
	}
	return false
}

// exclude reports whether two leases are not to be held at once.
func exclude(a, b *Lease) bool {
	return a.Lock == b.Lock && a.Name == b.Name && (!a.Shared || !b.Shared)
}

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
			f.traces = append(f.traces, *line.Trace)
		}
		if f.shows(line) {
			f.pending = append(f.pending, *line.Lease)
		}
	}
	return nil
}

// The bounds of what is kept of one lease: the newest.
const (
	mostRenewals = 40
	mostVotes    = 25
	mostWakes    = 40
	mostSteps    = 60
)

// Renewal is a renewal of a lease by its watchdog.
type Renewal struct {
	At Millis `json:"at"`
	// Until is when the lease expires by it; 0: it failed.
	Until Millis `json:"until,omitempty"`
	// Left is what was left of the lease when it began, in milliseconds.
	Left  float64 `json:"left"`
	Error string  `json:"error,omitempty"`
}

// Vote is the answer of one of several masters.
type Vote struct {
	At     Millis  `json:"at"`
	Took   float64 `json:"took"` // in milliseconds
	Master string  `json:"master"`
	// What is voted-for, voted-against or no-vote.
	What history.EventKind `json:"what"`
}

// Wake is a waiter that looked again.
type Wake struct {
	At Millis `json:"at"`
	By string `json:"by"`
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

// granted takes what the grant says of key and expiry.
func (l *Lease) granted(at time.Time, key string, ttl time.Duration, expires time.Time) {
	l.Granted, l.Key, l.TTL = millis(at), key, inMillis(ttl)
	if ttl > 0 {
		l.Expires = millis(expires)
	}
}

// note takes what the lock itself told of the lease, and reports whether that is what the event is.
// Lists are copied, because older forms of the lease are still being sent.
func (l *Lease) note(e history.Event) bool {
	switch at := millis(e.At); e.What {
	case history.Renewed:
		l.Renewals = appended(l.Renewals, mostRenewals, Renewal{At: at, Until: millis(e.At.Add(e.TTL)), Left: inMillis(e.Left)})
	case history.NotRenewed:
		l.Renewals = appended(l.Renewals, mostRenewals, Renewal{At: at, Left: inMillis(e.Left), Error: e.Error})
	case history.VotedFor, history.VotedAgainst, history.NoVote:
		l.Votes = appended(l.Votes, mostVotes, Vote{At: at, Took: inMillis(e.Took), Master: e.By, What: e.What})
	case history.Woken:
		l.Woken++
		l.Wakes = appended(l.Wakes, mostWakes, Wake{At: at, By: e.By})
	default:
		return false
	}
	return true
}

// traced takes the steps of the request that asked for the lease.
func (l *Lease) traced(t history.Trace) {
	l.Steps = nil
	for _, s := range t.Steps {
		l.Steps = append(l.Steps, Step{At: millis(s.At), Took: inMillis(s.Took), What: s.What, Of: s.Of, Error: s.Error})
	}
	l.Steps = bounded(l.Steps, mostSteps)
}

// appended is a new list with one more, and the last so many.
func appended[T any](list []T, most int, one T) []T {
	from := max(0, len(list)+1-most)
	return append(append(make([]T, 0, len(list)+1-from), list[from:]...), one)
}
