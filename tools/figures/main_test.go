package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/bench"
)

const repository = "../.."

func TestEachFigureOfADocumentIsMeasured(t *testing.T) {
	root, err := os.OpenRoot(repository)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // it was read from
	seen := 0
	err = each(root, func(path, text, wanted string) error {
		seen += len(marker.FindAllString(text, -1))
		if text != wanted {
			t.Errorf("%s has figures of another run: go run ./tools/figures", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no document has a marker")
	}
}

// A rate, or a ratio with its spread or of so many times, that stands in a document is written by a marker.
// Pages of experiments are written by a command as a whole.
func TestNoFigureIsWrittenByHand(t *testing.T) {
	figure := regexp.MustCompile(`\d[\d,.]*/s\b|\d\.\d+ (\(\d|times|to \d)`)
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d documents (%v)", len(pages), err)
	}
	pages = append(pages, filepath.Join(repository, "README.md"), filepath.Join(repository, "README.zh-CN.md"))
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range figure.FindAllString(marker.ReplaceAllString(string(text), ""), -1) {
			t.Errorf("%s: %q is written by hand", filepath.Base(page), found)
		}
	}
}

// measured has two strategies of two rounds each, but on five replicas one round of the second.
func measured() figures {
	var r bench.Result
	for _, s := range []struct {
		name    string
		samples []float64
	}{{"sql-conditional", []float64{1000, 2000}}, {"etcd", []float64{500, 500}}, {"etcd, grouped", []float64{3000, 3000}}, {"sql-conditional, grouped", []float64{4000, 4000}}} {
		name, group := strings.CutSuffix(s.name, ", grouped")
		for _, replicas := range []int{1, 3} {
			r.Subjects = append(r.Subjects, bench.Figure{
				Setting: bench.Setting{Strategy: name, Group: group, Clients: clients, Replicas: replicas},
				Median:  (s.samples[0] + s.samples[1]) / 2, Samples: s.samples, P50: 1.4, P99: 20,
			})
		}
	}
	for name, samples := range map[string][]float64{"sql-conditional": {1000, 2000}, "etcd": {100}} {
		r.Subjects = append(r.Subjects, bench.Figure{Setting: bench.Setting{Strategy: name, Clients: clients, Replicas: 5}, Samples: samples})
	}
	r.Subjects = append(r.Subjects, bench.Figure{Name: "wait a", Median: 1.25}, bench.Figure{Name: "wait b", Median: 1234.9})
	r.Ratios = []bench.Figure{
		{Name: "a / b", Topic: "each"}, {Name: "a / b", Median: 2, Min: 1.994, Max: 2.5}, {Name: "c / b", Topic: "each", Reached: true},
	}
	return figures{r, func(path string) ([]byte, error) {
		if path == growth {
			return []byte(`{"subjects": [{"strategy": "etcd", "group": true, "clients": 64, "replicas": 1, "median": 5},
				{"strategy": "etcd", "group": true, "clients": 64, "replicas": 1, "items": 10, "zipf": true, "median": 4321.5}]}`), nil
		}
		if path == "docs/ledger/7.json" {
			return []byte(`{"subjects": [{"name": "sales", "median": 5}, {"name": "audit, p99", "median": 2.4}, {"name": "full audit, p99", "median": 1234.5},
				{"name": "audit of one, p99", "median": 3}, {"name": "full audit of one, p99", "median": 4}, {"name": "order, p99", "median": 5}],
				"ratios": [{"median": 1, "min": 0.9, "max": 1.1}, {"median": 0.9, "min": 0.8, "max": 1}]}`), nil
		}
		if path == "docs/ledger/8.json" {
			return []byte(`{}`), nil
		}
		if path != "docs/lab/1-one.md" {
			return nil, fs.ErrNotExist
		}
		return []byte("\n### a (failure)\n\n| x | 1,234 |\n\n### b (remedy)\n\n| x | 5 |\n| y | 6 |\n\n## The run\n\n| z | 7 |\n"), nil
	}}
}

// Each row is a marker, and the text that it gets instead of "old".
func TestAMarkerGetsItsFigure(t *testing.T) {
	for template, want := range map[string]string{
		`rate "sql-conditional" 64 1`:      "1,500",
		`times "etcd" "sql-conditional" 3`: "0.38 (0.25–0.50)",
		`times "etcd" "sql-conditional" 5`: "0.10 (0.10–0.10)",
		`times "sql-conditional" "etcd" 5`: "10.00 (10.00–10.00)",
		`part "etcd" "sql-conditional" 1`:  "0.38",
		`part "etcd, grouped" "etcd" 1`:    "6.00",
		`ratio "a / b"`:                    "2.00 (1.99–2.50)",
		`value "wait b"`:                   "1,234",
		`between "wait "`:                  "1.25 to 1234.90",
		`reached "each"`:                   "1 of 2",
		`.`:                                "old",
		`rate "sql-bucket" 64 1`:           "no sql-bucket, 64 clients, 1 replica",
		`rate "etcd" 64 2`:                 "no etcd, 64 clients, 2 replicas",
		`times "etcd" "" 1`:                "no , 64 clients, 1 replica",
		`ratio "b / a"`:                    "no b / a",
		`ratio "c / b"`:                    "no c / b", // of a topic: there may be many
		`between "weight"`:                 `nothing that begins with "weight"`,
		`reached "all"`:                    `no topic "all"`,
		`lab "1-one" "a" "x"`:              "1,234",
		`lab "1-one" "b" "y"`:              "6",
		`lab "1-one" "a" "y"`:              `no "y" of a`, // but of another part
		`lab "1-one" "b" "z"`:              `no "z" of b`,
		`lab "1-one" "c" "x"`:              `no "x" of c`,
		`lab "2-two" "a" "x"`:              "file does not exist",
		`grown "etcd, grouped" 64 1 1`:     "5",
		`grown "etcd, grouped" 64 10 1`:    "4,321",
		`grown "etcd" 64 1 1`:              "growth.json has no etcd, 64 clients, 1 replica",
		`ledger 7`:                         "1.00 (0.90–1.10) | 0.90 (0.80–1.00) | 2 | 1,235 | 3 | 4 | 5",
		`ledger 8`:                         "8.json has 0 figures of a ledger",
		`speed "etcd"`:                     `function "speed" not defined`,
		`usual "etcd"`:                     "\n| 64 clients, sales/s | one replica | grouped | three behind nginx | grouped |\n| --- | ---: | ---: | ---: | ---: |\n| `etcd` | 500 | 3,000 | 500 | 3,000 |\n",
		"costs \"| `etcd` | 9 | 5 + 2 |\\n| `x` | 9 | 7 |\"": "| `etcd` | 0.38 | 2.25 | 0.38 | 2.25 | 1, 20 | 1, 20 | 5 + 2 |\n",
		`costs ""`: "| `etcd` | 0.38 | 2.25 | 0.38 | 2.25 | 1, 20 | 1, 20 | ? |\n",
	} {
		got, err := rewrite("before <!-- {{"+template+"}} -->old<!-- / --> after", measured())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && (!strings.HasPrefix(got, "before <!-- {{"+template+"}} -->") || !strings.HasSuffix(got, "<!-- / --> after")) {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
}

// A comment at the beginning of a line ends the paragraph, and its line is not Markdown.
func TestAMarkerInProseBeginsNoLine(t *testing.T) {
	if _, err := rewrite("a\n<!-- {{value \"wait b\"}} -->1<!-- / --> b", measured()); err == nil {
		t.Error("a marker at the beginning of a line is accepted")
	}
	if _, err := rewrite("a\n\n<!-- {{usual \"etcd\"}} -->\n<!-- / -->\n", measured()); err != nil {
		t.Errorf("a table: %v", err)
	}
}

// The round trips of a new strategy are not in the benchmark.
func TestTheCostsOfEveryStrategyAreComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs/strategies.md"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "| ? |") {
		t.Error("docs/strategies.md has a strategy without its round trips")
	}
}
