package live

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// records are the files of replicas, written as replicas do.
type records struct {
	t       *testing.T
	start   time.Time
	writers map[string]*history.Writer
	follow  *follower
	trapped chan string
}

func newRecords(t *testing.T, replicas ...string) *records {
	t.Helper()
	r := &records{t: t, start: time.Now().Add(-time.Hour), writers: make(map[string]*history.Writer), trapped: make(chan string, 1)}
	folder := t.TempDir()
	files := make([]string, len(replicas))
	for i, name := range replicas {
		files[i] = filepath.Join(folder, name+".jsonl")
		w := must.Get(history.Create(files[i]))(t)
		t.Cleanup(func() { _ = w.Close() })
		r.writers[name] = w
	}
	r.follow = &follower{hub: newHub(), trapped: func(name string, _ time.Time) { r.trapped <- name }}
	r.follow.files(files)
	r.follow.sale(7)
	return r
}

// add records an event so many milliseconds after the start.
func (r *records) add(replica, id string, what history.EventKind, token uint64, at int) {
	r.t.Helper()
	r.write(replica, history.Event{At: r.at(at), ID: id, Name: "goods/7", Holder: replica, Lock: "l", What: what, Token: token})
}

func (r *records) write(replica string, e history.Event) {
	r.t.Helper()
	must.Do(r.t, r.writers[replica].Add(history.Line{Lease: &e}))
}

func (r *records) at(ms int) time.Time { return r.start.Add(time.Duration(ms) * time.Millisecond) }

func (r *records) step() State {
	r.t.Helper()
	must.Do(r.t, r.follow.step(time.Now()))
	return r.follow.hub.state
}

// Two holders at once are seen whichever file is read first, as the checker sees them.
func TestAnOverlapOfTwoReplicasIsCounted(t *testing.T) {
	for _, c := range []struct {
		name             string
		released, second int // of the first lease, and the grant of the second
		overlaps         int
	}{
		{"one after the other", 20, 21, 0},
		{"at the same moment", 20, 20, 0},
		{"both at once", 20, 19, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecords(t, "a", "b")
			r.add("b", "b1", history.Asked, 0, 1)
			r.add("b", "b1", history.Granted, 2, c.second)
			r.add("a", "a1", history.Asked, 0, 0)
			r.add("a", "a1", history.Granted, 1, 10)
			r.add("a", "a1", history.Released, 1, c.released)
			s := r.step()
			if s.Lanes.Granted != 2 || s.Lanes.Overlaps != c.overlaps {
				t.Errorf("%d grants and %d overlaps, want 2 and %d", s.Lanes.Granted, s.Lanes.Overlaps, c.overlaps)
			}
		})
	}
}

// A line of another replica may be written a moment after one that happened later.
func TestAnEventWaitsForThoseBeforeIt(t *testing.T) {
	r := newRecords(t, "a", "b")
	r.add("a", "a1", history.Asked, 0, 0)
	r.add("a", "a1", history.Granted, 1, 10)
	r.add("b", "b1", history.Asked, 0, 5)
	r.add("b", "b1", history.Granted, 2, 21)
	must.Do(t, r.follow.step(r.at(21).Add(settle)))
	should.Be(t, r.follow.hub.state.Lanes.Granted, 1, "grants are counted at once")
	r.add("a", "a1", history.Released, 1, 20)
	if s := r.step(); s.Lanes.Granted != 2 || s.Lanes.Overlaps != 0 {
		t.Errorf("%d grants and %d overlaps, want 2 and none", s.Lanes.Granted, s.Lanes.Overlaps)
	}
}

// A holder that was notified of the loss is none any more.
func TestALostLeaseDoesNotOverlap(t *testing.T) {
	r := newRecords(t, "a", "b")
	r.add("a", "a1", history.Asked, 0, 0)
	r.add("a", "a1", history.Granted, 1, 10)
	r.add("a", "a1", history.Lost, 1, 20)
	r.add("b", "b1", history.Asked, 0, 5)
	r.add("b", "b1", history.Granted, 2, 21)
	r.add("a", "a1", history.Released, 1, 30)
	if s := r.step(); s.Lanes.Overlaps != 0 || len(s.Leases) != 2 || s.Leases[0].Lost != millis(r.at(20)) {
		t.Errorf("%d overlaps, want none; the leases are %+v", s.Lanes.Overlaps, s.Leases)
	}
}

func TestALeaseEndsWithItsReplica(t *testing.T) {
	r := newRecords(t, "a")
	r.add("a", "a1", history.Asked, 0, 0)
	r.add("a", "a1", history.Granted, 1, 10)
	r.add("a", "a2", history.Asked, 0, 11)
	if s := r.step(); s.Lanes.Waiting["a"] != 1 || len(s.Leases) != 1 || s.Leases[0].Died != 0 {
		t.Errorf("before, %d wait and the leases are %+v", s.Lanes.Waiting["a"], s.Leases)
	}
	r.follow.died("a", r.at(30))
	s := r.step()
	if len(s.Leases) != 1 || s.Leases[0].Died != millis(r.at(30)) || s.Lanes.Waiting["a"] != 0 {
		t.Errorf("after, %d wait and the leases are %+v", s.Lanes.Waiting["a"], s.Leases)
	}
}

// A line is read when it is whole, and once.
func TestALineThatIsNotWholeIsReadLater(t *testing.T) {
	r := newRecords(t, "a")
	r.add("a", "a1", history.Asked, 0, 0)
	path := r.follow.records[0].path
	whole := must.Get(os.ReadFile(path))(t)
	for cut := range whole {
		must.Do(t, os.WriteFile(path, whole[:cut], 0o600))
		if s := r.step(); len(s.Lanes.Waiting) != 0 {
			t.Fatalf("%d of %d bytes are read as a line", cut, len(whole))
		}
	}
	must.Do(t, os.WriteFile(path, whole, 0o600))
	for range 2 {
		should.Be(t, r.step().Lanes.Waiting["a"], 1, "those that wait")
	}
}

func TestLeasesOfOtherSalesAreNotShown(t *testing.T) {
	r := newRecords(t, "a")
	r.add("a", "a1", history.Asked, 0, 0)
	r.step()
	r.follow.sale(8)
	r.add("a", "a1", history.Granted, 1, 10)
	r.add("a", "a2", history.Asked, 0, 11)
	r.add("a", "a2", history.Granted, 2, 12)
	should.Be(t, r.step().Lanes.Granted, 0, "grants of item 7 in the sale of item 8")
}

// Of very many leases the newest are passed on, and the state says from when on all are there.
func TestOfVeryManyLeasesTheNewestArePassedOn(t *testing.T) {
	r := newRecords(t, "a")
	for i := range maxATick + 5 {
		id := string(rune('a'+i%26)) + time.Duration(i).String()
		r.add("a", id, history.Asked, 0, 10*i)
		r.add("a", id, history.Granted, uint64(i+1), 10*i+1)
		r.add("a", id, history.Released, uint64(i+1), 10*i+5)
	}
	s := r.step()
	if len(s.Leases) != maxATick || s.Lanes.Granted != maxATick+5 {
		t.Fatalf("%d leases of %d", len(s.Leases), s.Lanes.Granted)
	}
	if s.Lanes.Whole != millis(r.at(51)) || s.Leases[0].Granted != s.Lanes.Whole {
		t.Errorf("all leases are there from %v on, and the first is of %v; want %v", s.Lanes.Whole, s.Leases[0].Granted, millis(r.at(51)))
	}
	if !slices.IsSortedFunc(s.Leases, func(a, b Lease) int { return int(a.Granted - b.Granted) }) {
		t.Error("they are not in the order of their grants")
	}
}

func TestAReplicaThatStopsItselfIsNoticed(t *testing.T) {
	r := newRecords(t, "a")
	for _, what := range []string{failpoint.Held, failpoint.Paused} {
		must.Do(t, r.writers["a"].Add(history.Line{Mark: &history.Mark{At: r.at(1), Who: "a", What: what}}))
	}
	r.step()
	should.Be(t, <-r.trapped, "a", "the one that stopped")
	select {
	case name := <-r.trapped:
		t.Errorf("%s stopped twice", name)
	default:
	}
}

// note writes an event with more than add does.
func (r *records) note(id string, what history.EventKind, at int, change func(*history.Event)) {
	r.t.Helper()
	e := history.Event{At: r.at(at), ID: id, Name: "goods/7", Holder: "a", Lock: "l", What: what, Request: "r-" + id}
	if change != nil {
		change(&e)
	}
	r.write("a", e)
}

func (r *records) trace(id string, at int) {
	r.t.Helper()
	step := history.Step{At: r.at(at), Took: 2500 * time.Microsecond, What: history.StepRead, Of: "SELECT tb_goods_stock"}
	must.Do(r.t, r.writers["a"].Add(history.Line{Trace: &history.Trace{Request: "r-" + id, Replica: "a", Steps: []history.Step{step}}}))
}

// lived is a lease that waited, was voted on, renewed and not renewed, and released.
func (r *records) lived() {
	r.note("1", history.Asked, 0, nil)
	r.note("1", history.VotedFor, 1, func(e *history.Event) { e.By, e.Took = "3", 2*time.Millisecond })
	r.note("1", history.Woken, 5, func(e *history.Event) { e.By = "watch" })
	r.note("1", history.Granted, 10, func(e *history.Event) {
		e.Token, e.Key, e.TTL, e.Left = 4, "node-4", 300*time.Millisecond, 295*time.Millisecond
	})
	r.note("1", history.Renewed, 110, func(e *history.Event) { e.TTL, e.Left = 300*time.Millisecond, 195*time.Millisecond })
	r.note("1", history.NotRenewed, 210, func(e *history.Event) { e.Left, e.Error = 200*time.Millisecond, "no answer" })
	r.note("1", history.Released, 220, nil)
	r.trace("1", 20)
}

// Live and replayed, a lease is the same.
func TestALeaseHasItsRenewalsVotesWakeUpsAndSteps(t *testing.T) {
	r := newRecords(t, "a")
	r.lived()
	leases := r.step().Leases
	h := must.Get(history.Read(r.follow.records[0].path))(t)
	for name, list := range map[string][]Lease{"live": leases, "replayed": OfHistory("", h).Leases} {
		if len(list) != 1 {
			t.Fatalf("%s: leases are %+v, want one", name, list)
		}
		l, after := list[0], func(at int) Millis { return millis(r.at(at)) }
		if l.Request != "r-1" || l.Key != "node-4" || l.TTL != 300 || l.Expires != after(305) || l.Released != after(220) || l.Woken != 1 {
			t.Errorf("%s: the lease is %+v", name, l)
		}
		want := []Note{
			{At: after(1), Took: 2, By: "3", What: history.VotedFor},
			{At: after(5), By: "watch", What: history.Woken},
			{At: after(110), Left: 195, What: history.Renewed},
			{At: after(210), Left: 200, Error: "no answer", What: history.NotRenewed},
		}
		should.Equal(t, l.Notes, want, "notes are", name)
		if len(l.Steps) != 1 || l.Steps[0] != (Step{At: after(20), Took: 2.5, What: history.StepRead, Of: "SELECT tb_goods_stock"}) {
			t.Errorf("%s: steps are %+v", name, l.Steps)
		}
	}
}

// A trace is recorded after its lease, and may be read before or after the lease has been taken.
func TestATraceThatComesLateIsOfItsLease(t *testing.T) {
	r := newRecords(t, "a")
	r.note("1", history.Asked, 0, nil)
	r.note("1", history.Granted, 10, nil)
	r.note("1", history.Released, 20, nil)
	if l := r.step().Leases; len(l) != 1 || len(l[0].Steps) != 0 {
		t.Fatalf("leases are %+v, want one without steps", l)
	}
	r.trace("1", 5)
	for range 2 { // also when the trace is so old that it is not kept
		if l := r.step().Leases; len(l) != 1 || len(l[0].Steps) != 1 {
			t.Errorf("leases are %+v, want one with its step", l)
		}
	}
}

func TestWhatIsKeptOfALeaseIsBounded(t *testing.T) {
	r := newRecords(t)
	var of history.Lease
	for range 10 * maxNotes {
		of.Notes = append(of.Notes, history.Event{What: history.Woken})
	}
	if l := ofRecord(of, checker.Contention{}, history.Trace{}, r.at(0)); len(l.Notes) != maxNotes || l.Woken != 10*maxNotes {
		t.Errorf("%d notes are kept, of %d wake-ups", len(l.Notes), l.Woken)
	}
}
