package verdict_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
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
			if got := (&verdict.Report{Runs: []verdict.Run{r}}).AsExpected(); got != (c.verdict == verdict.Expected) {
				t.Errorf("the report is as expected: %v", got)
			}
		})
	}
}

func TestTheFiguresAreNamedAsOthersReadThem(t *testing.T) {
	r := sale(15, 5, 0, nil)
	r.Judge()
	path := filepath.Join(t.TempDir(), "report.json")
	full := verdict.Report{
		Servers: map[string]servers.Info{"database": {Name: "MariaDB", Version: "10.11", Started: servers.Local}},
		Runs:    []verdict.Run{r},
	}
	if err := verdict.WriteJSON(path, full); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Servers map[string]map[string]any `json:"servers"`
		Runs    []map[string]any          `json:"runs"`
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(`strategy replicas group fence clients requests stock sold left oversold lost undersold
		refused errors unknown clean expected_clean verdict reason per_second p50_ms p99_ms max_ms`) {
		if _, ok := read.Runs[0][field]; !ok {
			t.Errorf("the JSON has no %s", field)
		}
	}
	for _, field := range []string{"name", "version", "started"} {
		if _, ok := read.Servers["database"][field]; !ok {
			t.Errorf("the JSON of a server has no %s", field)
		}
	}
	if read.Runs[0]["p50_ms"] != 1.5 || read.Runs[0]["per_second"] != 10.0 {
		t.Errorf("p50 is %v ms and %v requests/s, want 1.5 and 10", read.Runs[0]["p50_ms"], read.Runs[0]["per_second"])
	}
}

func TestTheTableSaysWhatWasNotRunAndWhy(t *testing.T) {
	done := sale(10, 10, 0, nil)
	done.ExpectedClean, done.Tries = true, 3
	done.Judge()
	full := verdict.Report{
		On:   "database: SQLite 3.53 (embedded)",
		Runs: []verdict.Run{done, {Strategy: "hidden", Replicas: 1, Verdict: verdict.NotRun, Reason: "it cannot be seen here"}},
	}
	var table bytes.Buffer
	if err := full.Table(&table, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"consistent (try 3)", "not run", "hidden: not run: it cannot be seen here", "database: SQLite 3.53 (embedded)"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "\x1b") {
		t.Error("a table that is not for a terminal has colours")
	}
}
