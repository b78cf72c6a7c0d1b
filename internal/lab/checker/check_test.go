package checker_test

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// at is a time of the hand-made histories, in milliseconds.
func at(ms int) time.Time {
	return time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// of puts a history together from records.
func of(records ...any) *history.History {
	h := &history.History{Figures: make(map[string]float64)}
	for _, record := range records {
		switch r := record.(type) {
		case history.Request:
			h.Requests = append(h.Requests, r)
		case []history.Request:
			h.Requests = append(h.Requests, r...)
		case history.Lease:
			h.Leases = append(h.Leases, r)
		case history.Mark:
			h.Marks = append(h.Marks, r)
		case history.Audit:
			h.Audits = append(h.Audits, r)
		case history.Sample:
			h.Samples = append(h.Samples, r)
		case history.Figure:
			h.Figures[r.Name] = r.Value
		default:
			panic("no record")
		}
	}
	return h
}

// change is a small difference of a request from the usual.
type change func(r *history.Request)

func key(k string) change        { return func(r *history.Request) { r.Key = k } }
func order(o string) change      { return func(r *history.Request) { r.Order = o } }
func left(n int64) change        { return func(r *history.Request) { r.Remaining = n } }
func token(n uint64) change      { return func(r *history.Request) { r.Token = n } }
func quantity(n int64) change    { return func(r *history.Request) { r.Quantity = n } }
func client(n int) change        { return func(r *history.Request) { r.Client = n } }
func goods(n int64) change       { return func(r *history.Request) { r.GoodsID = n } }
func problem(name string) change { return func(r *history.Request) { r.Problem = name } }
func waited(ms int) change {
	return func(r *history.Request) { r.Wait = time.Duration(ms) * time.Millisecond }
}

// request is one for a unit of goods 7, from a time to a time.
func request(outcome history.Outcome, start, end int, changes ...change) history.Request {
	r := history.Request{Start: at(start), End: at(end), GoodsID: 7, Quantity: 1, Outcome: outcome, Strategy: "s"}
	for _, c := range changes {
		c(&r)
	}
	return r
}

func sold(start, end int, changes ...change) history.Request {
	return request(history.Sold, start, end, changes...)
}

func rejected(start, end int, changes ...change) history.Request {
	return request(history.Rejected, start, end, changes...)
}

func unknown(start, end int, changes ...change) history.Request {
	return request(history.Unknown, start, end, changes...)
}

func failed(with string, start, end int, changes ...change) history.Request {
	return request(history.Failed, start, end, append(changes, problem(with))...)
}

// audit is made of goods 7 after everything else.
func audit(left, initial, sold, orders int64) history.Audit {
	return history.Audit{At: at(1_000_000), Audit: stock.NewAudit(7, left, initial, sold, orders)}
}

// lease is one of the name "n", held from a time to a time; 0: without an end.
func lease(holder string, granted, end int, token uint64) history.Lease {
	l := history.Lease{ID: holder, Name: "n", Holder: holder, Lock: "redis", Token: token, Asked: at(granted), Granted: at(granted)}
	if end > 0 {
		l.Released = at(end)
	}
	return l
}

// asks is a wait that was given up; 0: not to the end.
func asks(holder string, asked, gaveUp int) history.Lease {
	l := history.Lease{ID: holder, Name: "n", Holder: holder, Lock: "redis", Asked: at(asked)}
	if gaveUp > 0 {
		l.GaveUp = at(gaveUp)
	}
	return l
}

func mark(who string, ms int, what string) history.Mark {
	return history.Mark{At: at(ms), Who: who, What: what}
}

// row is a check with a history and what it is to find there.
type row struct {
	name    string
	check   checker.Check
	history *history.History
	holds   bool
	numbers map[string]float64 // those that matter
}

// name of a number: snake_case.
var snake = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func judge(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			f := r.check(r.history)
			should.Be(t, f.Holds, r.holds, "it holds", f.Says)
			for name, want := range r.numbers {
				if got, has := f.Numbers[name]; !has || math.Abs(got-want) > 1e-9 {
					t.Errorf("%s is %v, want %v, in %v", name, got, want, f.Numbers)
				}
			}
			if f.Says == "" || f.Chinese() == "" {
				t.Errorf("it says %q, and %q in Chinese: %v", f.Says, f.Chinese(), f.Facts)
			}
			for name, value := range f.Numbers {
				if !snake.MatchString(name) || math.IsNaN(value) || math.IsInf(value, 0) {
					t.Errorf("%q is %v, which is no number for JSON", name, value)
				}
			}
			if f.Numbers == nil {
				t.Error("numbers would be null in JSON")
			}
			t.Log(f.Says)
		})
	}
}

func TestAllExpectsEach(t *testing.T) {
	h := of(history.Figure{Name: "a", Value: 1}, history.Figure{Name: "b", Value: 2})
	yes, no := checker.AtLeast("a", 1), checker.AtMost("b", 1)
	judge(t, []row{
		{"both", checker.All(yes, checker.AtMost("b", 2)), h, true, map[string]float64{"a": 1, "b": 2}},
		{"the first one not", checker.All(no, yes), h, false, map[string]float64{"a": 1, "b": 2}},
		{"the last one not", checker.All(yes, no), h, false, nil},
		{"nothing", checker.All(), h, false, nil},
	})
}

func TestAllKeepsTwoNumbersOfOneName(t *testing.T) {
	h := of(sold(0, 9, waited(1), client(1)), sold(0, 9, waited(5), client(2)))
	f := checker.All(checker.Waited(checker.OfClients(1)), checker.Waited(checker.OfClients(2)))(h)
	if f.Numbers["longest_wait_ms"] != 1 || f.Numbers["longest_wait_ms_2"] != 5 || f.Numbers["waits"] != 1 {
		t.Errorf("%v", f.Numbers)
	}
	if _, twice := f.Numbers["waits_2"]; twice {
		t.Errorf("the same number stands twice: %v", f.Numbers)
	}
}

func TestReportedIsBrokenByAFigureThatWasNotMeasured(t *testing.T) {
	h := &history.History{Figures: map[string]float64{"tries_per_sale": 2.5}}
	if f := checker.Reported("tries_per_sale")(h); !f.Holds || f.Numbers["tries_per_sale"] != 2.5 {
		t.Errorf("%+v", f)
	}
	if f := checker.Reported("tries_per_sale", "sales_per_s")(h); f.Holds || len(f.Facts) != 2 {
		t.Errorf("%+v", f)
	}
}
