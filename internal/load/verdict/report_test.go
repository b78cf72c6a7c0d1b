package verdict_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// sale is a run of 20 requests for one of 10 units each.
func sale(sold, rejected int, left int64, change func(*load.Result, *stock.Audit)) verdict.Run {
	h := hdrhistogram.New(1, 1_000_000, 3)
	_ = h.RecordValue(1500)
	l := load.Result{
		Sent: sold + rejected, Sold: sold, Rejected: rejected, Errors: map[string]int{},
		Elapsed: 2 * time.Second, Latency: h,
	}
	a := stock.NewAudit(1, left, 10, int64(sold), int64(sold))
	if change != nil {
		change(&l, &a)
	}
	r := verdict.Run{Strategy: "s", Replicas: 1, Tries: 1}
	r.Add(&l, a)
	return r
}

// Each contradiction between the evidence and the guarantee turns the verdict.
func TestVerdicts(t *testing.T) {
	nothing := func(*load.Result, *stock.Audit) {}
	for _, c := range []struct {
		name           string
		sold, rejected int
		left           int64
		change         func(*load.Result, *stock.Audit)
		clean          bool // is guaranteed
		verdict        verdict.Verdict
		reason         string
	}{
		{"a true sale", 10, 10, 0, nothing, true, verdict.Expected, "consistent"},
		{"a sale that did not sell out", 8, 0, 2, nothing, true, verdict.Expected, "consistent"},
		{"a known oversell", 15, 5, 0, nothing, false, verdict.Expected, "oversold by 5"},
		{"an oversell against the guarantee", 11, 9, 0, nothing, true, verdict.Unexpected, "oversold by 1"},
		{"a lost update against the guarantee", 8, 0, 3, nothing, true, verdict.Unexpected, "1 updates lost"},
		{"stock gone against the guarantee", 8, 0, 1, nothing, true, verdict.Unexpected, "1 units gone without a sale"},
		{"stock below zero against the guarantee", 11, 9, -1, nothing, true, verdict.Unexpected, "below zero"},
		{"rejected while left against the guarantee", 8, 12, 2, nothing, true, verdict.Unexpected, "2 rejected with stock left"},
		{"consistent by luck", 10, 10, 0, nothing, false, verdict.Unexpected, "was consistent"},
		{
			"a sale that the ledger does not have", 10, 10, 0,
			func(_ *load.Result, a *stock.Audit) { a.Orders-- }, true, verdict.Unexpected, "the ledger has 9",
		},
		{
			"a sale without an answer", 10, 10, 0,
			func(_ *load.Result, a *stock.Audit) { a.Orders++ }, true, verdict.Unexpected, "the ledger has 11",
		},
		{
			"a sale whose answer was lost", 9, 10, 0,
			func(l *load.Result, a *stock.Audit) { l.Unknown = 1; *a = stock.NewAudit(1, 0, 10, 10, 10) }, true, verdict.Expected, "consistent",
		},
		{
			"an order given twice", 10, 10, 0,
			func(l *load.Result, _ *stock.Audit) { l.Duplicates = 1 }, true, verdict.Unexpected, "1 orders given twice",
		},
		{
			"two units for each order", 10, 10, 0,
			func(_ *load.Result, a *stock.Audit) { *a = stock.NewAudit(1, 0, 20, 20, 10) }, true, verdict.Unexpected, "20 units in 10 sales of one unit each",
		},
		{"no request at all", 0, 0, 10, nothing, true, verdict.Unexpected, "no purchase was sold or rejected"},
		{
			"nothing but busy", 0, 0, 10,
			func(l *load.Result, _ *stock.Audit) { l.Sent, l.Errors["busy"] = 20, 20 }, true, verdict.Unexpected, "no purchase was sold or rejected",
		},
		{
			"nothing but answers that were lost", 0, 0, 10,
			func(l *load.Result, _ *stock.Audit) { l.Sent, l.Unknown = 20, 20 }, true, verdict.Unexpected, "no purchase was sold or rejected",
		},
		{"sold out before", 0, 20, 0, func(_ *load.Result, a *stock.Audit) { *a = stock.NewAudit(1, 0, 0, 0, 0) }, true, verdict.Expected, "consistent"},
		{
			"a backend that failed", 10, 10, 0,
			func(l *load.Result, _ *stock.Audit) { l.Errors["backend-unavailable"] = 3 }, true, verdict.Unexpected, "3 backend-unavailable",
		},
		{
			"a backend that failed under a known oversell", 15, 5, 0,
			func(l *load.Result, _ *stock.Audit) { l.Errors["internal"] = 1 }, false, verdict.Unexpected, "1 internal",
		},
		{
			"an honest busy", 10, 9, 0,
			func(l *load.Result, _ *stock.Audit) { l.Errors["busy"] = 1 }, true, verdict.Expected, "consistent",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sale(c.sold, c.rejected, c.left, c.change)
			r.ExpectedClean = c.clean
			r.Judge()
			if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%s: %s, want %s: …%s…", r.Verdict, r.Reason, c.verdict, c.reason)
			}
			should.Be(t, (&verdict.Report{Runs: []verdict.Run{r}}).AsExpected(), c.verdict == verdict.Expected, "the report is as expected")
		})
	}
}

func TestTheFiguresAreNamedAsOthersReadThem(t *testing.T) {
	content, err := json.Marshal(verdict.Report{
		Servers:    map[string]servers.Info{"database": {Name: "MariaDB", Version: "10.11", Started: servers.Local}},
		Processors: 30, Runs: []verdict.Run{{
			Strategy: "s", Replicas: 1, Group: true, Fence: true, Clients: 2, Requests: 3, Stock: 4, Sold: 5, Left: 6, Oversold: 7, Lost: 8, Undersold: 9,
			Rejected: 10, Errors: 11, Unknown: 12, Clean: true, ExpectedClean: true, Verdict: verdict.Expected, Reason: "r", PerSecond: 13, SalesPerSecond: 13.5, Min: 14, P50: 15,
			P90: 16, P95: 17, P99: 18, Max: 19, ErrorPercent: 20, KilobytesPerSecond: 21, Orders: 22, Answered: 23, Duplicates: 24,
			ErrorTypes: map[string]int{"busy": 25}, Tries: 26, Seconds: 27, SalesOnly: true, Restocked: 28, LedgerAfter: 29, Shorter: true, Note: "n",
		}},
	})
	const want = `{"servers":{"database":{"name":"MariaDB","version":"10.11","started":"local"}},` +
		`"processors":30,"runs":[{"strategy":"s","replicas":1,"group":true,"fence":true,"clients":2,"requests":3,"stock":4,"sold":5,` +
		`"left":6,"oversold":7,"lost":8,"undersold":9,"refused":10,"errors":11,"unknown":12,"clean":true,"expected_clean":true,"verdict":"as claimed",` +
		`"reason":"r","per_second":13,"sales_per_second":13.5,"min_ms":14,"p50_ms":15,"p90_ms":16,"p95_ms":17,"p99_ms":18,"max_ms":19,"error_percent":20,"kb_per_second":21,` +
		`"orders":22,"answered":23,"duplicates":24,"error_types":{"busy":25},"tries":26,"seconds":27,"sales_only":true,"restocked":28,` +
		`"ledger_after_seconds":29,"shorter":true,"note":"n"}]}`
	if err != nil || string(content) != want {
		t.Errorf("a run is kept as\n%s (%v), want\n%s", content, err, want)
	}
	should.Fail(t, verdict.WriteJSON(filepath.Join(t.TempDir(), "no", "folder"), nil), os.ErrNotExist, "where the figures cannot be written")
}

// A run of every kind as a person sees it: its name, its figures, and what needs a note once.
func TestTheTableOfARun(t *testing.T) {
	good := sale(10, 1110, 0, func(l *load.Result, _ *stock.Audit) { l.Errors["busy"], l.Unknown = 1, 2 })
	good.Strategy, good.ExpectedClean, good.SalesOnly, good.Tries, good.Verdict, good.PerSecond = "a", true, true, 1, verdict.Expected, 1234.5
	good.SalesPerSecond = 2345.6
	good.Min, good.P90, good.P95, good.P99, good.Max, good.ErrorPercent, good.KilobytesPerSecond = 0.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5
	again := good
	again.Note, again.Shorter, again.Stock = "slow here", true, 10
	other := again
	other.Strategy, other.Group, other.Fence, other.Replicas, other.Tries, other.Stock = "b", true, true, 0, 2, 2000
	idle := verdict.Run{Strategy: "c", Replicas: 1, SalesOnly: true, Verdict: verdict.NotRun, Reason: "no Redis"}
	last := again
	last.Strategy, last.Stock = "d", 5
	full := verdict.Report{On: "SQLite", Processors: 2, Runs: []verdict.Run{good, again, other, idle, last}}
	table := func(r verdict.Report) string {
		var b bytes.Buffer
		must.Do(t, r.Table(&b, false))
		return b.String()
	}
	got := table(full)
	for _, want := range []struct {
		row   string
		times int
	}{
		{"│ a                  │        1 │   10 │    0 │     0 │       0 │    1,110 │      3 │ 2,345 │ 1.5 │ 4.5 │ consistent         │\n", 2},
		{"│ b, grouped, fenced │        ? │   10 │    0 │     0 │       0 │    1,110 │      3 │ 2,345 │ 1.5 │ 4.5 │ consistent (try 2) │\n", 1},
		{"│ c                  │        1 │    – │    – │     – │       – │        – │      – │     – │   – │   – │ not run, see below │\n", 1},
		{"│ a                  │        1 │    1.5 │  2.5 │  3.5 │  4.5 │ 0.5 │ 5.5 │    6.5 │ 1,234 │ 7.5 │\n", 2},
		{"│ c                  │        1 │    1.5 ", 0},
		{"\nerrors of a on 1: 1 busy, 2 unknown\nerrors of a on 1: 1 busy, 2 unknown\nerrors of b, grouped, fenced on ?: 1 busy, 2 unknown\n", 1},
		{"\na: slow here\nb, grouped, fenced: slow here\nc: not run: no Redis\nd: slow here\n", 1},
		{"\na to d: shorter runs, of 2,000 units each, because a lock takes several round trips a sale\nSQLite, 2 processors\n", 1},
	} {
		should.Be(t, strings.Count(got, want.row), want.times, "the rows", want.row, "of", got)
	}
	all := again
	all.SalesOnly, all.Shorter = false, false
	for _, c := range []struct {
		report     verdict.Report
		has, lacks string
	}{
		{verdict.Report{Runs: []verdict.Run{good, all}}, "requests", "processors"},
		{verdict.Report{Runs: []verdict.Run{all}, Processors: 2}, "slow here", "processors"},
		{verdict.Report{Runs: []verdict.Run{all}, On: "SQLite"}, "SQLite\n", "processors"},
		{verdict.Report{Runs: []verdict.Run{all, all}}, "slow here", "shorter"},
		{verdict.Report{Runs: []verdict.Run{idle}}, "no Redis", "Latency"},
	} {
		if got := table(c.report); !strings.Contains(got, c.has) || strings.Contains(got, c.lacks) || strings.Count(got, "slow here") > 1 {
			t.Errorf("want %q and not %q in\n%s", c.has, c.lacks, got)
		}
	}
	should.Fail(t, full.Table(fullDisk{}, false), io.ErrShortWrite, "a table that cannot be written")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A run has the figures of its load and of the audit after it: of all requests, or of the sales alone.
func TestARunHasTheFiguresOfItsLoad(t *testing.T) {
	times := func(microseconds int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, 1_000_000, 3)
		_ = h.RecordValue(microseconds)
		return h
	}
	l := load.Result{
		Sent: 20, Sold: 8, Rejected: 5, Unknown: 3, Errors: map[string]int{"busy": 3, "internal": 1},
		Elapsed: 2 * time.Second, Selling: 500 * time.Millisecond, Latency: times(1500), SaleLatency: times(500),
	}
	audit := stock.NewAudit(1, 2, 10, 8, 7)
	for _, c := range []struct {
		run       verdict.Run
		perSecond float64
		p50       float64
		undersold int64
	}{
		{verdict.Run{}, 10, 1.5, 2},
		{verdict.Run{SalesOnly: true}, 4, 0.5, 2},
		{verdict.Run{Restocked: 2}, 10, 1.5, 0}, // the units may have come after the rejections
	} {
		r := c.run
		r.Errors = 7 // of an earlier try
		r.Add(&l, audit)
		if r.Requests != 20 || r.Stock != 10 || r.Sold != 8 || r.Left != 2 || r.Orders != 7 || r.Rejected != 5 || r.Unknown != 3 || r.Answered != 8 || r.Errors != 4 {
			t.Errorf("the figures are %+v", r)
		}
		if r.SalesPerSecond != 16 || r.PerSecond != c.perSecond || r.P50 != c.p50 || r.Max != c.p50 || r.Seconds != 2 || r.Undersold != c.undersold || r.Clean != (c.undersold == 0) {
			t.Errorf("%v/s, %v ms, %d undersold, consistent %v; want %v, %v, %d", r.PerSecond, r.P50, r.Undersold, r.Clean, c.perSecond, c.p50, c.undersold)
		}
	}
}

// Each row is a load at an edge, and the columns of an aggregate report: the latency of the
// fastest, of so many per cent, and of the slowest; what failed, and the bytes of the answers.
func TestARunHasTheColumnsOfAnAggregateReport(t *testing.T) {
	for _, c := range []struct {
		name              string
		sent, sold        int
		rejected          int
		milliseconds      int // of as many requests: 1, 2, 3 …
		received          int64
		latency           [6]float64 // min, p50, p90, p95, p99, max
		errors, kilobytes float64
	}{
		{"no request", 0, 0, 0, 0, 0, [6]float64{}, 0, 0},
		{"one request", 1, 1, 0, 1, 512, [6]float64{1, 1, 1, 1, 1, 1}, 0, 0.25},
		{"a hundred", 100, 60, 39, 100, 10240, [6]float64{1, 50, 90, 95, 99, 100}, 1, 5},
		{"sold out is no error", 4, 0, 4, 4, 1024, [6]float64{1, 2, 4, 4, 4, 4}, 0, 0.5},
		{"none is answered", 4, 0, 0, 4, 0, [6]float64{1, 2, 4, 4, 4, 4}, 100, 0},
	} {
		h := hdrhistogram.New(1, 1_000_000, 5)
		for n := range c.milliseconds {
			_ = h.RecordValue(int64(n+1) * 1000)
		}
		var r verdict.Run
		r.Add(&load.Result{
			Sent: c.sent, Sold: c.sold, Rejected: c.rejected, Unknown: c.sent - c.sold - c.rejected, Received: c.received,
			Elapsed: 2 * time.Second, Latency: h,
		}, stock.Audit{})
		should.Be(t, [6]float64{r.Min, r.P50, r.P90, r.P95, r.P99, r.Max}, c.latency, c.name, "in ms")
		if r.ErrorPercent != c.errors || r.KilobytesPerSecond != c.kilobytes {
			t.Errorf("%s: %v %% errors, %v kB/s; want %v, %v", c.name, r.ErrorPercent, r.KilobytesPerSecond, c.errors, c.kilobytes)
		}
	}
}

// Each row is sold out or not: a restock may have come after the rejections.
func TestOnlyASaleThatCouldSellOutMustHave(t *testing.T) {
	for _, c := range []struct {
		rejected  int
		restocked int64
		want      verdict.Verdict
	}{{0, 0, verdict.Expected}, {1, 0, verdict.Unexpected}, {1, 5, verdict.Expected}} {
		r := verdict.Run{Stock: 10, Sold: 8, Orders: 8, Answered: 8, Clean: true, ExpectedClean: true, Rejected: c.rejected, Restocked: c.restocked}
		r.Judge()
		should.Be(t, r.Verdict, c.want, c.rejected, "rejected and", c.restocked, "restocked")
	}
}

func TestTheVerdictInWords(t *testing.T) {
	for want, r := range map[string]verdict.Run{
		"not run":                       {Verdict: verdict.NotRun},
		"consistent":                    {Verdict: verdict.Expected, Clean: true},
		"consistent — not expected":     {Verdict: verdict.Unexpected, Clean: true},
		"oversold by 4,000 — expected":  {Verdict: verdict.Expected, Oversold: 4000},
		"3 updates lost — not expected": {Verdict: verdict.Unexpected, Lost: 3},
		"inconsistent — expected":       {Verdict: verdict.Expected},
		"oversold by 1, 1 units gone without a sale, 2 below zero — expected": {Verdict: verdict.Expected, Oversold: 1, Lost: -1, Left: -2},
	} {
		should.Be(t, r.Words(), want, "its words")
	}
}
