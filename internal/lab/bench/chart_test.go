package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

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
	if err := drawn().Chart(&chart); err != nil {
		t.Fatal(err)
	}
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
	for _, want := range []string{
		"sql-conditional", "slow & busy", "a <fast> one", "\n1 replica, sales/s\n", "3 replicas behind nginx, sales/s",
		"1 replica, µs of processor time", "HTTP baseline 22", "sql-conditional, grouped, 64 clients, 1 replica: 94 µs", "MariaDB 10.11, Valkey 8. One",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if circles != 7 {
		t.Errorf("it has %d dots, want six of sales and one of processor time", circles)
	}
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
		if !slices.Equal(got, want) {
			t.Errorf("with %d replicas they are %q, want %q", replicas, got, want)
		}
	}
	r.Subjects = []Figure{figure(script, "/s", []float64{0})}
	if got := r.chartLimits(1); len(got) != 0 {
		t.Errorf("a limit of nothing is drawn: %v", got)
	}
}

func TestThereIsNoChartOfNothing(t *testing.T) {
	alone := Figure{Name: "sql-conditional, 8 clients", Setting: Setting{Strategy: "sql-conditional", Clients: 8, Replicas: 1}, Median: 1}
	for _, r := range []*Result{{}, {Subjects: []Figure{alone}}} { // the picture is of another number of clients
		if err := r.Chart(io.Discard); !errors.Is(err, errNotMeasured) {
			t.Errorf("%v, want %v", err, errNotMeasured)
		}
	}
}

func TestFiguresAreReadAsTheyWereWritten(t *testing.T) {
	content, err := json.Marshal(drawn())
	if err != nil {
		t.Fatal(err)
	}
	var read Result
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	f := read.find(Setting{Strategy: "slow & busy", Clients: usual, Replicas: 3})
	if f == nil || f.Busy != 0.5 || f.Median != 12 {
		t.Errorf("the figure is %+v", f)
	}
}
