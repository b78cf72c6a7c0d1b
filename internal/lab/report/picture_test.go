package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
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
	p := Timeline(h)
	all := texts(t, p)
	for _, want := range []string{"replica-1", "Once, two or more held it together", "for 40 ms in all: first at 60 ms for 40 ms, by replica-1 and replica-2.", "\n2 held", "1. 50 ms: replica-1 paused <now>, until 90 ms"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if n := drawn(p, "over"); n != 1+2 {
		t.Errorf("%d bars are red, want one above all and one for each holder", n)
	}
}

func TestAKilledHolderHoldsUntilItsDeath(t *testing.T) {
	h := &history.History{
		Leases: []history.Lease{lease("replica-1", 0, 0), lease("replica-2", 500, 1000)},
		Marks:  []history.Mark{{At: ms(20), Who: "replica-2", What: "killed"}, {At: ms(30), Who: "replica-1", What: "killed: it is gone"}},
	}
	if of, _ := holdings(h); !of["replica-1"].held[0].open || !of["replica-1"].held[0].to.Equal(ms(30)) {
		t.Errorf("it held until %v, want its death", of["replica-1"].held)
	}
	p := Timeline(h)
	if drawn(p, "open") != 1 || !strings.Contains(texts(t, p), "no end is known") {
		t.Error("it is not said that no end is known")
	}
}

func TestThinningDoesNotHideAnOverlap(t *testing.T) {
	h := &history.History{}
	for i := range 5000 {
		h.Leases = append(h.Leases, lease(fmt.Sprintf("replica-%d", i%3+1), float64(i), float64(i)+0.9))
	}
	h.Leases = append(h.Leases, lease("replica-9", 2500.5, 2501.5))
	p := Timeline(h)
	if n, most := drawn(p, "hold"), 5*Units/(leastBar+leastGap); n > most {
		t.Errorf("%d bars are drawn, want %d at most", n, most)
	}
	if notes := strings.Join(p.Notes, " "); !strings.Contains(notes, "are merged") {
		t.Errorf("it is not said that some were drawn as one: %q", notes)
	}
	if drawn(p, "over") < 2 {
		t.Error("thinning hides the overlap")
	}
}

func TestOfManyHoldersThoseWhoOverlapAreDrawn(t *testing.T) {
	h := &history.History{}
	for i := range 40 {
		h.Leases = append(h.Leases, lease(fmt.Sprintf("contender-%d", i), float64(i*10), float64(i*10+5)))
	}
	h.Leases = append(h.Leases, lease("contender-39", 381, 384))
	p := Timeline(h)
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
	if p := Timeline(h); drawn(p, "unknown") != 1 || drawn(p, "sold") != 1 {
		t.Errorf("it is %+v", p)
	}
	if Timeline(&history.History{}) != nil || Stock(&history.History{}) != nil || Waits(&history.History{}) != nil {
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
	for _, want := range []string{"150 units were sold at the end of 100 that there were, and the row said 0 left", "sold beyond it: 50"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if drawn(p, "excess") != 1 {
		t.Error("what was sold beyond is not marked")
	}
}

func TestWaitsAreDrawnFromTheShortestToTheLongest(t *testing.T) {
	h := &history.History{}
	for i := range 100 {
		h.Requests = append(h.Requests, history.Request{Outcome: history.Sold, Wait: time.Duration(100-i) * time.Millisecond})
	}
	h.Requests = append(h.Requests, history.Request{Outcome: history.Unknown})
	p := Waits(h)
	if all := texts(t, p); !strings.Contains(all, "100 in all: longest 100 ms, 99 % within 99 ms, median 50 ms") {
		t.Errorf("it says:\n%s", all)
	}
	var columns []shape
	for _, s := range p.shapes {
		if s.Class == "part" {
			columns = append(columns, s)
		}
	}
	if n := len(columns); n != mostColumns || columns[0].Text != "2 ms" || columns[n-1].Text != "100 ms" || columns[n-1].H != columnsHeight {
		t.Errorf("%d columns, from %+v to %+v", n, columns[0], columns[n-1])
	}
}

// sold is a history of an item of 10 units of which a strategy sold so many.
func sold(strategy string, units, left int64) *history.History {
	return &history.History{
		Requests: []history.Request{{Strategy: strategy, GoodsID: 1}},
		Samples:  []history.Sample{{At: ms(0), GoodsID: 1, Stock: 10}, {At: ms(40), GoodsID: 1, Sold: 3, Stock: 9}},
		Audits:   []history.Audit{{At: ms(100), Audit: stock.NewAudit(1, left, 10, units, units)}},
	}
}

func TestSalesShareTheirScales(t *testing.T) {
	first, second := SaleOf(sold("naive", 20, 9)), SaleOf(sold("sql-conditional", 10, 0))
	if got, want := first.Points, []Took{{0, 0, 10}, {40, 3, 9}, {100, 20, 9}}; len(got) != 3 || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("the points are %v, want %v", got, want)
	}
	p := Sales([]Sale{first, second})
	all := texts(t, p)
	for _, want := range []string{"naive", "20 sold, the row says 9 left", "sql-conditional", "10 sold, the row says 0 left"} {
		if !strings.Contains(all, want) {
			t.Errorf("the picture lacks %q:\n%s", want, all)
		}
	}
	if n := strings.Count(all, "\n20\n"); n != 2 {
		t.Errorf("%d panels have the scale of the larger sale, want 2:\n%s", n, all)
	}
	if n := drawn(p, "excess"); n != 1 {
		t.Errorf("%d sales are drawn as oversold, want the first", n)
	}
	for _, s := range p.shapes {
		if s.X+s.W > 100 {
			t.Errorf("a %s ends at %v%%, beyond the edge", s.Kind, s.X+s.W)
		}
	}
}

// note is what happened to a lease.
func note(at float64, what history.EventKind, by string) history.Event {
	return history.Event{At: ms(at), What: what, By: by, TTL: 60 * time.Millisecond}
}

// The first is renewed and then not, and works on; the second waits, and is woken.
func TestTheTimelineShowsRenewalsAndTheEndOfTheTTL(t *testing.T) {
	first, second := lease("replica-1", 0, 200), lease("replica-2", 190, 300)
	first.TTL, first.Expires = 60*time.Millisecond, ms(60)
	first.Notes = []history.Event{note(20, history.Renewed, ""), note(40, history.Renewed, ""), note(60, history.NotRenewed, "")}
	second.Notes = []history.Event{note(150, history.Woken, "watch")}
	p := Timeline(&history.History{Leases: []history.Lease{first, second}})
	for class, want := range map[string]int{"renewed": 2, "unrenewed": 1, "expired": 1, "woke": 1} {
		if n := drawn(p, class); n != want {
			t.Errorf("%d signs are %s, want %d", n, class, want)
		}
	}
	for _, s := range p.shapes {
		if s.Class == "expired" && (s.X < 33 || s.X > 34) { // one TTL after the last renewal, of 300 ms
			t.Errorf("the TTL is over at %v%% of the picture, want a third", s.X)
		}
	}
	if all := texts(t, p); !strings.Contains(all, "not renewed") || !strings.Contains(all, "▼") {
		t.Errorf("the legend lacks the signs:\n%s", all)
	}
}

// A lease that ended before its TTL was over has not outlived it.
func TestALeaseThatEndedInTimeHasNoSign(t *testing.T) {
	l := lease("replica-1", 0, 50)
	l.TTL, l.Expires = 60*time.Millisecond, ms(60)
	if n := drawn(Timeline(&history.History{Leases: []history.Lease{l, lease("replica-2", 70, 300)}}), "expired"); n != 0 {
		t.Errorf("%d leases have outlived their TTL", n)
	}
}

// trace is a request whose steps of 10 ms follow each other.
func trace(start float64, kinds ...history.StepKind) history.Trace {
	t := history.Trace{Replica: "replica-1"}
	for i, kind := range kinds {
		t.Steps = append(t.Steps, history.Step{At: ms(start + 10*float64(i)), Took: 10 * time.Millisecond, What: kind})
	}
	t.Steps = append(t.Steps, history.Step{At: ms(start), Took: 10 * time.Millisecond * time.Duration(len(kinds)), What: history.StepPurchase})
	return t
}

func TestStepsShowWhatRequestsDidTogether(t *testing.T) {
	p := Steps(&history.History{Traces: []history.Trace{
		trace(0, history.StepAcquire, history.StepRead, history.StepWrite, history.StepRelease, history.StepCommit),
		trace(5, history.StepAcquire, history.StepRead),
		trace(900, history.StepRead), // alone
	}})
	all := texts(t, p)
	for _, want := range []string{"request 1", "request 2", "2 requests of 3 that were traced", "the longest has 6 steps", "1 read, 1 write", "acquire: it waits for the lock", "commits"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "request 3") || strings.Contains(all, "rolls back") {
		t.Errorf("it has a request that was alone, or a step that was not done:\n%s", all)
	}
}

// Of very many tries the last ones are drawn, each to be seen.
func TestStepsShowTheLastOfVeryMany(t *testing.T) {
	kinds := make([]history.StepKind, 0, 301)
	for range 100 {
		kinds = append(kinds, history.StepRead, history.StepWrite, history.StepRollback)
	}
	p := Steps(&history.History{Traces: []history.Trace{trace(0, append(kinds, history.StepCommit)...)}})
	if n := drawn(p, "rollback"); n < 10 || n > 20 {
		t.Errorf("%d rollbacks are drawn of 100, want those among the last %d steps", n, mostSteps)
	}
	if all := texts(t, p); !strings.Contains(all, "100 rollbacks") || !strings.Contains(all, "is not drawn") {
		t.Errorf("it does not say what is left out:\n%s", all)
	}
}

// The first has three of five; the second asks three times, and has it when the first is gone.
func TestVotesShowWhatEachMasterAnswered(t *testing.T) {
	first, second := lease("first", 3, 50), lease("second", 61, 90)
	refused := make([]history.Event, 0, 5)
	for i, master := range []string{"1", "2", "3", "4", "5"} {
		no, mine := history.VotedAgainst, history.VotedFor
		if i > 2 {
			no, mine = history.VotedFor, history.NoVote
		}
		first.Notes = append(first.Notes, note(1, mine, master))
		refused = append(refused, note(0, no, master))
	}
	for _, at := range []float64{10, 20, 30} {
		for _, vote := range refused {
			vote.At = ms(at)
			second.Notes = append(second.Notes, vote)
		}
	}
	for _, master := range []string{"5", "4", "3", "2", "1"} {
		second.Notes = append(second.Notes, note(60, history.VotedFor, master))
	}
	p := Votes(&history.History{Leases: []history.Lease{first, second}})
	all := texts(t, p)
	for _, want := range []string{"3 of 5, held", "2 of 5, 3 times until ", "5 of 5, held", "5 rounds of votes, of which 2 granted a lease"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	for class, want := range map[string]int{"vote-for": 3 + 2 + 5, "vote-against": 3, "vote-none": 2} {
		if n := drawn(p, class); n != want {
			t.Errorf("%d votes are %s, want %d", n, class, want)
		}
	}
}

func TestWakesAreCountedByTheirRelease(t *testing.T) {
	first, second, third := lease("a", 0, 10), lease("b", 12, 20), lease("c", 22, 30)
	second.Notes = []history.Event{note(5, history.Woken, "watch"), note(11, history.Woken, "watch")}
	third.Notes = []history.Event{note(11, history.Woken, "watch"), note(21, history.Woken, "watch")}
	h := &history.History{Leases: []history.Lease{first, second, third}}
	if got, _ := wokenBy(h); len(got) != 3 || got[0] != 2 || got[1] != 1 || got[2] != 0 {
		t.Errorf("releases woke %v, want 2, 1 and 0", got)
	}
	if all := texts(t, Wakes(h)); !strings.Contains(all, "3 releases, after which waiters were woken 3 times in all, and twice at most after one") {
		t.Errorf("it says:\n%s", all)
	}
}

func TestRowsShowWhatIsLocked(t *testing.T) {
	figures := make(map[string]float64)
	for _, c := range innodb.Combinations() {
		for _, place := range c.Index.Places() {
			figures[c.String()+"."+place.Name] = 0
		}
	}
	figures["plain_rr.row_10"], figures["plain_rr.gap_10_15"] = 1, 1
	p := Rows(&history.History{Figures: figures})
	if n := drawn(p, "over"); n != 2 {
		t.Errorf("%d places are locked, want a row and a gap", n)
	}
	if all := texts(t, p); !strings.Contains(all, "2 of ") || !strings.Contains(all, "index, REPEATABLE READ") {
		t.Errorf("it says:\n%s", all)
	}
	for _, c := range innodb.Combinations() { // none is forgotten
		for _, place := range c.Index.Places() {
			if place.Kind != innodb.Entry && !slices.ContainsFunc(tablePlaces(), func(p struct{ name, column string }) bool { return p.name == place.Name }) {
				t.Errorf("%s has no place in the picture", place.Name)
			}
		}
	}
}

func TestNothingRecordedIsNoPicture(t *testing.T) {
	h := &history.History{Leases: []history.Lease{{Holder: "a", Asked: ms(0)}}}
	if Steps(h) != nil || Votes(h) != nil || Wakes(h) != nil || Rows(h) != nil {
		t.Error("a picture is drawn of nothing")
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for _, c := range []struct {
		name         string
		value        float64
		label, words string
	}{
		{"oversold_units", 1412, "oversold", "1,412 units"},
		{"oversold_units", 1, "oversold", "1 unit"},
		{"longest_wait_ms", 2140, "longest wait", "2.14 s"},
		{"longest_wait_ms", 0.25, "longest wait", "250 µs"},
		{"longest_wait_ms", 0, "longest wait", "0 ms"},
		{"wakeups_per_release", 49.26, "wakeups per release", "49.3"},
		{"sold_per_second", 1234.4, "sold", "1,234/s"},
		{"mutex_sales_per_s", 604.2, "mutex sales", "604/s"},
		{"deadlocked_seconds", 75, "deadlocked", "1 min 15 s"},
		{"refused_percent", 12.5, "refused", "12.5 %"},
		{"lost_units", -3, "lost", "-3 units"},
		{"tiny", 0.00042, "tiny", "0.00042"},
	} {
		if label, value := Figure(c.name, c.value); label != c.label || value != c.words {
			t.Errorf("%s of %v is %q %q, want %q %q", c.name, c.value, label, value, c.label, c.words)
		}
	}
}

func TestDurationsAreInTheUnitThatFits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 900 * time.Nanosecond: "0.9 µs", 1500 * time.Microsecond: "1.5 ms", 999 * time.Millisecond: "999 ms",
		12340 * time.Millisecond: "12.3 s", 59*time.Second + 999*time.Millisecond: "60 s", 432 * time.Second: "7 min 12 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
