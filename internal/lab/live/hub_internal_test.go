package live

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// sell publishes so many points, each with its number as what was sold.
func sell(h *hub, from, count int) {
	for i := range count {
		h.publish(Point{Sold: int64(from + i)})
	}
}

// soldOf are the numbers of points, as a client reads them.
func soldOf(t *testing.T, list []message) (sold []int64) {
	t.Helper()
	for _, m := range list {
		var p Point
		if err := json.Unmarshal(m.Data, &p); err != nil || m.Kind != "point" {
			t.Fatalf("%s %s is no point: %v", m.Kind, m.Data, err)
		}
		sold = append(sold, p.Sold)
	}
	return sold
}

func next(t *testing.T, h *hub, after uint64) []message {
	t.Helper()
	return must.Get(h.next(t.Context(), after))(t)
}

// A page that is loaded late knows as well from when on its leases are all that there were.
func TestASnapshotKeepsWhereItsLeasesBegin(t *testing.T) {
	var s State
	list := make([]Lease, maxLeases+5)
	for i := range list {
		list[i] = Lease{ID: fmt.Sprint(i), Asked: Millis(1000 + i), Granted: Millis(1000 + i)}
	}
	recorded{Lanes{}, list}.apply(&s)
	recorded{Lanes{}, list[len(list)-1:]}.apply(&s) // one of them changes: its trace comes
	should.Be(t, s.Lanes.Whole, list[5].Asked, "all leases are there from")
}

func TestAClientThatReconnectsGetsWhatItMissedOnce(t *testing.T) {
	h := newHub()
	first := next(t, h, 0)
	if len(first) != 1 || first[0].Kind != "snapshot" {
		t.Fatalf("a client without an id gets %v, want a snapshot", first)
	}
	sell(h, 1, 3)
	list := next(t, h, first[0].ID)
	should.Equal(t, soldOf(t, list), []int64{1, 2, 3}, "it gets")
	sell(h, 4, 2)
	should.Equal(t, soldOf(t, next(t, h, list[1].ID)), []int64{3, 4, 5}, "after the second it gets")
}

func TestAClientThatIsTooSlowGetsASnapshotAndWhatFollows(t *testing.T) {
	h := newHub()
	start := next(t, h, 0)[0].ID
	sell(h, 1, maxMessages+1)
	list := next(t, h, start)
	if len(list) != 1 || list[0].Kind != "snapshot" {
		t.Fatalf("it gets %d messages, the first a %s; want one snapshot", len(list), list[0].Kind)
	}
	var s State
	if err := json.Unmarshal(list[0].Data, &s); err != nil || len(s.Points) != maxMessages+1 {
		t.Errorf("the snapshot has %d points, want all %d: %v", len(s.Points), maxMessages+1, err)
	}
	sell(h, 1000, 1)
	should.Equal(t, soldOf(t, next(t, h, list[0].ID)), []int64{1000}, "after the snapshot it gets")
}

// The one that is just not too late still finds its place.
func TestTheOldestPlaceThatIsKeptIsGood(t *testing.T) {
	h := newHub()
	start := next(t, h, 0)[0].ID
	sell(h, 1, maxMessages)
	if got := soldOf(t, next(t, h, start)); len(got) != maxMessages || got[0] != 1 {
		t.Errorf("it gets %d points from %d on, want all %d", len(got), got[0], maxMessages)
	}
}

// An id of another process is no place: neither one before nor one after those of this hub.
func TestAnIDOfAnotherHubGetsASnapshot(t *testing.T) {
	h := newHub()
	sell(h, 1, 2)
	for _, id := range []uint64{1, h.last + 1, h.last + 1000} {
		if list := next(t, h, id); len(list) != 1 || list[0].Kind != "snapshot" || list[0].ID != h.last {
			t.Errorf("after %d comes %v, want a snapshot", id, list)
		}
	}
}

func TestWhatTheHubKeepsIsBounded(t *testing.T) {
	h := newHub()
	for i := range 5 * maxMessages {
		h.publish(Mark{What: strings.Repeat("x", 8<<10), Detail: fmt.Sprint(i)})
		sum := 0
		for _, m := range h.kept {
			sum += len(m.Data)
		}
		if len(h.kept) > maxMessages || sum > maxBytes || sum != h.bytes {
			t.Fatalf("after %d it keeps %d messages of %d bytes, and counts %d; at most %d of %d", i+1, len(h.kept), sum, h.bytes, maxMessages, maxBytes)
		}
	}
	sell(h, 0, 2*maxPoints)
	for i := range 3 * maxLeases {
		h.publish(recorded{Leases: []Lease{{ID: fmt.Sprint(i), Granted: 1}}})
	}
	if s := h.state; len(s.Marks) != maxMarks || len(s.Points) != maxPoints || len(s.Leases) != maxLeases {
		t.Errorf("the state has %d marks, %d points and %d leases", len(s.Marks), len(s.Points), len(s.Leases))
	}
}

// A client that waits is woken by the next event, and by the end of its request.
func TestAClientWaitsForWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		at := h.last
		got := make(chan []message)
		for range 3 {
			go func() { list, _ := h.next(context.Background(), at); got <- list }()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case list := <-got:
			t.Fatalf("nothing has happened, and a client gets %v", list)
		default:
		}
		sell(h, 7, 1)
		for range 3 {
			should.Equal(t, soldOf(t, <-got), []int64{7}, "it gets")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		should.Reject(h.next(ctx, h.last))(t, context.DeadlineExceeded, "a client that goes gets")
	})
}

// A new sale begins with nothing of the one before.
func TestASaleBeginsWithoutThePictureOfTheLast(t *testing.T) {
	h := newHub()
	sell(h, 1, 3)
	h.publish(Mark{What: "kill"})
	h.publish(recorded{Leases: []Lease{{ID: "a", Granted: 1}}})
	h.publish(began{Sale{Phase: Starting, Item: 2}})
	if s := h.state; s.Sale.Item != 2 || len(s.Points)+len(s.Marks)+len(s.Leases) != 0 {
		t.Errorf("the state is %+v", s)
	}
}
