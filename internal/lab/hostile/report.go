package hostile

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

// Report is what a run came to. Its JSON fields are relied upon: they are added to and
// not renamed.
type Report struct {
	Seed    uint64                  `json:"seed"`
	Machine servers.Machine         `json:"machine"`
	Servers map[string]servers.Info `json:"servers"`
	Checks  []Check                 `json:"checks"`
	// Baseline is of honest buyers alone, Hostile of the same beside the attacker, and
	// SellOut of the buyers of the rest.
	Baseline Honest `json:"baseline"`
	Hostile  Honest `json:"hostile"`
	SellOut  Honest `json:"sell_out"`
	// Restocks is how often the shop added units during the attack, and RestockFailures
	// are those that did not succeed under their key.
	Restocks        int       `json:"restocks"`
	RestockFailures []string  `json:"restock_failures,omitempty"`
	Attacks         []Figures `json:"attacks"`
	Ledger          Ledger    `json:"ledger"`
	Before          State     `json:"before"`
	After           State     `json:"after"`
	Samples         []Sample  `json:"memory"`
	Pages           Pages     `json:"pages"`
	Log             Log       `json:"log"`
	// Ended are the replicas that did not outlive the attack.
	Ended []string `json:"ended,omitempty"`

	plan   Plan
	stolen map[string]int64 // units by order, as the attacker was answered
}

// Failed lists the checks that make the run a failure.
func (r *Report) Failed() (list []Check) {
	for _, c := range r.Checks {
		if !c.Held && !c.Reported {
			list = append(list, c)
		}
	}
	return list
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	lines := slices.Concat(
		[]string{r.checkTable().Render(), r.attackTable().Render()}, r.figures(), r.logged(), r.Machine.Lines(),
		[]string{"servers: " + servers.Line(r.Servers), fmt.Sprintf("the same requests again: --seed %d", r.Seed)},
	)
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (r *Report) checkTable() table.Writer {
	t := verdict.NewTable("", 0, "what", "alone", "beside the attacker", "bound", "held")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: 60}})
	for _, c := range r.Checks {
		held := "yes"
		switch {
		case c.Held:
		case c.Reported:
			held = "no, only reported"
		default:
			held = "NO"
		}
		t.AppendRow(table.Row{c.What, c.Baseline, c.Hostile, c.Bound, held})
	}
	return t
}

func (r *Report) attackTable() table.Writer {
	t := verdict.NewTable("", 0, "attack", "row", "made", "2xx", "3xx", "429", "other 4xx", "5xx", "closed", "dropped", "silent", "units", "largest answer")
	for _, f := range r.Attacks {
		t.AppendRow(table.Row{
			f.Attack, f.Row, f.Made, f.Statuses["2xx"], f.Statuses["3xx"], f.Statuses["429"], f.Statuses["4xx"], f.Statuses["5xx"],
			f.Ends[closed], f.Ends[dropped], f.Ends[silent], f.Units, f.LargestAnswer,
		})
	}
	return t
}

// figures say in lines what is no check.
func (r *Report) figures() []string {
	var made, orders int
	var units int64
	for _, f := range r.Attacks {
		made, orders, units = made+f.Made, orders+f.Orders, units+f.Units
	}
	return []string{
		fmt.Sprintf("honest alone: %d sold of %d requests, p50 %.1f ms, p99 %.1f ms, most %.1f ms", r.Baseline.Sold, r.Baseline.Attempts, r.Baseline.P50, r.Baseline.P99, r.Baseline.Max),
		fmt.Sprintf("honest beside the attacker: %d sold of %d requests, p50 %.1f ms, p99 %.1f ms, most %.1f ms, p99 of sales %.1f ms, of rejections for want of stock %.1f ms; sold out %d, unknown %d, rejected %v",
			r.Hostile.Sold, r.Hostile.Attempts, r.Hostile.P50, r.Hostile.P99, r.Hostile.Max, r.Hostile.SoldP99, r.Hostile.SoldOutP99, r.Hostile.SoldOut, r.Hostile.Unknown, r.Hostile.Rejected),
		fmt.Sprintf("waits in the line: alone p50 %.0f ms, p99 %.0f ms; beside the attacker p50 %.0f ms, p99 %.0f ms", r.Baseline.WaitP50, r.Baseline.WaitP99, r.Hostile.WaitP50, r.Hostile.WaitP99),
		fmt.Sprintf("attacker: %s requests in %.0f s, bought %d units in %d orders; %d orders of the hot item had no answer that arrived", humanize.Comma(int64(made)), r.Hostile.Seconds, units, orders, r.Ledger.Unreported),
		fmt.Sprintf("stock page and audit: asked %d times, %d without an answer, slowest %.0f ms %v", r.Pages.Asked, r.Pages.Failed, r.Pages.Slowest, r.Pages.Failures),
		"memory of the replicas over time: " + r.memory(),
	}
}

func (r *Report) logged() []string {
	list := make([]string, 0, len(r.Log.Lines))
	for _, kind := range slices.Sorted(maps.Keys(r.Log.Lines)) {
		list = append(list, fmt.Sprintf("logged %d times: %s", r.Log.Lines[kind], kind))
	}
	return list
}

func (r *Report) memory() string {
	var list []string
	for i := range 5 {
		if n := len(r.Samples); n > 0 {
			list = append(list, inBytes(most(r.Samples[(n-1)*i/4:][:1])))
		}
	}
	return strings.Join(list, ", ")
}

// inBytes is a size for people.
func inBytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// Figures count what the requests of one attack came to.
type Figures struct {
	Attack string `json:"attack"`
	Row    string `json:"row"`
	// Made is every request; it is the sum of Ends.
	Made int `json:"made"`
	// Ends counts how requests ended, Statuses the answers by their class, such as 4xx,
	// with 429 apart, and Problems those that were problems.
	Ends     map[end]int    `json:"ends"`
	Statuses map[string]int `json:"statuses"`
	Problems map[string]int `json:"problems,omitempty"`
	// Orders and Units are what the attacker bought, LargestOrder the most in one.
	Orders       int   `json:"orders"`
	Units        int64 `json:"units"`
	LargestOrder int64 `json:"largest_order"`
	// LargestAnswer is in bytes.
	LargestAnswer int `json:"largest_answer"`
}

// Reached counts the requests that a server has seen.
func (f *Figures) Reached() int { return f.Made - f.Ends[unreached] }

func (f *Figures) add(o outcome) {
	f.Made++
	f.Ends[o.end]++
	if o.status != 0 {
		class := fmt.Sprintf("%dxx", o.status/100)
		if o.status == 429 {
			class = "429"
		}
		f.Statuses[class]++
	}
	if o.problem != "" {
		f.Problems[o.problem]++
	}
	if o.order != "" {
		f.Orders++
		f.Units += o.units
		f.LargestOrder = max(f.LargestOrder, o.units)
	}
	f.LargestAnswer = max(f.LargestAnswer, o.size)
}

type tally struct {
	mu      sync.Mutex
	figures []Figures
	orders  map[string]int64 // units, by the order that the attacker was given
}

func newTally(attacks []Attack) *tally {
	t := &tally{figures: make([]Figures, len(attacks)), orders: make(map[string]int64)}
	for i, attack := range attacks {
		t.figures[i] = Figures{
			Attack: attack.Name, Row: attack.Row,
			Ends: make(map[end]int), Statuses: make(map[string]int), Problems: make(map[string]int),
		}
	}
	return t
}

func (t *tally) add(attack int, list []outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range list {
		t.figures[attack].add(o)
		if o.order != "" {
			t.orders[o.order] = o.units
		}
	}
}
