package checker_test

import (
	"reflect"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
)

// The first dies with the lock, beside the second and the third; the third waits for it, and is woken by the second.
func TestWhatOthersHadToDoWithALease(t *testing.T) {
	first, second, third, other := lease("a", 0, 0, 1), lease("b", 10, 30, 2), lease("c", 31, 50, 3), lease("d", 5, 45, 1)
	other.Name = "m"
	third.Asked = at(20)
	third.Notes = []history.Event{
		{At: at(15), What: history.Woken, By: lock.ByTimeout}, {At: at(30), What: history.Woken, By: "watch"}, {At: at(30), What: history.Woken, By: "watch"},
	}
	h := of(first, second, third, other, mark("a", 40, "killed"))
	want := map[string]checker.Contention{
		"a": {Died: at(40)},
		"b": {Ahead: "a", Beside: []checker.Beside{{Holder: "a", From: at(10), To: at(30)}}, Woke: 2},
		"c": {Ahead: "a", Beside: []checker.Beside{{Holder: "a", From: at(31), To: at(40)}}},
		"d": {},
	}
	for i, c := range checker.Contentions(h) {
		if holder := h.Leases[i].Holder; !reflect.DeepEqual(c, want[holder]) {
			t.Errorf("%s: %+v, want %+v", holder, c, want[holder])
		}
	}
}

// A holder that had the lock twice is one beside another, and readers are beside none.
func TestEachOtherHolderIsBesideALeaseOnce(t *testing.T) {
	reader := func(holder string, from, to int) history.Lease {
		l := lease(holder, from, to, 0)
		l.Shared = true
		return l
	}
	h := of(reader("a", 0, 20), reader("a", 5, 30), lease("b", 10, 50, 7))
	for i, c := range checker.Contentions(h) {
		want := []checker.Beside(nil)
		if h.Leases[i].Holder == "b" {
			want = []checker.Beside{{Holder: "a", From: at(10), To: at(30)}}
		}
		if !reflect.DeepEqual(c.Beside, want) {
			t.Errorf("beside %s are %+v, want %+v", h.Leases[i].Holder, c.Beside, want)
		}
	}
}
