package hostile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// Check is one thing that must hold.
type Check struct {
	What     string `json:"what"`
	Baseline string `json:"baseline,omitempty"`
	Hostile  string `json:"hostile"`
	Bound    string `json:"bound"`
	Held     bool   `json:"held"`
	// Reported tells that the run does not fail by it.
	Reported bool `json:"reported,omitempty"`
}

// The bounds of a run.
const (
	// slowdown is how many times its baseline the honest p99 may be.
	slowdown = 5
	// honestRejected is the share of honest requests that may be rejected for load.
	honestRejected = 0.01
	// slowestPage is how many milliseconds a look at a page may take.
	slowestPage = 5000
	// rowsEachItem is how many rows of state an item may have in one table: an item has
	// a row for each bucket and for each lock.
	rowsEachItem = 64
	// logEach is how many bytes all replicas may log in logTime.
	logEach = 1 << 20
	logTime = 10 * time.Minute
	// logLeast is what a short run may log: an event of each kind and replica.
	logLeast = 64 << 10
	// largestOrder is deduct.max_quantity of production.yaml.
	largestOrder = 10
)

func (r *Report) judge() {
	r.Checks = slices.Concat(r.ledgerChecks(), r.serviceChecks(), r.stateChecks(), r.attackChecks())
}

func check(what string, n, most int64) Check {
	return Check{What: what, Hostile: humanize.Comma(n), Bound: atMost(most), Held: n <= most}
}

// given is a check that does not hold where there was nothing to look at.
func given(there bool, c Check) Check {
	c.Held = c.Held && there
	return c
}

func atMost(n int64) string {
	if n == 0 {
		return "0"
	}
	return "at most " + humanize.Comma(n)
}

func (r *Report) ledgerChecks() []Check {
	var oversold, lost, left, inconsistent int64
	audited := false // the hot item
	for _, audit := range r.Ledger.Audits {
		oversold += audit.Oversold
		lost += max(audit.Lost, -audit.Lost)
		if !audit.Clean {
			inconsistent++
		}
		if audit.GoodsID == hotItem {
			left, audited = audit.Stock, true
		}
	}
	l := r.Ledger
	return []Check{
		{What: "accepted honest orders", Hostile: humanize.Comma(int64(l.Honest)), Bound: "at least 1", Held: l.Honest > 0},
		check("units oversold", oversold, 0),
		check("units lost", lost, 0),
		check("items whose full audit fails", inconsistent, 0),
		given(audited, check("units of the hot item left after the sale", left, 0)),
		check("accepted honest orders missing in the ledger", int64(l.Missing), 0),
		check("accepted honest orders twice in the ledger", int64(l.Repeated), 0),
		check("accepted honest orders altered", int64(l.Altered), 0),
		check("honest orders that the attacker was given", int64(l.Revealed), 0),
		check("orders that were smuggled in", int64(l.Smuggled), 0),
	}
}

func (r *Report) serviceChecks() []Check {
	ratio := r.Hostile.P99 / max(r.Baseline.P99, 0.001)
	share := Check{
		What: "honest requests rejected for load", Baseline: percent(r.Baseline.RejectedShare()), Hostile: percent(r.Hostile.RejectedShare()),
		Bound: "at most " + percent(honestRejected), Held: r.Hostile.RejectedShare() <= honestRejected, Reported: !r.plan.Timed,
	}
	return []Check{
		{
			What: "honest p99", Baseline: fmt.Sprintf("%.1f ms", r.Baseline.P99), Hostile: fmt.Sprintf("%.1f ms (%.1f×)", r.Hostile.P99, ratio),
			Bound: fmt.Sprintf("under %d×", slowdown), Held: ratio < slowdown, Reported: !r.plan.Timed,
		},
		share,
		check("honest purchases given up", int64(r.Hostile.Failed+r.SellOut.Failed), 0),
		none("restocks by the shop that failed", r.RestockFailures),
		given(r.Pages.Asked > 0, check("looks at the stock page and the audit without an answer", int64(r.Pages.Failed), 0)),
		{
			What: "slowest of them", Hostile: fmt.Sprintf("%.0f ms", r.Pages.Slowest), Bound: fmt.Sprintf("at most %d ms", slowestPage),
			Held: r.Pages.Slowest <= slowestPage, Reported: !r.plan.Timed,
		},
		check("replicas that ended", int64(len(r.Ended)), 0),
		check("panics and races in the log", int64(r.Log.Panics), 0),
		r.logCheck(),
		r.memoryCheck(),
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func (r *Report) logCheck() Check {
	bound := max(int64(float64(logEach)*r.Hostile.Seconds/logTime.Seconds()), logLeast)
	return Check{
		What: "log of all replicas", Hostile: inBytes(r.Log.Bytes),
		Bound: "at most " + inBytes(bound), Held: r.Log.Bytes <= bound,
	}
}

func (r *Report) memoryCheck() Check {
	first, all := most(r.Samples[:min(1, len(r.Samples))]), most(r.Samples)
	return Check{
		What: "largest memory of a replica", Baseline: inBytes(first),
		Hostile: inBytes(all), Bound: "at most " + inBytes(r.plan.Memory),
		Held: all > 0 && all <= r.plan.Memory,
	}
}

// stateChecks bound what each table and Redis have gained: by the orders for what is
// written with an order, and by the items for everything else.
func (r *Report) stateChecks() (list []Check) {
	orders, items := int64(0), int64(len(r.Ledger.Audits))
	for _, audit := range r.Ledger.Audits {
		orders += audit.Orders
	}
	for _, table := range slices.Sorted(maps.Keys(r.After.Rows)) {
		bound := items * rowsEachItem
		if slices.Contains([]string{"tb_stock_ledger", "tb_stock_user", "lookup_request"}, table) { // the last one is on Vitess
			bound = orders + items + int64(r.Restocks)
		}
		c := check("rows of "+table, r.After.Rows[table], bound)
		c.Baseline = humanize.Comma(r.Before.Rows[table])
		list = append(list, c)
	}
	c := check("keys in Redis", r.After.Keys, items*rowsEachItem+orders)
	c.Baseline = humanize.Comma(r.Before.Keys)
	invented := make([]string, 0, len(r.After.Invented))
	for where, n := range r.After.Invented {
		invented = append(invented, fmt.Sprintf("%d %s", n, where))
	}
	return append(list, c, none("state of items that do not exist", invented))
}

// attackChecks look at every attack: it was seen, and got no answer that it must not.
func (r *Report) attackChecks() []Check {
	var unseen, allowed, tooLarge, greedy []string
	var internal, redirects int64
	for i, attack := range Attacks() {
		f := &r.Attacks[i]
		if f.Reached() == 0 {
			unseen = append(unseen, f.Attack)
		}
		if n := f.Statuses["2xx"]; attack.Denied && n > 0 {
			allowed = append(allowed, fmt.Sprintf("%s: %d", f.Attack, n))
		}
		if attack.Largest > 0 && f.LargestAnswer > attack.Largest {
			tooLarge = append(tooLarge, fmt.Sprintf("%s: %d bytes", f.Attack, f.LargestAnswer))
		}
		if f.LargestOrder > largestOrder {
			greedy = append(greedy, fmt.Sprintf("%s: %d units", f.Attack, f.LargestOrder))
		}
		internal += int64(f.Problems["internal"])
		redirects += int64(f.Statuses["3xx"])
	}
	internal += int64(r.Hostile.Rejected["internal"] + r.SellOut.Rejected["internal"])
	return []Check{
		check("answers of an internal error", internal, 0),
		check("redirects", redirects, 0),
		none("attacks that no server has seen", unseen),
		none("attacks that were allowed what they must not be", allowed),
		none("attacks with an answer that is too large", tooLarge),
		none(fmt.Sprintf("attacks that bought more than %d units at once", largestOrder), greedy),
	}
}

func none(what string, list []string) Check {
	c := Check{What: what, Hostile: "0", Bound: "0", Held: len(list) == 0}
	if !c.Held {
		c.Hostile = fmt.Sprintf("%d (%s)", len(list), strings.Join(list, ", "))
	}
	return c
}

// kindOf is level and message of a line above INFO, or empty.
func kindOf(line []byte) string {
	var l struct {
		Level   string `json:"level"`
		Message string `json:"msg"`
	}
	if json.Unmarshal(line, &l) != nil || l.Level == "INFO" || l.Level == "DEBUG" {
		return ""
	}
	return l.Level + " " + l.Message
}

// Ledger is what the orders of all items came to.
type Ledger struct {
	// Audits are in full, of every item, when nothing was pending.
	Audits []stock.Audit `json:"audits"`
	// Honest counts the purchases of honest buyers that were accepted; Missing are those
	// that the ledger lacks, and Repeated those that it has more than once.
	Honest   int `json:"honest"`
	Missing  int `json:"missing"`
	Repeated int `json:"repeated"`
	// Altered are orders of honest buyers that are in the ledger with another user, key
	// or quantity.
	Altered int `json:"altered"`
	// Unreported counts the orders of the hot item that neither an honest buyer nor the
	// attacker has an answer of, and Unknown the honest purchases that may be among them.
	Unreported int `json:"unreported"`
	Unknown    int `json:"unknown"`
	// Revealed counts the orders of honest buyers that the attacker was given.
	Revealed int `json:"revealed"`
	// Smuggled counts the orders of smuggled purchases.
	Smuggled int `json:"smuggled"`
}

// reconcile compares the ledger with what buyers and attacker were answered.
func (s *stage) reconcile(x *flow.Flow, crowd *crowd, r *Report) {
	lab := s.cluster.Client().Owner()
	for _, item := range s.items {
		flow.Get(lab.Audit(x, item))(x) // it waits for what is pending
		r.Ledger.Audits = append(r.Ledger.Audits, flow.Get(lab.AuditInFull(x, item))(x))
	}
	r.Ledger.compare(crowd, s.readLedger(x), r.stolen)
	for _, replica := range s.cluster.Replicas {
		if replica.Ended() {
			r.Ended = append(r.Ended, replica.Name)
		}
	}
}

type order struct {
	item, quantity int64
	user, key      string
}

// readLedger reads the sales from the database itself, by the ids that buyers are
// answered with: a list of the admin API has an order only when all before it are done.
func (s *stage) readLedger(x *flow.Flow) map[string][]order {
	db, _ := openTables(x, s.shop.Servers.Database)
	defer db.Close() //nolint:errcheck // it was only read
	_, rows, err := servers.Rows(x, db, `SELECT id, order_no, goods_id, quantity, user_id, request_id FROM tb_stock_ledger WHERE kind = 'deduct'`)
	x.Must(err)
	list := make(map[string][]order)
	for _, row := range rows {
		o, id := order{user: row[4], key: stock.KeyOf(row[5])}, cmp.Or(row[1], row[0])
		flow.Get(fmt.Sscan(row[2]+" "+row[3], &o.item, &o.quantity))(x)
		list[id] = append(list[id], o)
	}
	return list
}

// compare looks for each accepted purchase in the ledger, and for each order of the hot
// item among the answers. It counts what was smuggled.
func (l *Ledger) compare(crowd *crowd, orders map[string][]order, stolen map[string]int64) {
	honest := make(map[string]bool)
	for _, sale := range crowd.sold {
		rows := orders[sale.id]
		switch {
		case len(rows) == 0:
			l.Missing++
		case len(rows) > 1 || honest[sale.id]:
			l.Repeated++
		case rows[0] != sale.order:
			l.Altered++
		}
		honest[sale.id] = true
		if _, given := stolen[sale.id]; given {
			l.Revealed++
		}
	}
	l.Honest, l.Unknown = len(crowd.sold), crowd.unknown
	for id, rows := range orders {
		if _, given := stolen[id]; rows[0].item == hotItem && !honest[id] && !given {
			l.Unreported++
		}
		if strings.HasPrefix(rows[0].key, smuggledKey) {
			l.Smuggled++
		}
	}
}
