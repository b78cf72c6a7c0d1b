package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

// Setting is what was sold through, and by how many. What is no strategy has no
// Strategy, and what is no load no Clients.
type Setting struct {
	Strategy string `json:"strategy,omitempty"`
	Group    bool   `json:"group,omitempty"`
	// Paid is what was reserved, and then paid for.
	Paid bool `json:"paid,omitempty"`
	// Kind is what the requests are where they are no plain sales: with keys, with tokens, after the last unit, or to
	// a program that is no stockd.
	Kind     string `json:"kind,omitempty"`
	Clients  int    `json:"clients,omitempty"`
	Replicas int    `json:"replicas,omitempty"`
	// Items is how many are sold at the same time where it is not one; Zipf has the n-th of
	// them asked for n^-1.1 times as often as the first, otherwise all are asked for alike.
	Items int  `json:"items,omitempty"`
	Zipf  bool `json:"zipf,omitempty"`
}

// Figure is a median with its spread. Its Sample has the medians of the rest.
type Figure struct {
	Name string `json:"name"`
	Setting
	Unit   string  `json:"unit,omitempty"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Sample
	// Aim is the target in words, Reached whether the median does; where it is "at most", all
	// Samples must. Topic groups figures with one target.
	Aim     string    `json:"aim,omitempty"`
	Reached bool      `json:"reached"`
	Topic   string    `json:"topic,omitempty"`
	Samples []float64 `json:"samples"`
}

// Result is every figure of a run: the subjects, and then the ratios.
type Result struct {
	Machine servers.Machine `json:"machine"`
	// Servers maps a backend to what it was, Durability to which writes survive a crash.
	Servers    map[string]servers.Info `json:"servers"`
	Durability map[string]string       `json:"durability"`
	// Plan says in words how often and for how long everything was measured.
	Plan     string   `json:"plan"`
	Subjects []Figure `json:"subjects"`
	Ratios   []Figure `json:"ratios"`
	// Notes are what was not measured, and why.
	Notes []string `json:"notes,omitempty"`
}

func (r *Result) add(part *Result) {
	r.Subjects = append(r.Subjects, part.Subjects...)
	r.Ratios = append(r.Ratios, part.Ratios...)
	r.Notes = append(r.Notes, part.Notes...)
}

func (r *Result) find(s Setting) *Figure {
	i := slices.IndexFunc(r.Subjects, func(f Figure) bool { return f.Setting == s })
	if i < 0 {
		return nil
	}
	return &r.Subjects[i]
}

// figure is the median of at least one sample.
func figure(name, unit string, samples []float64) Figure {
	return Figure{
		Name: name, Unit: unit, Samples: samples,
		Median: Median(samples), Min: slices.Min(samples), Max: slices.Max(samples),
	}
}

// Median is the middle of samples, or the mean of the two in the middle.
func Median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// Table writes the figures for people, each table with its title, medians with their spread.
func (r *Result) Table(w io.Writer) error {
	for _, t := range r.tables() {
		if _, err := fmt.Fprintln(w, t.Render()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(r.notes(), "\n"))
	return err
}

// Markdown writes the same as a page, which names the command that measured it.
func (r *Result) Markdown(w io.Writer, command string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Written by the command below: what is changed by hand is lost. -->\n\n# `%s`\n\n", command)
	for _, t := range r.tables() {
		title, rows, _ := strings.Cut(t.RenderMarkdown(), "\n")
		fmt.Fprintf(&b, "#%s\n\n%s\n\n", title, rows)
	}
	b.WriteString("## How it was measured\n\n")
	for _, note := range r.notes() {
		b.WriteString("- " + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tables are those that have a row.
func (r *Result) tables() []table.Writer {
	all := []table.Writer{r.usualTable(), r.latencyTable(), r.costTable(), r.crowdTable(), r.itemTable(), r.limitTable(), r.aimTable()}
	return slices.DeleteFunc(all, func(t table.Writer) bool { return t.Length() == 0 })
}

// notes say what was not measured, on what the rest was, and how often.
func (r *Result) notes() []string {
	lines := slices.Concat(r.Notes, r.Machine.Lines(), []string{"servers: " + servers.Line(r.Servers)})
	for _, backend := range slices.Sorted(maps.Keys(r.Durability)) {
		lines = append(lines, "durability of "+backend+": "+r.Durability[backend])
	}
	return append(lines, "medians with (least to most) of "+r.Plan)
}

func newTable(title string, header ...any) table.Writer {
	return verdict.NewTable(title, len(header), header...)
}

// distinct has each value once, in the order in which it was measured.
func distinct[T comparable](figures []Figure, of func(Figure) (value T, ok bool)) (list []T) {
	for _, f := range figures {
		if value, ok := of(f); ok && !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	return list
}

// strategies are those that have a figure.
func (r *Result) strategies() []string {
	return distinct(r.Subjects, func(f Figure) (string, bool) { return f.Strategy, f.Strategy != "" })
}

// sizes are the numbers of replicas.
func (r *Result) sizes() []int {
	return distinct(r.Subjects, func(f Figure) (int, bool) { return f.Replicas, f.Strategy != "" })
}

// usualTable has a row a strategy, by the usual crowd.
func (r *Result) usualTable() table.Writer {
	sizes := distinct(r.Subjects, func(f Figure) (int, bool) { return f.Replicas, f.Strategy != "" && f.Clients == usual })
	header := append(make([]any, 0, 1+3*len(sizes)), "64 clients, sales/s")
	for _, n := range sizes {
		where := count(n, "replica")
		if n > 1 {
			where += ", nginx"
		}
		header = append(header, where, "grouped", "×")
	}
	t := newTable("Strategies that never oversell", header...)
	for _, name := range r.strategies() {
		row := append(make(table.Row, 0, 1+3*len(sizes)), name)
		for _, n := range sizes {
			alone := r.find(Setting{Strategy: name, Clients: usual, Replicas: n})
			grouped := r.find(Setting{Strategy: name, Group: true, Clients: usual, Replicas: n})
			row = append(row, alone.cell(), grouped.cell(), times(grouped, alone))
		}
		if len(sizes) > 0 {
			t.AppendRow(row)
		}
	}
	return t
}

// cell is a median with its spread, where it has one, and the share that was rejected.
func (f *Figure) cell() string {
	if f == nil {
		return ""
	}
	said := comma(f.Median)
	if f.Min < f.Max {
		said += fmt.Sprintf(" (%s–%s)", comma(f.Min), comma(f.Max))
	}
	const rounded = 0.005 // what is less is 0%
	if f.Busy > rounded {
		said += fmt.Sprintf(" %.0f%% busy", 100*f.Busy)
	}
	return said
}

func times(of, by *Figure) string {
	if of == nil || by == nil || by.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", of.Median/by.Median)
}

func comma(v float64) string { return humanize.Comma(int64(v)) }

// latencyTable has the columns of JMeter's aggregate report for the usual crowd.
func (r *Result) latencyTable() table.Writer {
	t := newTable("64 clients, latency in ms, as in JMeter's aggregate report",
		"", "replicas", "median", "90 %", "95 %", "99 %", "min", "max", "busy %", "sales/s", "kB/s")
	for _, f := range r.Subjects {
		if f.Strategy == "" || f.Clients != usual {
			continue
		}
		row := make(table.Row, 0, 11)
		row = append(row, f.strategy(), f.Replicas)
		for _, v := range []float64{f.P50, f.P90, f.P95, f.P99, f.Fastest, f.Slowest, 100 * f.Busy} {
			row = append(row, fmt.Sprintf("%.1f", v))
		}
		t.AppendRow(append(row, comma(f.Median), comma(f.Kilobytes)))
	}
	return t
}

// costTable has the processor time of a sale, and what it is beside HTTP alone.
func (r *Result) costTable() table.Writer {
	programs := r.programs()
	header := append(make([]any, 0, len(programs)+4), "", "replicas", "in all", "× HTTP")
	for _, program := range programs {
		header = append(header, program)
	}
	t := newTable("64 clients, processor time of a sale in µs, without the clients", header...)
	for _, f := range r.Subjects {
		if len(f.Costs) == 0 || f.Clients != usual {
			continue
		}
		beside := ""
		if baseline := r.find(Setting{Clients: usual, Replicas: f.Replicas}); baseline != nil && len(baseline.Costs) > 0 {
			beside = fmt.Sprintf("%.1f", f.Costs.sum()/baseline.Costs.sum())
		}
		row := append(make(table.Row, 0, len(header)), cmp.Or(f.strategy(), "HTTP baseline"), f.Replicas, fmt.Sprintf("%.0f", f.Costs.sum()), beside)
		for _, program := range programs {
			row = append(row, f.Costs.cell(program))
		}
		t.AppendRow(row)
	}
	return t
}

func (c Costs) cell(program string) string {
	if _, ok := c[program]; !ok {
		return ""
	}
	return fmt.Sprintf("%.0f", c[program].sum())
}

// strategy names what was sold through.
func (s Setting) strategy() string {
	name := s.Strategy
	if s.Paid {
		name += ", reserved and paid"
	}
	if s.Group {
		name += ", grouped"
	}
	if s.Kind != "" {
		name += ", " + s.Kind
	}
	return strings.TrimPrefix(name, ", ")
}

// crowdTable has the medians by all numbers of clients but the usual.
func (r *Result) crowdTable() table.Writer {
	crowds := r.crowds()
	header := append(make([]any, 0, len(crowds)+3), "", "replicas")
	for _, clients := range crowds {
		header = append(header, comma(float64(clients)))
	}
	t := newTable("One item, sales/s by clients", append(header, "p50, p99 of 512, ms")...)
	for _, name := range append([]string{""}, r.strategies()...) {
		for _, n := range r.sizes() {
			for _, group := range []bool{false, true} {
				r.crowdRow(t, Setting{Strategy: name, Group: group, Replicas: n}, crowds)
			}
		}
	}
	return t
}

// crowds are the numbers of clients that bought one item, but for the usual.
func (r *Result) crowds() []int {
	return slices.Sorted(slices.Values(distinct(r.Subjects, func(f Figure) (int, bool) {
		return f.Clients, f.Strategy != "" && f.Items == 0 && f.Clients != usual
	})))
}

func (r *Result) crowdRow(t table.Writer, s Setting, crowds []int) {
	row, latency, measured := table.Row{cmp.Or(s.strategy(), "HTTP baseline"), s.Replicas}, "", false
	for _, s.Clients = range crowds {
		f := r.find(s)
		measured = measured || f != nil
		row = append(row, f.cell())
		if f != nil && s.Clients == crowd {
			latency = fmt.Sprintf("%.1f, %.1f", f.P50, f.P99)
		}
	}
	if measured {
		t.AppendRow(append(row, latency))
	}
}

// itemTable has the sales of many items.
func (r *Result) itemTable() table.Writer {
	t := newTable("Many items, sales/s", "", "median (least–most)", "p50, p99, ms")
	for _, f := range r.Subjects {
		if f.Items > 0 {
			t.AppendRow(table.Row{f.Name, f.cell(), fmt.Sprintf("%.1f, %.1f", f.P50, f.P99)})
		}
	}
	return t
}

// limitTable has what is no strategy.
func (r *Result) limitTable() table.Writer {
	t := newTable("Limits, and what is no strategy", "", "median", "min", "max", "target", "")
	for _, f := range r.Subjects {
		if f.Strategy == "" && (f.Clients == 0 || f.Clients == usual) {
			format := "%.0f"
			if f.Max < 10 { //nolint:mnd // one digit says too little
				format = "%.1f"
			}
			t.AppendRow(f.row(f.Name, format))
		}
	}
	return t
}

// aimTable has the ratios. Of those that share a target it has the worst, and the
// others that miss it.
func (r *Result) aimTable() table.Writer {
	t := newTable("Ratios, of the same round each", "", "median", "min", "max", "target", "")
	var seen []string
	for _, f := range r.Ratios {
		switch {
		case f.Topic == "":
			t.AppendRow(f.row(f.Name, "%.2f"))
		case !slices.Contains(seen, f.Topic):
			seen = append(seen, f.Topic)
			r.topicRows(t, f.Topic)
		}
	}
	return t
}

func (r *Result) topicRows(t table.Writer, topic string) {
	var all, missed []Figure
	for _, f := range r.Ratios {
		if f.Topic == topic {
			all = append(all, f)
			if !f.Reached {
				missed = append(missed, f)
			}
		}
	}
	name := fmt.Sprintf("%s: %d of %d", topic, len(all)-len(missed), len(all))
	if len(missed) == 0 {
		closest := slices.MinFunc(all, func(a, b Figure) int { return cmp.Compare(a.margin(), b.margin()) })
		t.AppendRow(closest.row(name+", closest "+closest.Name, "%.2f"))
		return
	}
	t.AppendRow(table.Row{name, "", "", "", missed[0].Aim, ""})
	for _, f := range missed {
		t.AppendRow(f.row("  "+f.Name, "%.2f"))
	}
}

// margin grows with how far beyond its target a figure is.
func (f *Figure) margin() float64 {
	if strings.HasPrefix(f.Aim, "below") {
		return -f.Median
	}
	return f.Median
}

func (f *Figure) row(name, format string) table.Row {
	reached := ""
	switch {
	case f.Aim != "" && f.Reached:
		reached = "reached"
	case f.Aim != "":
		reached = "not reached"
	}
	show := func(v float64) string { return fmt.Sprintf(format+"%s", v, f.Unit) }
	return table.Row{name, show(f.Median), show(f.Min), show(f.Max), f.Aim, reached}
}
