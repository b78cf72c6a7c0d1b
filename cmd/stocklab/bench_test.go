package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// A chart of what was measured earlier is worth more than none.
func TestAChartThatCannotBeDrawnLeavesTheFileAsItWas(t *testing.T) {
	const earlier = "<svg>earlier</svg>"
	folder := t.TempDir()
	figures, chart := filepath.Join(folder, "figures.json"), filepath.Join(folder, "chart.svg")
	for name, content := range map[string]string{
		"nothing was measured":    `{"plan": "1 round"}`,
		"other crowds":            `{"plan": "1 round", "subjects": [{"name": "a", "strategy": "a", "clients": 256, "replicas": 1, "items": 10, "median": 5, "samples": [5]}]}`,
		"the growth of something": `{"plan": "1 round", "subjects": [{"name": "a", "strategy": "a", "clients": 64, "replicas": 1, "median": 5, "samples": [5]}]}`,
	} {
		for path, what := range map[string]string{figures: content, chart: earlier} {
			must.Do(t, os.WriteFile(path, []byte(what), 0o600))
		}
		args := []string{"bench", "--chart-from", figures, "--chart", chart}
		if strings.Contains(name, "growth") {
			args = append(args, "--growth")
		}
		status, _, errOut := stocklab(args...)
		if left, err := os.ReadFile(chart); status != cli.Failure || string(left) != earlier || err != nil || !strings.Contains(errOut, "draw ") {
			t.Errorf("%s: exit status %d, %q, and the chart is %q (%v)", name, status, errOut, left, err)
		}
	}
}

// Where nothing was measured, the exit status and the reasons say so.
func TestASuiteThatMeasuredNothingFails(t *testing.T) {
	var out bytes.Buffer
	cmd := benchCommand()
	cmd.SetOut(&out)
	err := new(suiteFlags).show(cmd, &bench.Result{Notes: []string{"redis-stock: not measured: no Redis"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "nothing was measured") || !strings.Contains(err.Error(), "no Redis") || out.Len() > 0 {
		t.Errorf("it ends with %v and shows %q", err, &out)
	}
}

// A page of an earlier run names the command that measured it, and not how it was printed.
func TestAnEarlierRunIsPrintedAsAPage(t *testing.T) {
	figures := filepath.Join(t.TempDir(), "figures.json")
	content := `{"plan": "2 rounds", "subjects": [{"name": "memory", "unit": " MiB", "median": 50, "min": 40, "max": 60}]}`
	must.Do(t, os.WriteFile(figures, []byte(content), 0o600))
	status, out, errOut := stocklab("bench", "--growth", "--rounds", "2", "--chart-from", figures, "--markdown")
	if status != cli.OK || !strings.Contains(out, "# `stocklab bench --growth --rounds 2`\n") || !strings.Contains(out, "| memory | 50 MiB | 40 MiB | 60 MiB |") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}

// The suite measures what can be measured without a server, and says what cannot.
func TestTheSuiteOnEmbeddedServers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	figures, drawn, redrawn := filepath.Join(folder, "f.json"), filepath.Join(folder, "f.svg"), filepath.Join(folder, "again.svg")
	status, out, errOut := stocklab("bench", "--quick", "--servers", "embedded", "--only", "^sql-(conditional|for-update)$",
		"--rounds", "1", "--each", "300ms", "--json", figures, "--chart", drawn)
	if status != cli.OK {
		t.Fatalf("exit status %d\n%s%s", status, out, errOut)
	}
	should.Contain(t, out, "sql-conditional", "sql-for-update", "HTTP baseline", "redis-benchmark", "not measured", "grouped / alone", "durability of database")
	var read bench.Result
	content, err := os.ReadFile(figures)
	if err == nil {
		err = json.Unmarshal(content, &read)
	}
	if err != nil || read.Machine.Processors == 0 || read.Machine.Go == "" || len(read.Subjects) < 8 || read.Subjects[0].Median <= 0 {
		t.Errorf("the figures are %+v (%v)", read, err)
	}
	if status, _, errOut := stocklab("bench", "--chart-from", figures, "--chart", redrawn); status != cli.OK {
		t.Errorf("redraw: exit status %d, %s", status, errOut)
	}
	first, err := os.ReadFile(drawn)
	again, failed := os.ReadFile(redrawn)
	if err != nil || failed != nil || !bytes.Equal(first, again) || !bytes.Contains(first, []byte("sql-for-update")) {
		t.Errorf("the chart is not drawn, or not the same from its figures (%v, %v)", err, failed)
	}
}
