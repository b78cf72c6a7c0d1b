package live

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// note writes an event with more than add does.
func (r *records) note(id string, what history.EventKind, at int, change func(*history.Event)) {
	r.t.Helper()
	e := history.Event{At: r.at(at), ID: id, Name: "goods/7", Holder: "a", Lock: "l", What: what, Request: "r-" + id}
	if change != nil {
		change(&e)
	}
	if err := r.writers["a"].Add(history.Line{Lease: &e}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *records) trace(id string, at int) {
	r.t.Helper()
	step := history.Step{At: r.at(at), Took: 2500 * time.Microsecond, What: history.StepRead, Of: "SELECT tb_goods_stock"}
	if err := r.writers["a"].Add(history.Line{Trace: &history.Trace{Request: "r-" + id, Replica: "a", Steps: []history.Step{step}}}); err != nil {
		r.t.Fatal(err)
	}
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
	h, err := history.Read(r.follow.records[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]Lease{"live": leases, "replayed": OfHistory("", h).Leases} {
		if len(list) != 1 {
			t.Fatalf("%s: leases are %+v, want one", name, list)
		}
		l, after := list[0], func(at int) Millis { return millis(r.at(at)) }
		if l.Request != "r-1" || l.Key != "node-4" || l.TTL != 300 || l.Expires != after(305) || l.Released != after(220) || l.Woken != 1 {
			t.Errorf("%s: the lease is %+v", name, l)
		}
		if len(l.Renewals) != 2 || l.Renewals[0].Until != after(410) || l.Renewals[0].Left != 195 || l.Renewals[1].Until != 0 || l.Renewals[1].Error != "no answer" {
			t.Errorf("%s: renewals are %+v", name, l.Renewals)
		}
		if len(l.Votes) != 1 || l.Votes[0] != (Vote{At: after(1), Took: 2, Master: "3", What: history.VotedFor}) {
			t.Errorf("%s: votes are %+v", name, l.Votes)
		}
		if len(l.Wakes) != 1 || l.Wakes[0] != (Wake{At: after(5), By: "watch"}) {
			t.Errorf("%s: wake-ups are %+v", name, l.Wakes)
		}
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
	if l := r.step().Leases; len(l) != 1 || len(l[0].Steps) != 1 {
		t.Errorf("leases are %+v, want one with its step", l)
	}
	r.trace("of no lease", 5)
	if r.step(); len(r.follow.traces) != 0 {
		t.Errorf("%d traces wait for a lease that never comes", len(r.follow.traces))
	}
}

func TestWhatIsKeptOfALeaseIsBounded(t *testing.T) {
	var l Lease
	for range 10 * mostWakes {
		l.note(history.Event{What: history.Woken})
		l.note(history.Event{What: history.Renewed})
		l.note(history.Event{What: history.NoVote})
	}
	if len(l.Wakes) != mostWakes || l.Woken != 10*mostWakes || len(l.Renewals) != mostRenewals || len(l.Votes) != mostVotes {
		t.Errorf("%d wake-ups of %d, %d renewals and %d votes", len(l.Wakes), l.Woken, len(l.Renewals), len(l.Votes))
	}
}
