package live

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A file that is passed on has not the names of those who bought with a phone: nothing of it shows them.
func TestARecordingHasNoNamesOfBuyers(t *testing.T) {
	s := Session{hub: newHub()}
	s.hub.publish(buyers{{Name: "Ann", Bought: 3}})
	r := must.Get(s.Recording())(t)
	if len(r.Buyers) > 0 {
		t.Errorf("it has %v", r.Buyers)
	}
	s.hub.look(func(state *State) {
		should.Be(t, len(state.Buyers), 1, "buyers of the page", state.Buyers)
	})
}

// A recording has the leases that the page has dropped, each once and as it ended, and says from
// when on all of them are there.
func TestARecordingHasMoreLeasesThanThePage(t *testing.T) {
	s := &Session{hub: newHub()}
	s.hub.publish(began{Sale{Item: 1}})
	long := Lease{ID: "long", Asked: 1, Granted: 1}
	s.hub.publish(recorded{Leases: []Lease{long}})
	lease := func(i int) Lease { return Lease{ID: fmt.Sprint(i), Asked: Millis(i), Granted: Millis(i)} }
	publish := func(from, to int) {
		for i := from; i <= to; i++ {
			s.hub.publish(recorded{Lanes{Whole: 2}, []Lease{lease(i)}})
		}
	}
	publish(2, 2*maxLeases)
	long.Released = 9999
	s.hub.publish(recorded{Lanes{Whole: 2}, []Lease{long}})
	r := must.Get(s.Recording())(t)
	if len(r.Leases) != 2*maxLeases || !reflect.DeepEqual(r.Leases[0], long) || !reflect.DeepEqual(r.Leases[1], lease(2)) || r.Lanes.Whole != 2 {
		t.Errorf("%d leases from %+v, %+v on, whole from %v on", len(r.Leases), r.Leases[0], r.Leases[1], r.Lanes.Whole)
	}
	publish(2*maxLeases+1, 2*maxLeases+maxRecordedLeases)
	r = must.Get(s.Recording())(t)
	if n := len(r.Leases); n != maxRecordedLeases+maxLeases || r.Lanes.Whole != r.Leases[0].Asked {
		t.Errorf("%d leases from %v on, whole from %v on", n, r.Leases[0].Asked, r.Lanes.Whole)
	}
	s.hub.publish(began{Sale{Item: 2}})
	if r = must.Get(s.Recording())(t); len(r.Leases) != 0 || r.Lanes.Whole != 0 {
		t.Errorf("the next sale begins with %d leases, whole from %v on", len(r.Leases), r.Lanes.Whole)
	}
}

func TestAHistoryBecomesARecording(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	h := &history.History{
		Requests: []history.Request{
			{Start: start, End: at(10), Outcome: history.Sold},
			{Start: start, End: at(10), Outcome: history.Rejected},
			{Start: start, End: at(2400), Outcome: history.Unknown},
			{Start: start, End: at(2400), Outcome: history.Failed, Problem: "busy"},
			{Start: start, End: at(2400), Outcome: history.Failed, Problem: "fenced"},
		},
		Leases:  []history.Lease{{ID: "a", Holder: "replica-2", Lock: "redis-lua", Token: 7, Asked: start, Granted: at(1), Lost: at(5)}},
		Marks:   []history.Mark{{At: at(3), Who: "replica-2", What: "is woken"}},
		Samples: []history.Sample{{At: at(1), GoodsID: 1, Stock: 3, Sold: 1}, {At: at(2), GoodsID: 2, Stock: 9}, {At: at(9), GoodsID: 1, Stock: 1, Sold: 5}},
		Audits: []history.Audit{
			{At: at(8), Audit: stock.NewAudit(1, 1, 3, 4, 4)}, {At: at(20), Audit: stock.NewAudit(2, 9, 9, 0, 0)}, {At: at(20), Audit: stock.NewAudit(1, 0, 3, 6, 6)},
		},
	}
	r := OfHistory("it", h)
	var sum Answers
	var seen []string
	for _, p := range r.Points {
		sum.Sold, sum.Rejected, sum.Unknown = sum.Sold+p.Answers.Sold, sum.Rejected+p.Answers.Rejected, sum.Unknown+p.Answers.Unknown
		sum.Busy, sum.Failed = sum.Busy+p.Answers.Busy, sum.Failed+p.Answers.Failed
		if p.Seen > 0 {
			seen = append(seen, fmt.Sprint(p.Stock, p.Sold, p.Oversold, p.Lost))
		}
	}
	should.Be(t, sum, (Answers{Sold: 1, Rejected: 1, Busy: 1, Failed: 1, Unknown: 1}), "the answers are")
	if got := strings.Join(seen, "; "); got != "3 1 0 1; 1 5 2 3; 0 6 3 3" || r.Sale.Settings.Stock != 3 {
		t.Errorf("of %d units the samples of the first item and its last audit are %s", r.Sale.Settings.Stock, got)
	}
	want := Lease{ID: "a", Holder: "replica-2", Lock: "redis-lua", Token: 7, Asked: millis(start), Granted: millis(at(1)), Lost: millis(at(5))}
	if len(r.Leases) != 1 || !reflect.DeepEqual(r.Leases[0], want) || len(r.Machines) != 1 || r.Machines[0].Name != "replica-2" || len(r.Marks) != 1 {
		t.Errorf("leases %+v, machines %+v, marks %+v", r.Leases, r.Machines, r.Marks)
	}
	lone := history.Lease{ID: "a", Holder: "a", Asked: start, Granted: at(1)}
	if r := OfHistory("leases alone", &history.History{Leases: []history.Lease{lone}}); r.Points == nil {
		t.Error("leases without requests have no list of points, which the page goes through")
	}
	should.Be(t, len(OfHistory("nothing", &history.History{}).Points), 0, "points of an empty history")
}

// The recordings of a saved file are those that were saved, and a fifth of their size at most.
func TestASavedFileKeepsItsRecordingsCompressed(t *testing.T) {
	r := Recording{Title: "小明 </script>"}
	for i := range 2000 {
		at := Millis(1_000_000 + i)
		r.Leases = append(r.Leases, Lease{ID: fmt.Sprint("lease ", i), Holder: "replica-1", Lock: "redis-lua", Asked: at, Notes: []Note{{At: at + 1, What: history.Renewed, Left: 3333}}})
	}
	plain := must.Get(json.Marshal([]Recording{r}))(t)
	var file bytes.Buffer
	must.Do(t, Save(&file, r))
	_, after, _ := strings.Cut(file.String(), `id="recordings">`)
	text, _, _ := strings.Cut(after, "<")
	unzipped := must.Get(gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))))(t)
	got, err := io.ReadAll(unzipped)
	if err != nil || !bytes.Equal(bytes.TrimSpace(got), plain) {
		t.Errorf("the file has %d bytes of recordings, want the %d that were saved (%v)", len(got), len(plain), err)
	}
	if len(text) > len(plain)/5 {
		t.Errorf("%d bytes are saved as %d, want at most a fifth", len(plain), len(text))
	}
}
