package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/lab/bench"
)

// figures are what a template can ask for. A strategy is named as in "etcd, grouped"; no
// name is the HTTP baseline.
type figures struct {
	bench.Result

	// read reads a file of the repository.
	read func(path string) ([]byte, error)
}

// lab is a figure on the page of an experiment, which is made from a run of it.
func (f figures) lab(page, part, name string) (string, error) {
	content, err := f.read("docs/lab/" + page + ".md")
	if err != nil {
		return "", err
	}
	_, text, ok := strings.Cut(string(content), "\n### "+part+" (")
	text, _, _ = strings.Cut(text, "\n##")
	_, row, found := strings.Cut(text, "\n| "+name+" | ")
	value, _, ended := strings.Cut(row, " |\n")
	if !ok || !found || !ended {
		return "", fmt.Errorf("%s has no %q of %s", page, name, part)
	}
	return value, nil
}

// nodes are the cells of a strategy on a cluster, from docs/nodes.json: sales a second on one writing node
// and on three, and three to one.
func (f figures) nodes(cluster, strategy string) (string, error) {
	const file = "docs/nodes.json"
	content, err := f.read(file)
	if err != nil {
		return "", err
	}
	var all []struct {
		Cluster  string  `json:"cluster"`
		Strategy string  `json:"strategy"`
		One      float64 `json:"one"`
		Three    float64 `json:"three"`
		Ratio    float64 `json:"ratio"`
		Least    float64 `json:"least"`
		Most     float64 `json:"most"`
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	for _, n := range all {
		if n.Cluster == cluster && n.Strategy == strategy {
			return fmt.Sprintf("%s | %s | %s", humanize.Comma(int64(n.One)), humanize.Comma(int64(n.Three)), spread(n.Ratio, n.Least, n.Most)), nil
		}
	}
	return "", fmt.Errorf("%s has no %s on %s", file, strategy, cluster)
}

// items are the cells of a strategy that sells many items, from docs/items.json: sales a second of one
// item, of many that are asked for alike, and by Zipf; and both to the one.
func (f figures) items(strategy string) (string, error) {
	const file = "docs/items.json"
	r, err := read(f.read, file)
	if err != nil {
		return "", err
	}
	name, group := strings.CutSuffix(strategy, ", grouped")
	var rates, ratios []string
	for _, s := range r.Subjects {
		if s.Strategy == name && s.Group == group {
			rates = append(rates, humanize.Comma(int64(s.Median)))
		}
	}
	for _, ratio := range r.Ratios {
		if strings.HasPrefix(ratio.Name, strategy+", 256") && strings.HasSuffix(ratio.Name, " / one item") {
			ratios = append(ratios, spread(ratio.Median, ratio.Min, ratio.Max))
		}
	}
	if len(rates) != 3 {
		return "", fmt.Errorf("%s has no %s", file, strategy)
	}
	return strings.Join(append(rates, ratios...), " | "), nil
}

// grown is a median of sales a second from docs/growth.json: of one item, or of many asked for by Zipf.
func (f figures) grown(strategy string, clients, items, replicas int) (string, error) {
	r, err := read(f.read, growth)
	if err != nil {
		return "", err
	}
	how := setting(strategy, clients, replicas)
	if items > 1 {
		how.Items, how.Zipf = items, true
	}
	found, err := find(growth, r.Subjects, how.String(), func(s bench.Figure) bool { return s.Setting == how })
	return humanize.Comma(int64(found.Median)), err
}

// ledger are the cells of a ledger of so many rows, from docs/ledger: sales to those on an empty one, alone
// and grouped, and the 99th percentiles in ms of the audits and of a look-up by key.
func (f figures) ledger(rows int) (string, error) {
	file := fmt.Sprintf("docs/ledger/%d.json", rows)
	r, err := read(f.read, file)
	if err != nil {
		return "", err
	}
	var cells []string
	for _, ratio := range r.Ratios {
		cells = append(cells, spread(ratio.Median, ratio.Min, ratio.Max))
	}
	for _, s := range r.Subjects {
		if strings.HasSuffix(s.Name, ", p99") {
			cells = append(cells, humanize.Comma(int64(math.Round(s.Median))))
		}
	}
	if len(cells) != 7 {
		return "", fmt.Errorf("%s has %d figures of a ledger, not 7", file, len(cells))
	}
	return strings.Join(cells, " | "), nil
}

func (f figures) of(strategy string, clients, replicas int) (bench.Figure, error) {
	how := setting(strategy, clients, replicas)
	return find(source, f.Subjects, how.String(), func(s bench.Figure) bool { return s.Setting == how })
}

func setting(strategy string, clients, replicas int) bench.Setting {
	name, group := strings.CutSuffix(strategy, ", grouped")
	return bench.Setting{Strategy: name, Group: group, Clients: clients, Replicas: replicas}
}

func find(file string, list []bench.Figure, name string, is func(bench.Figure) bool) (bench.Figure, error) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], nil
	}
	return bench.Figure{}, fmt.Errorf("%s has no %s", file, name)
}

// rate is a median of sales a second.
func (f figures) rate(strategy string, clients, replicas int) (string, error) {
	found, err := f.of(strategy, clients, replicas)
	return humanize.Comma(int64(found.Median)), err
}

// rounds divides one strategy by another, round by round, in ascending order. A benchmark whose time
// is over leaves the last rounds out, so the rounds that both have are the first ones of each.
func (f figures) rounds(of, by string, replicas int) ([]float64, error) {
	part, err := f.of(of, clients, replicas)
	whole, other := f.of(by, clients, replicas)
	if err := cmp.Or(err, other); err != nil {
		return nil, err
	}
	n := min(len(part.Samples), len(whole.Samples))
	if n == 0 {
		return nil, fmt.Errorf("%s was measured in %d rounds, %s in %d", of, len(part.Samples), by, len(whole.Samples))
	}
	list := make([]float64, n)
	for i := range list {
		list[i] = part.Samples[i] / whole.Samples[i]
	}
	slices.Sort(list)
	return list, nil
}

// times is a ratio of the same round by the usual crowd, with the least and the most.
func (f figures) times(of, by string, replicas int) (string, error) {
	list, err := f.rounds(of, by, replicas)
	if err != nil {
		return "", err
	}
	return spread(bench.Median(list), list[0], list[len(list)-1]), nil
}

// part is the median of times.
func (f figures) part(of, by string, replicas int) (string, error) {
	list, err := f.rounds(of, by, replicas)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.2f", bench.Median(list)), nil
}

func spread(median, least, most float64) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median, least, most)
}

// ratio is one of the benchmark's own.
func (f figures) ratio(name string) (string, error) {
	found, err := find(source, f.Ratios, name, func(r bench.Figure) bool { return r.Name == name && r.Topic == "" })
	return spread(found.Median, found.Min, found.Max), err
}

// value is the median of what is no strategy.
func (f figures) value(name string) (string, error) {
	found, err := find(source, f.Subjects, name, func(s bench.Figure) bool { return s.Name == name })
	return humanize.Comma(int64(found.Median)), err
}

// between has the least and the most of the medians whose names begin so.
func (f figures) between(prefix string) (string, error) {
	var medians []float64
	for _, s := range f.Subjects {
		if strings.HasPrefix(s.Name, prefix) {
			medians = append(medians, s.Median)
		}
	}
	if len(medians) == 0 {
		return "", fmt.Errorf("%s has nothing that begins with %q", source, prefix)
	}
	return fmt.Sprintf("%.2f to %.2f", slices.Min(medians), slices.Max(medians)), nil
}

// reached counts the ratios of a topic that reach its target.
func (f figures) reached(topic string) (string, error) {
	var all, reached int
	for _, r := range f.Ratios {
		if r.Topic == topic {
			all++
			if r.Reached {
				reached++
			}
		}
	}
	if all == 0 {
		return "", fmt.Errorf("%s has no topic %q", source, topic)
	}
	return fmt.Sprintf("%d of %d", reached, all), nil
}

// The usual crowd, and what the costs are shown as parts of.
const (
	clients = 64
	base    = "sql-conditional"
)

// usual is a table of sales a second by the usual crowd, alone and grouped.
func (f figures) usual(strategies ...string) (string, error) {
	var b strings.Builder
	b.WriteString("\n| 64 clients, sales/s | one replica | grouped | three behind nginx | grouped |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, name := range strategies {
		label := "HTTP baseline"
		if name != "" {
			label = "`" + name + "`"
		}
		fmt.Fprintf(&b, "| %s |", label)
		for _, replicas := range []int{1, 3} {
			for _, how := range []string{"", ", grouped"} {
				if name == "" && how != "" {
					b.WriteString(" |")
					continue
				}
				rate, err := f.rate(name+how, clients, replicas)
				if err != nil {
					return "", err
				}
				b.WriteString(" " + rate + " |")
			}
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// costs is a table of every strategy that was measured. The last column is not the
// benchmark's: it is that of the table before, and "?" where that has none.
func (f figures) costs(before string) (string, error) {
	trips := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(before, -1) {
		trips[row[1]] = row[2]
	}
	var b strings.Builder
	b.WriteString("\n| strategy | one replica | grouped | three | grouped | three: p50, p99 | grouped | round trips |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	seen := make(map[string]bool)
	for _, s := range f.Subjects {
		if s.Strategy == "" || seen[s.Strategy] {
			continue
		}
		seen[s.Strategy] = true
		row, err := f.cost(s.Strategy)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Strategy, strings.Join(row, " | "), cmp.Or(trips[s.Strategy], "?"))
	}
	return b.String(), nil
}

// cost is a row of costs: parts of the base, and then the latency on three replicas.
func (f figures) cost(strategy string) (cells []string, err error) {
	for _, replicas := range []int{1, 3} {
		for _, how := range []string{"", ", grouped"} {
			share, err := f.part(strategy+how, base, replicas)
			if err != nil {
				return nil, err
			}
			cells = append(cells, share)
		}
	}
	for _, how := range []string{"", ", grouped"} {
		found, err := f.of(strategy+how, clients, 3)
		if err != nil {
			return nil, err
		}
		cells = append(cells, fmt.Sprintf("%.0f, %.0f", found.P50, found.P99))
	}
	return cells, nil
}
