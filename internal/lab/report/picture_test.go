package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// ms is a time of a hand-made history.
func ms(n float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(n * float64(time.Millisecond)))
}

// lease is granted at once, and released unless that is 0.
func lease(holder string, granted, released float64) history.Lease {
	l := history.Lease{ID: fmt.Sprint(holder, granted), Name: "goods/1", Holder: holder, Asked: ms(granted), Granted: ms(granted)}
	if released > 0 {
		l.Released = ms(released)
	}
	return l
}

// texts are the letters of a picture, which must be well formed.
func texts(t *testing.T, p *Picture) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.File(&b); err != nil {
		t.Fatal(err)
	}
	var all []string
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("it is not well formed: %v", err)
		}
		if letters, ok := token.(xml.CharData); ok {
			all = append(all, string(letters))
		}
	}
}

// drawn counts the bars of a class in a picture.
func drawn(p *Picture, class string) (n int) {
	for _, s := range p.shapes {
		if s.Class == class {
			n += max(1, strings.Count(s.Text, "M"))
		}
	}
	return n
}

func TestTheTimelineShowsWhoHeldTheLockWhileAnotherDid(t *testing.T) {
	h := &history.History{
		Leases: []history.Lease{lease("replica-1", 0, 100), lease("replica-2", 60, 200), lease("replica-1", 210, 300)},
		Marks:  []history.Mark{{At: ms(50), Until: ms(90), Who: "replica-1", What: "paused <now>"}},
	}
	list := Timelines(h)
	if len(list) != 1 {
		t.Fatalf("there are %d timelines, want one: the overlap is wide enough to be seen", len(list))
	}
	all := texts(t, list[0])
	for _, want := range []string{"replica-1", "Once, two or more held it together", "for 40 ms in all: first at 60 ms for 40 ms, by replica-1 and replica-2.", "\n2 held", "1. 50 ms: replica-1 paused <now>, until 90 ms"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if n := drawn(list[0], "over"); n != 1+2 {
		t.Errorf("%d bars are red, want one above all and one for each holder", n)
	}
}

func TestOverlapsAreThoseOfTheCheckPutTogether(t *testing.T) {
	other := lease("replica-3", 10, 50)
	other.Name = "goods/2"
	lost := lease("replica-4", 400, 0)
	lost.Lost = ms(450)
	for _, c := range []struct {
		name   string
		leases []history.Lease
		want   string
	}{
		{"one after the other", []history.Lease{lease("replica-1", 0, 50), lease("replica-2", 50, 100)}, ""},
		{"other names", []history.Lease{lease("replica-1", 0, 100), other}, ""},
		{"a holder of which no end is known", []history.Lease{lease("replica-1", 0, 0), lease("replica-2", 50, 100)}, "50-100 replica-1 replica-2"},
		{"two", []history.Lease{lease("replica-1", 0, 60), lease("replica-2", 50, 100)}, "50-60 replica-1 replica-2"},
		{"one within another", []history.Lease{lease("replica-1", 0, 100), lease("replica-2", 50, 60)}, "50-60 replica-1 replica-2"},
		{"three", []history.Lease{lease("replica-1", 0, 100), lease("replica-2", 50, 90), lease("replica-3", 80, 120)}, "50-100 replica-1 replica-2 replica-3"},
		{"twice", []history.Lease{lease("replica-1", 0, 100), lease("replica-2", 10, 20), lease("replica-2", 30, 40)}, "10-20 replica-1 replica-2,30-40 replica-1 replica-2"},
		{"until it was notified of the loss", []history.Lease{lost, lease("replica-1", 440, 500)}, "440-450 replica-4 replica-1"},
		{"the same holder", []history.Lease{lease("replica-1", 0, 100), lease("replica-1", 50, 120)}, "50-100 replica-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &history.History{Leases: c.leases}
			found := overlaps(h)
			got := make([]string, 0, len(found))
			for _, o := range found {
				got = append(got, fmt.Sprintf("%d-%d %s", o.from.Sub(ms(0)).Milliseconds(), o.to.Sub(ms(0)).Milliseconds(), strings.Join(o.holders, " ")))
			}
			if all := strings.Join(got, ","); all != c.want {
				t.Errorf("%q, want %q", all, c.want)
			}
		})
	}
}

func TestAKilledHolderHoldsUntilItsDeath(t *testing.T) {
	h := &history.History{
		Leases: []history.Lease{lease("replica-1", 0, 0), lease("replica-2", 500, 1000)},
		Marks:  []history.Mark{{At: ms(20), Who: "replica-2", What: "killed"}, {At: ms(30), Who: "replica-1", What: "killed: it is gone"}},
	}
	if list := holds(h, ms(1000)); !list[0].open || !list[0].to.Equal(ms(30)) {
		t.Errorf("it held until %v, want its death", list[0].to)
	}
	p := Timelines(h)[0]
	if drawn(p, "open") != 1 || !strings.Contains(texts(t, p), "no end is known") {
		t.Error("it is not said that no end is known")
	}
}

func TestAShortOverlapIsShownCloser(t *testing.T) {
	h := &history.History{}
	for i := range 5000 {
		h.Leases = append(h.Leases, lease(fmt.Sprintf("replica-%d", i%3+1), float64(i), float64(i)+0.9))
	}
	h.Leases = append(h.Leases, lease("replica-9", 2500.5, 2501.5))
	list := Timelines(h)
	if len(list) != 2 {
		t.Fatalf("there are %d timelines, want the whole and a closer one", len(list))
	}
	whole, near := list[0], list[1]
	if n := drawn(whole, "hold"); n > mostBars {
		t.Errorf("%d bars are drawn, want %d at most", n, mostBars)
	}
	if notes := strings.Join(whole.Notes, " "); !strings.Contains(notes, "5,001 leases are drawn as ") {
		t.Errorf("it is not said what was drawn as one: %q", notes)
	}
	if drawn(whole, "over") < 2 {
		t.Error("thinning hides the overlap")
	}
	if len(near.Notes) > 0 || drawn(near, "hold") > 10 {
		t.Errorf("the closer picture has %d bars and says %q", drawn(near, "hold"), near.Notes)
	}
}

func TestOfManyHoldersThoseWhoOverlapAreDrawn(t *testing.T) {
	h := &history.History{}
	for i := range 40 {
		h.Leases = append(h.Leases, lease(fmt.Sprintf("contender-%d", i), float64(i*10), float64(i*10+5)))
	}
	h.Leases = append(h.Leases, lease("contender-39", 381, 384))
	p := Timelines(h)[0]
	all := texts(t, p)
	for _, want := range []string{"contender-38", "contender-39", "16 holders of 40 are drawn"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
}

func TestWithoutLeasesTheTimelineHasTheRequests(t *testing.T) {
	h := &history.History{Requests: []history.Request{
		{Start: ms(0), End: ms(50), Outcome: history.Unknown, Client: 3}, {Start: ms(60), End: ms(80), Outcome: history.Sold, Client: 3},
	}}
	list := Timelines(h)
	if len(list) != 1 || drawn(list[0], "unknown") != 1 || drawn(list[0], "sold") != 1 {
		t.Errorf("%d pictures: %+v", len(list), list)
	}
	if Timelines(&history.History{}) != nil || Stock(&history.History{}) != nil || Waits(&history.History{}) != nil || Bars(nil) != nil {
		t.Error("there is a picture of nothing")
	}
}

func TestStockShowsWhatWasSoldBeyondWhatThereWas(t *testing.T) {
	h := &history.History{Audits: []history.Audit{{At: ms(5000), Audit: stock.NewAudit(1, 0, 100, 150, 150)}}}
	for i := range 5000 {
		h.Samples = append(h.Samples, history.Sample{At: ms(float64(i)), GoodsID: 1, Sold: int64(i * 150 / 4999), Stock: max(0, 100-int64(i)/40)})
	}
	h.Samples = append(h.Samples, history.Sample{At: ms(10), GoodsID: 2, Sold: 9999})
	h.Audits = append(h.Audits, history.Audit{At: ms(5001), Audit: stock.NewAudit(2, 1, 10000, 9999, 9999)})
	p := Stock(h)
	all := texts(t, p)
	for _, want := range []string{"150 units were sold at the end of 100 that there were, and the row said 0 left", "sold beyond it: 50", "5,001 points are drawn as 150 columns"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if drawn(p, "excess") != 1 {
		t.Error("what was sold beyond is not marked")
	}
}

func TestThinningKeepsThePeaks(t *testing.T) {
	list := make([]point, 0, 10_000)
	for i := range 10_000 {
		list = append(list, point{ms(float64(i)), float64(i % 7)})
	}
	list[4321].value, list[8765].value = 1000, -1000
	kept := thin(list, newClock(ms(0), ms(0), ms(10_000)))
	if len(kept) > 4*plotColumns {
		t.Errorf("%d points are kept, want %d at most", len(kept), 4*plotColumns)
	}
	if most(kept) != 1000 || least(kept) != -1000 || kept[0] != list[0] || kept[len(kept)-1] != list[9999] {
		t.Errorf("from %v to %v, %v to %v: a peak or an end is lost", least(kept), most(kept), kept[0], kept[len(kept)-1])
	}
}

func TestWaitsAreCountedInTheirBins(t *testing.T) {
	h := &history.History{}
	for i := range 100 {
		h.Requests = append(h.Requests, history.Request{Outcome: history.Sold, Wait: time.Duration(i+1) * time.Millisecond})
	}
	h.Requests = append(h.Requests, history.Request{Outcome: history.Unknown})
	all := texts(t, Waits(h))
	for _, want := range []string{"100 in all: longest 100 ms, 99 % within 99 ms, median 50 ms"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	for d, want := range map[time.Duration]int{0: 0, 99 * time.Microsecond: 0, 100 * time.Microsecond: 1, time.Millisecond: 6, time.Hour: binCount - 1} {
		if got := bin(d); got != want {
			t.Errorf("%v is in bin %d, want %d", d, got, want)
		}
	}
	// A wait is drawn in the bin that it is counted in.
	for _, d := range []time.Duration{150 * time.Microsecond, 3 * time.Millisecond, 700 * time.Millisecond, 40 * time.Second} {
		if x := binX(d) / 100 * binCount; int(x) != bin(d) {
			t.Errorf("%v stands at %.2f bins and is counted in %d", d, x, bin(d))
		}
	}
}

func TestBarsCompareWhatDiffersMost(t *testing.T) {
	p := Bars([]Measured{
		{"herd", map[string]float64{"wakeups_per_release": 49, "sold": 10, "only_here": 3, "a": 1, "b": 1, "c": 1, "d": 1, "e": 1}},
		{"sequential", map[string]float64{"wakeups_per_release": 1, "sold": 10, "a": 2, "b": 2, "c": 2, "d": 2, "e": 2}},
	})
	all := texts(t, p)
	for _, want := range []string{"wakeups per release: herd 49, sequential 1", "The 5 numbers that differ most are drawn; 1 other is in the text only."} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	for _, not := range []string{"only here", "sold"} {
		if strings.Contains(p.Desc, not) {
			t.Errorf("it has %q, which is nothing to compare", not)
		}
	}
}

func TestBadgesDoNotCoverEachOther(t *testing.T) {
	marks := make([]numbered, 0, 60)
	for i := range 60 {
		marks = append(marks, numbered{history.Mark{At: ms(float64(i * i))}, i + 1})
	}
	list := badges(marks, newClock(ms(0), ms(0), ms(3600)))
	next := 1
	for i, b := range list {
		if b.first != next {
			t.Errorf("badge %d begins with %d, want %d", i, b.first, next)
		}
		next = b.last + 1
		for _, before := range list[:i] {
			if before.level == b.level && before.x+onPhone*badgeWidth(before.words())/2 > b.x-onPhone*badgeWidth(b.words())/2 {
				t.Errorf("%s at %.1f covers %s at %.1f", b.words(), b.x, before.words(), before.x)
			}
		}
	}
	if next != 61 {
		t.Errorf("the marks end with %d, want 60", next-1)
	}
}

func TestTicksAreRoundAndNotMany(t *testing.T) {
	for _, a := range []axis{{0, 1}, {0, 4.1}, {0.0713, 0.0738}, {-3, 17}, {0, 5000}, {2.1, 2.1}} {
		ticks := a.ticks(4)
		if len(ticks) > 6 || a.to > a.from && len(ticks) < 2 {
			t.Errorf("from %v to %v: %v", a.from, a.to, ticks)
		}
		for _, v := range ticks {
			if v == 0 && math.Signbit(v) || v < a.from-1e-9 || v > a.to+1e-9 {
				t.Errorf("from %v to %v there is a tick at %v", a.from, a.to, v)
			}
		}
	}
}
