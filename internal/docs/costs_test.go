package docs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// figure is a measurement of the benchmark, one sample a round.
type figure struct {
	Strategy string    `json:"strategy"`
	Group    bool      `json:"group"`
	Clients  int       `json:"clients"`
	Replicas int       `json:"replicas"`
	P50      float64   `json:"p50_ms"`
	P99      float64   `json:"p99_ms"`
	Samples  []float64 `json:"samples"`
}

// benchmark is docs/benchmark.json as far as it is quoted.
type benchmark struct {
	Subjects []figure `json:"subjects"`
}

// of finds a strategy's figure with 64 clients.
func (b benchmark) of(t *testing.T, strategy string, group bool, replicas int) figure {
	t.Helper()
	at := slices.IndexFunc(b.Subjects, func(f figure) bool {
		return f.Strategy == strategy && f.Group == group && f.Clients == 64 && f.Replicas == replicas
	})
	if at < 0 {
		t.Fatalf("%s is not in the benchmark", strategy)
	}
	return b.Subjects[at]
}

// base is what the costs are told as parts of.
const base = "sql-conditional"

// ratio is the median of what a strategy sold in each round as a part of what the
// base sold alone in the same round.
func (b benchmark) ratio(t *testing.T, strategy string, group bool, replicas int) string {
	t.Helper()
	part, whole := b.of(t, strategy, group, replicas), b.of(t, base, false, replicas)
	if len(part.Samples) != len(whole.Samples) {
		t.Fatalf("%s was measured in %d rounds, %s in %d", strategy, len(part.Samples), base, len(whole.Samples))
	}
	rounds := make([]float64, len(part.Samples))
	for i := range rounds {
		rounds[i] = part.Samples[i] / whole.Samples[i]
	}
	slices.Sort(rounds)
	return fmt.Sprintf("%.2f", rounds[len(rounds)/2])
}

func (f figure) latency() string { return fmt.Sprintf("%.0f, %.0f", f.P50, f.P99) }

// What docs/choosing.md says of the costs is what the benchmark measured. A new
// run of it wants a new table: the lines are in the failures.
func TestTheCostsAreThoseOfTheBenchmark(t *testing.T) {
	var b benchmark
	if err := json.Unmarshal([]byte(read(t, "docs/benchmark.json")), &b); err != nil {
		t.Fatal(err)
	}
	text, seen := read(t, "docs/choosing.md"), make(map[string]bool)
	for _, f := range b.Subjects {
		if f.Strategy == "" || seen[f.Strategy] {
			continue
		}
		seen[f.Strategy] = true
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s |", f.Strategy,
			b.ratio(t, f.Strategy, false, 1), b.ratio(t, f.Strategy, true, 1),
			b.ratio(t, f.Strategy, false, 3), b.ratio(t, f.Strategy, true, 3),
			b.of(t, f.Strategy, false, 3).latency(), b.of(t, f.Strategy, true, 3).latency())
		if !strings.Contains(text, row) {
			t.Errorf("docs/choosing.md lacks %s", row)
		}
	}
	if len(seen) == 0 {
		t.Error("the benchmark has no strategy")
	}
}
