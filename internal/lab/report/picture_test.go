package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
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
	must.Do(t, p.File(&b))
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

// shapes are those of a class in a picture.
func shapes(p *Picture, class string) []string {
	return slices.DeleteFunc(strings.Split(p.shapes, "\n"), func(s string) bool { return !strings.Contains(s, fmt.Sprintf("class=%q", class)) })
}

// attribute is a number or a path of a shape.
func attribute(shape, name string) string {
	_, after, _ := strings.Cut(shape, " "+name+`="`)
	value, _, _ := strings.Cut(after, `"`)
	return value
}

// drawn counts the bars of a class in a picture.
func drawn(p *Picture, class string) (n int) {
	for _, s := range shapes(p, class) {
		n += max(1, strings.Count(attribute(s, "d"), "M"))
	}
	return n
}

// heldBy draws who held the lock.
func heldBy(leases ...history.Lease) *Picture {
	return draw(&history.History{Leases: leases}, []experiments.Picture{experiments.Timeline})
}

func TestTheLanesShowWhoHeldTheLockWhileAnotherDid(t *testing.T) {
	h := &history.History{
		Leases: []history.Lease{lease("replica-1", 0, 100), lease("replica-2", 60, 200), lease("replica-1", 210, 300)},
		Marks:  []history.Mark{{At: ms(50), Who: "replica-1", What: "paused <now>"}},
	}
	p := draw(h, []experiments.Picture{experiments.Timeline})
	should.Contain(t, texts(t, p), "replica-1", "2 holders, 3 leases granted in 300 ms; 1 of them while another holder had the same lock", "1. 50 ms: replica-1 paused <now>")
	should.Be(t, drawn(p, "over"), 2, "red bars, one for each holder")
}

func TestAKilledHolderHoldsUntilItsDeath(t *testing.T) {
	h := &history.History{
		Leases: []history.Lease{lease("replica-1", 0, 0), lease("replica-2", 500, 1000)},
		Marks:  []history.Mark{{At: ms(20), Who: "replica-2", What: "killed"}, {At: ms(250), Who: "replica-1", What: "killed: it is gone"}},
	}
	p := draw(h, []experiments.Picture{experiments.Timeline})
	should.Contain(t, texts(t, p), "no end is known")
	if open := shapes(p, "open"); len(open) == 0 || !strings.Contains(attribute(open[0], "d"), "h190v") {
		t.Errorf("it does not hold a quarter of the time, until its death: %q", open)
	}
}

func TestThinningDoesNotHideAnOverlap(t *testing.T) {
	list := make([]history.Lease, 0, 4001)
	for i := range 4000 {
		list = append(list, lease(fmt.Sprintf("replica-%d", i%3+1), float64(i), float64(i)+0.9))
	}
	p := heldBy(append(list, lease("replica-9", 2500.5, 2501.5))...)
	if n, most := drawn(p, "hold"), 4*fileWidth/(minBar+minGap); float64(n) > most {
		t.Errorf("%d bars are drawn, want %.0f at most", n, most)
	}
	if drawn(p, "over") < 2 {
		t.Error("thinning hides the overlap")
	}
}

func TestOfManyHoldersThoseWhoOverlapAreDrawn(t *testing.T) {
	list := make([]history.Lease, 0, 41)
	for i := range 40 {
		list = append(list, lease(fmt.Sprintf("contender-%d", i), float64(i*10), float64(i*10+5)))
	}
	should.Contain(t, texts(t, heldBy(append(list, lease("contender-39", 381, 384))...)), "contender-38", "contender-39", "24 lanes more are not drawn")
}

// only is the one table that is asked for.
func only(t *testing.T, h *history.History, one experiments.Picture) string {
	t.Helper()
	list := tables(h, []experiments.Picture{one})
	if len(list) != 1 {
		t.Fatalf("there are %d tables of %s", len(list), one)
	}
	return fmt.Sprint(list[0].Rows)
}

func TestWaitsAreToldFromTheShortestToTheLongest(t *testing.T) {
	h := &history.History{}
	for i := range 100 {
		h.Leases = append(h.Leases, history.Lease{ID: fmt.Sprint(i), Asked: ms(0), Granted: ms(float64(100 - i))})
	}
	said := only(t, h, experiments.Waits)
	should.Contain(t, said, "[50 % (50) 50 ms]", "[99 % (99) 99 ms] [100 % (100) 100 ms]")
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
	p := sales(sampled(sold("naive", 20, 9)), sampled(sold("sql-conditional", 10, 0)))
	all := texts(t, p)
	should.Contain(t, all, "naive", "20 sold, the row says 9 left", "sql-conditional", "10 sold, the row says 0 left")
	should.Be(t, strings.Count(all, "\n20\n"), 2, "panels with the scale of the larger sale", all)
	should.Be(t, drawn(p, "excess"), 1, "sales that are drawn as oversold")
	for _, found := range regexp.MustCompile(`(?: x2?="|H)([0-9.]+)`).FindAllStringSubmatch(p.shapes, -1) {
		if x, err := strconv.ParseFloat(found[1], 64); err != nil || x > fileWidth {
			t.Errorf("a shape is at %s of %d pixels (%v)", found[1], fileWidth, err)
		}
	}
}

// note is what happened to a lease.
func note(at float64, what history.EventKind, by string) history.Event {
	return history.Event{At: ms(at), What: what, By: by, TTL: 60 * time.Millisecond}
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
	said := only(t, &history.History{Leases: []history.Lease{first, second}}, experiments.Votes)
	should.Contain(t, said, "first ✓ ✓ ✓ ✗ ✗ 3 of 5, held]", "second – – – ✓ ✓ 2 of 5, 3 times until ", "second ✓ ✓ ✓ ✓ ✓ 5 of 5, held]")
}

func TestWakesAreCountedByTheirRelease(t *testing.T) {
	first, second, third := lease("a", 0, 10), lease("b", 12, 20), lease("c", 22, 30)
	second.Notes = []history.Event{note(5, history.Woken, "watch"), note(11, history.Woken, "watch")}
	third.Notes = []history.Event{note(11, history.Woken, "watch"), note(21, history.Woken, "watch")}
	said := only(t, &history.History{Leases: []history.Lease{first, second, third}}, experiments.Wakes)
	should.Contain(t, said, "[10 ms a 2] [20 ms b 1] [30 ms c 0]")
}

func TestRowsShowWhatIsLocked(t *testing.T) {
	figures := make(map[string]float64)
	for _, c := range innodb.Combinations() {
		for _, place := range c.Index.Places() {
			figures[c.String()+"."+place.Name] = 0
			if place.Kind != innodb.Entry && !slices.Contains(tablePlaces(), place.Name) { // none is forgotten
				t.Errorf("%s has no place in the table", place.Name)
			}
		}
	}
	figures["plain_rr.row_10"], figures["plain_rr.gap_10_15"] = 1, 1
	said := only(t, &history.History{Figures: figures}, experiments.Rows)
	should.Contain(t, said, "[index, REPEATABLE READ ✓ ✓ ✓ ✗ ✓ ✓ ✗")
	should.Be(t, strings.Count(said, "✗"), 2, "places that are locked, a row and a gap")
}

func TestNothingRecordedIsNoTable(t *testing.T) {
	h := &history.History{Leases: []history.Lease{{ID: "1", Holder: "a", Asked: ms(0)}}}
	if list := tables(h, []experiments.Picture{experiments.Votes, experiments.Wakes, experiments.Rows}); len(list) > 0 {
		t.Errorf("there are tables of nothing: %v", list)
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
		{"mutex_sales_per_s", 604.2, "mutex sales", "604/s"},
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
		should.Be(t, Duration(d), want, d)
	}
}
