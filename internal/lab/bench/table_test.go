package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// measured is a result of two strategies by one and two replicas, and of what is no strategy.
func measured() Result {
	of := func(s Setting, median, least, most float64) Figure {
		return Figure{Name: s.String(), Setting: s, Median: median, Min: least, Max: most}
	}
	alone := of(Setting{Strategy: "sql-conditional", Clients: usual, Replicas: 1}, 1000, 900, 1100)
	alone.Busy, alone.P50, alone.P90, alone.P95, alone.P99, alone.Fastest, alone.Slowest, alone.Kilobytes = 0.01, 12.5, 30, 40, 80, 0.5, 90, 1234
	alone.Costs = Costs{"stockd": {User: 200, System: 100}, "database": {User: 350, System: 50}}
	grouped := of(Setting{Strategy: "sql-conditional", Group: true, Clients: usual, Replicas: 1}, 7500, 7000, 8000)
	grouped.Busy = 0.005
	many := of(Setting{Strategy: "sql-conditional", Clients: crowd, Replicas: 1}, 800, 700, 900)
	many.Busy, many.P50, many.P99 = 0.25, 100, 450
	two := of(Setting{Strategy: "sql-conditional", Clients: usual, Replicas: 2}, 2000, 1900, 2100)
	more := of(Setting{Strategy: "sql-conditional", Clients: hundreds, Replicas: 2}, 1500, 1500, 1500)
	items := of(Setting{Strategy: "sql-conditional", Clients: hundreds, Replicas: 1, Items: 7, Zipf: true}, 70, 60, 80)
	items.P50, items.P99 = 3, 9
	baseline := of(Setting{Clients: usual, Replicas: 1}, 40000, 39000, 41000)
	baseline.Costs = Costs{"stockd": {User: 20, System: 20}, "nginx": {System: 10}}
	still := of(Setting{Strategy: "mutex", Clients: usual, Replicas: 1}, 0, 0, 0)
	also := of(Setting{Strategy: "mutex", Group: true, Clients: usual, Replicas: 1}, 5, 5, 5)
	aim := func(topic, name string, median float64, aim string, reached bool) Figure {
		return Figure{Topic: topic, Name: name, Median: median, Min: median, Max: median, Aim: aim, Reached: reached}
	}
	return Result{
		Servers: map[string]servers.Info{}, Durability: map[string]string{"sqlite": "full"}, Plan: "3 rounds", Notes: []string{"no nginx"},
		Subjects: []Figure{
			baseline, of(Setting{Clients: crowd, Replicas: 1}, 30000, 30000, 30000),
			{Name: "memory", Unit: " MiB", Median: 50, Min: 40, Max: 60, Aim: "at most 60", Reached: true},
			{Name: "wait", Unit: "×", Median: 1.32, Min: 1.2, Max: 1.4},
			alone, grouped, many, two, more, still, also, items,
		},
		Ratios: []Figure{
			aim("", "grouped / alone", 7.5, "at least 7", true), aim("", "no target", 1, "", false),
			aim("each lock", "etcd", 4, "at least 5", false), aim("each lock", "redis-lua", 6, "at least 5", true),
			aim("each tail", "etcd", 3, "below 10", true), aim("each tail", "redis-lua", 9, "below 10", true),
			aim("each crowd", "etcd", 0.9, "at least 0.8", true), aim("each crowd", "redis-lua", 0.85, "at least 0.8", true),
		},
	}
}

// Each table has the rows of what was measured, and no other.
func TestTheTablesOfABenchmark(t *testing.T) {
	r := measured()
	var page, text strings.Builder
	must.Do(t, errors.Join(r.Markdown(&page, "stocklab bench --each 2s"), r.Table(&text)))
	for title, rows := range map[string][]string{
		"Strategies that never oversell": {
			"64 clients, sales/s | 1 replica | grouped | × | 2 replicas, nginx | grouped | ×",
			"sql-conditional | 1,000 (900–1,100) 1% busy | 7,500 (7,000–8,000) | 7.5 | 2,000 (1,900–2,100) |  | ",
			"mutex | 0 | 5 |  |  |  | ",
		},
		"64 clients, latency in ms, as in JMeter's aggregate report": {
			" | replicas | median | 90 % | 95 % | 99 % | min | max | busy % | sales/s | kB/s",
			"sql-conditional | 1 | 12.5 | 30.0 | 40.0 | 80.0 | 0.5 | 90.0 | 1.0 | 1,000 | 1,234",
			"sql-conditional, grouped | 1 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.5 | 7,500 | 0",
			"sql-conditional | 2 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 2,000 | 0",
			"mutex | 1 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0 | 0",
			"mutex, grouped | 1 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 5 | 0",
		},
		"64 clients, processor time of a sale in µs, without the clients": {
			" | replicas | in all | × HTTP | stockd | database | nginx",
			"HTTP baseline | 1 | 50 | 1.0 | 40 |  | 10",
			"sql-conditional | 1 | 700 | 14.0 | 300 | 400 | ",
		},
		"One item, sales/s by clients": {
			" | replicas | 256 | 512 | p50, p99 of 512, ms",
			"HTTP baseline | 1 |  | 30,000 | 0.0, 0.0",
			"sql-conditional | 1 |  | 800 (700–900) 25% busy | 100.0, 450.0",
			"sql-conditional | 2 | 1,500 |  | ",
		},
		"Many items, sales/s": {
			" | median (least–most) | p50, p99, ms",
			"sql-conditional, 256 clients, 1 replica, 7 items by Zipf | 70 (60–80) | 3.0, 9.0",
		},
		"Limits, and what is no strategy": {
			" | median | min | max | target | ",
			", 64 clients, 1 replica | 40000 | 39000 | 41000 |  | ",
			"memory | 50 MiB | 40 MiB | 60 MiB | at most 60 | reached",
			"wait | 1.3× | 1.2× | 1.4× |  | ",
		},
		"Ratios, of the same round each": {
			" | median | min | max | target | ",
			"grouped / alone | 7.50 | 7.50 | 7.50 | at least 7 | reached",
			"no target | 1.00 | 1.00 | 1.00 |  | ",
			"each lock: 1 of 2 |  |  |  | at least 5 | ",
			"  etcd | 4.00 | 4.00 | 4.00 | at least 5 | not reached",
			"each tail: 2 of 2, closest redis-lua | 9.00 | 9.00 | 9.00 | below 10 | reached",
			"each crowd: 2 of 2, closest redis-lua | 0.85 | 0.85 | 0.85 | at least 0.8 | reached",
		},
	} {
		_, table, _ := strings.Cut(page.String(), "## "+title+"\n\n")
		table, _, _ = strings.Cut(table, "\n\n")
		lines := slices.Delete(strings.Split(table, "\n"), 1, 2) // the rule below the header
		for i, line := range lines {
			lines[i] = strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |")
		}
		if !slices.Equal(lines, rows) {
			t.Errorf("%s:\n%s\nwant\n%s", title, strings.Join(lines, "\n"), strings.Join(rows, "\n"))
		}
		should.Contain(t, text.String(), title)
	}
	for _, want := range []string{"no nginx", "durability of sqlite: full", "medians with (least to most) of 3 rounds"} {
		if !strings.Contains(page.String(), "\n- "+want+"\n") || !strings.Contains(text.String(), "\n"+want+"\n") {
			t.Errorf("page or text lack %q", want)
		}
	}
	if !strings.Contains(page.String(), "\n# `stocklab bench --each 2s`\n") {
		t.Error("the page does not name its command")
	}
	should.Fail(t, r.Table(fullDisk{}), io.ErrShortWrite, "a table that cannot be written")
}

// What was not measured has no table.
func TestAnEmptyTableIsLeftOut(t *testing.T) {
	alone := Figure{Name: "large / empty", Median: 1}
	many := measured().Subjects[len(measured().Subjects)-1]
	for name, c := range map[string]struct {
		result Result
		tables int
	}{"nothing": {Result{}, 0}, "a ledger": {Result{Subjects: []Figure{{Name: "audit"}}, Ratios: []Figure{alone}}, 2}, "items": {Result{Subjects: []Figure{many}}, 1}} {
		should.Be(t, len(c.result.tables()), c.tables, "tables", name)
	}
}

// A baseline whose costs are not known is not divided by.
func TestTheCostOfASaleIsComparedWithAKnownBaseline(t *testing.T) {
	sale := Figure{Setting: Setting{Strategy: "mutex", Clients: usual, Replicas: 1}, Sample: Sample{Costs: Costs{"stockd": {User: 200}}}}
	for beside, baseline := range map[string]Costs{"": nil, "4.0": {"stockd": {User: 50}}} {
		r := Result{Subjects: []Figure{{Setting: Setting{Clients: usual, Replicas: 1}, Sample: Sample{Costs: baseline}}, sale}}
		should.Contain(t, r.costTable().RenderTSV(), "mutex\t1\t200\t"+beside+"\t200")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Each row is the samples of one round, and the ratio of what it names.
func TestARatioNeedsBothFigures(t *testing.T) {
	for name, c := range map[string]struct {
		ratio   Ratio
		samples map[string][]*Sample
		want    float64
		ok      bool
	}{
		"of another":           {Ratio{Of: "a", By: "b"}, map[string][]*Sample{"a": {{Value: 6}}, "b": {{Value: 4}}}, 1.5, true},
		"by nothing sold":      {Ratio{Of: "a", By: "b"}, map[string][]*Sample{"a": {{Value: 6}}, "b": {{Value: 0}}}, 0, false},
		"by what was left out": {Ratio{Of: "a", By: "b"}, map[string][]*Sample{"a": {{Value: 6}}, "b": {nil}}, 0, false},
		"of what was left out": {Ratio{Of: "a", By: "b"}, map[string][]*Sample{"a": {nil}, "b": {{Value: 4}}}, 0, false},
		"of the tail":          {Ratio{Of: "a"}, map[string][]*Sample{"a": {{P50: 4, P99: 30}}}, 7.5, true},
		"of no tail":           {Ratio{Of: "a"}, map[string][]*Sample{"a": {{P50: 0, P99: 30}}}, 0, false},
		"costs of nothing":     {Ratio{Of: "a", By: "b", Cost: true}, map[string][]*Sample{"a": {nil}, "b": {{Costs: Costs{"x": {User: 1}}}}}, 0, false},
		"costs by nothing":     {Ratio{Of: "a", By: "b", Cost: true}, map[string][]*Sample{"a": {{Costs: Costs{"x": {User: 1}}}}, "b": {nil}}, 0, false},
		"of a later round":     {Ratio{Of: "a", By: "b"}, map[string][]*Sample{"a": {{Value: 6}}, "b": {}}, 0, false},
	} {
		if got, ok := c.ratio.of(c.samples, 0); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
	for _, c := range []struct {
		ratio   Ratio
		median  float64
		aim     string
		reached bool
	}{
		{Ratio{AtLeast: 5}, 5, "at least 5", true},
		{Ratio{AtLeast: 5}, 4.9, "at least 5", false},
		{Ratio{Below: 10}, 9.9, "below 10", true},
		{Ratio{Below: 10}, 10, "below 10", false},
	} {
		if f := c.ratio.figure([]float64{c.median}); f.Aim != c.aim || f.Reached != c.reached {
			t.Errorf("%v is %s: %v, want %s: %v", c.median, f.Aim, f.Reached, c.aim, c.reached)
		}
	}
}

func TestAPacerSharesOutWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(0, time.Now().Add(20*time.Second), 10)
		want := func(each time.Duration, late bool, when string) {
			t.Helper()
			if got := p.next(); got != each || p.late() != late {
				t.Errorf("%s: %s, late %v; want %s, %v", when, got, p.late(), each, late)
			}
		}
		want(1700*time.Millisecond, false, "two seconds, less what a measurement costs besides")
		p.left -= 2
		want(2200*time.Millisecond, false, "after one that cannot be measured and one that was dropped")
		p.left--
		p.took(2200*time.Millisecond, 300*time.Millisecond) // 1.9 s besides: 100 ms more are expected
		want(20*time.Second/7-400*time.Millisecond, false, "after one that cost more")
		p.left = 1000
		want(shortest, false, "a thousand are left")
		p.left = 1
		want(longest, false, "one is left")
		time.Sleep(20 * time.Second)
		want(shortest, true, "at the end")
		p.each = time.Minute
		want(time.Minute, false, "each is given")
	})
}

// drawn is a result of two strategies, one of which sold nothing.
func drawn() *Result {
	r := &Result{Plan: "3 rounds", Machine: servers.Machine{CPU: "a <fast> one", Processors: 2}}
	add := func(s Setting, median, busy float64) {
		f := figure(s.String(), "/s", []float64{median * 0.9, median, median * 1.1})
		f.Setting, f.Busy = s, busy
		r.Subjects = append(r.Subjects, f)
	}
	for _, replicas := range []int{1, 3} {
		add(Setting{Clients: usual, Replicas: replicas}, 20_000, 0)
		add(Setting{Strategy: "sql-conditional", Clients: usual, Replicas: replicas}, 3_000, 0)
		add(Setting{Strategy: "sql-conditional", Group: true, Clients: usual, Replicas: replicas}, 15_000, 0)
		if replicas == 1 {
			r.Subjects[0].Costs = Costs{"stockd": {User: 12, System: 10}}
			r.Subjects[2].Costs = Costs{"stockd": {User: 40, System: 25}, "database": {User: 20, System: 9}}
		}
		add(Setting{Strategy: "slow & busy", Clients: usual, Replicas: replicas}, 12, 0.5)
	}
	for _, limit := range []Figure{figure(script, "/s", []float64{90_000}), figure(bareLoop, "/s", []float64{4000})} {
		limit.Clients = usual
		r.Subjects = append(r.Subjects, limit)
	}
	r.Servers = map[string]servers.Info{"redis": {Name: "Valkey", Version: "8"}, "database": {Name: "MariaDB", Version: "10.11"}}
	return r
}

func TestAChartIsWellFormedAndHasEverything(t *testing.T) {
	var chart bytes.Buffer
	must.Do(t, drawn().Chart(&chart))
	var texts []string
	circles := 0
	for d := xml.NewDecoder(bytes.NewReader(chart.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("it is not well formed: %v\n%s", err, chart.String())
		}
		switch token := token.(type) {
		case xml.CharData:
			texts = append(texts, string(token))
		case xml.StartElement:
			if token.Name.Local == "circle" {
				circles++
			}
		}
	}
	all := strings.Join(texts, "\n")
	should.Contain(t, all,
		"sql-conditional", "slow & busy", "a <fast> one", "\n1 replica, sales/s\n", "3 replicas behind nginx, sales/s",
		"1 replica, µs of processor time", "HTTP baseline 22", "sql-conditional, grouped, 64 clients, 1 replica: 94 µs", "MariaDB 10.11, Valkey 8. One",
	)
	should.Be(t, circles, 7, "dots, six of sales and one of processor time")
	if !strings.Contains(chart.String(), "prefers-color-scheme: dark") {
		t.Error("it has no colours for the dark")
	}
}

// The limits that were measured are lines, the lowest first.
func TestTheLimitsOfAChart(t *testing.T) {
	r := drawn()
	for replicas, want := range map[int][]string{
		1: {"bare SQL loop 4,000", "HTTP baseline 20,000", "redis-benchmark 90,000"},
		2: {"bare SQL loop 4,000", "redis-benchmark 90,000"}, // without a baseline
	} {
		limits := r.chartLimits(replicas)
		got := make([]string, len(limits))
		for i, l := range limits {
			got[i] = l.Name
		}
		should.Equal(t, got, want, "with … replicas they are", replicas)
	}
	r.Subjects = []Figure{figure(script, "/s", []float64{0})}
	should.Be(t, len(r.chartLimits(1)), 0, "limits of nothing that are drawn")
}

func TestThereIsNoChartOfNothing(t *testing.T) {
	alone := Figure{Name: "sql-conditional, 8 clients", Setting: Setting{Strategy: "sql-conditional", Clients: 8, Replicas: 1}, Median: 1}
	for _, r := range []*Result{{}, {Subjects: []Figure{alone}}} { // the picture is of another number of clients
		should.Fail(t, r.Chart(io.Discard), errNotMeasured, "a chart")
	}
}
