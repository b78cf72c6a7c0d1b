package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// judge compares what the actors saw with what the database has, once all of them
// have ended and nothing is pending.
func (w *walkRun) judge(t *testing.T) {
	client := w.lab.cluster.ClientOf(0)
	audit, err := client.Audit(t.Context(), w.item)
	if err != nil {
		t.Fatal(err)
	}
	full, err := client.AuditInFull(t.Context(), w.item)
	if err != nil {
		t.Fatal(err)
	}
	ledger := readLedger(t, w)
	happened, faults := w.reconcile(ledger)
	faults = append(append(faults, w.limitFaults(ledger)...), w.auditFaults(audit, full)...)
	for _, r := range w.records {
		if fault := w.recordFault(r); fault != "" {
			faults = append(faults, fault)
		}
	}
	reportFaults(t, faults)
	if w.kind != lossy {
		w.checkLinearizable(t, happened)
	}
}

// limitFaults finds the buyers who have more than the highest limit that there was.
func (w *walkRun) limitFaults(rows []ledgerRow) (faults []string) {
	if len(w.limits) == 0 || slices.Contains(w.limits, 0) {
		return nil
	}
	bought := make(map[string]int64)
	for _, row := range rows {
		if row.kind == string(stock.Deduction) {
			bought[row.user] += row.quantity
		}
	}
	for user, units := range bought {
		if user == "" || units > slices.Max(w.limits) {
			faults = append(faults, fmt.Sprintf("%q bought %d, and the limits were %v", user, units, w.limits))
		}
	}
	return faults
}

// mostFaults bounds what is said of one walk: the first faults explain the others.
const mostFaults = 5

func reportFaults(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults[:min(len(faults), mostFaults)] {
		t.Error(fault)
	}
	if more := len(faults) - mostFaults; more > 0 {
		t.Errorf("and %d more", more)
	}
}

// auditFaults judges the stock at the end.
func (w *walkRun) auditFaults(audit, full stock.Audit) (faults []string) {
	if full.Buyers != nil && *full.Buyers != (stock.Buyers{}) {
		faults = append(faults, fmt.Sprintf("buyers: the full audit finds %+v", *full.Buyers))
	}
	if fault := w.auditFault(audit); fault != "" {
		faults = append(faults, "at the end "+fault)
	}
	if w.soldOut && audit.Stock != 0 {
		faults = append(faults, fmt.Sprintf("%d units are stranded: %+v", audit.Stock, audit))
	}
	full.Buyers, full.Clean = nil, audit.Clean
	if full != audit {
		faults = append(faults, fmt.Sprintf("the audit by totals is %+v, and by all rows %+v", audit, full))
	}
	return faults
}

// auditFault judges the stock at any time. With strategies that lose updates
//
//	lost = stock - (restocked - sold) = sales that were overwritten
//
// which is 0 to sold. Restocks and moves come in units so coarse that one which is lost
// takes it below 0, and one which is doubled above sold.
func (w *walkRun) auditFault(a stock.Audit) string {
	switch {
	case w.kind != lossy && (a.Lost != 0 || a.Oversold != 0 || a.Stock < 0):
		return fmt.Sprintf("the audit is not exact: %+v", a)
	case w.kind == lossy && a.Lost < 0:
		return fmt.Sprintf("%d units are gone that came beside the sale: %+v", -a.Lost, a)
	case w.kind == lossy && a.Lost > a.Sold:
		return fmt.Sprintf("%d units are there that did not come, beside the %d that were sold: %+v", a.Lost-a.Sold, a.Sold, a)
	default:
		return ""
	}
}

// recordFault judges what can be said of one answer by itself.
func (w *walkRun) recordFault(r record) string {
	if r.do == readAudit && r.outcome == history.Sold {
		if fault := w.auditFault(r.audit); fault != "" {
			return "during the sale " + fault
		}
	}
	expected := []string{"", "no-answer", "outcome-unknown", "insufficient-stock", "busy", "fenced", "lease-lost", "backend-unavailable"}
	if len(w.limits) > 0 {
		expected = append(expected, "user-limit")
		if r.user == "" {
			expected = append(expected, "invalid-request")
		}
	}
	if (r.do == buy || r.do == restock) && !slices.Contains(expected, r.problem) {
		return fmt.Sprintf("%s by %s is answered with %s", r.do, r.strategy, r.problem)
	}
	return ""
}

// ledgerRow is a row of the ledger as the database has it.
type ledgerRow struct {
	order, kind, request, user, strategy string
	quantity                             int64
	remaining                            *int64
}

func readLedger(t *testing.T, w *walkRun) (rows []ledgerRow) {
	t.Helper()
	db, err := openDatabase(w.lab.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	found, err := db.QueryContext(t.Context(), `SELECT COALESCE(order_no, CAST(id AS CHAR)),
		kind, request_id, COALESCE(user_id, ''), strategy, quantity, remaining FROM tb_stock_ledger WHERE goods_id = ?`, w.item)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close() //nolint:errcheck // what went wrong is in found.Err
	for found.Next() {
		var r ledgerRow
		if err := found.Scan(&r.order, &r.kind, &r.request, &r.user, &r.strategy, &r.quantity, &r.remaining); err != nil {
			t.Fatal(err)
		}
		r.request = stock.KeyOf(r.request)
		rows = append(rows, r)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// matches tells whether the row is what a step asks for.
func (row ledgerRow) matches(s step) bool {
	if s.do == restock {
		return row.kind == string(stock.Restock) && row.quantity == s.quantity
	}
	return row.kind == string(stock.Deduction) && row.quantity == s.quantity && row.strategy == s.strategy && row.user == s.user
}

// request is a purchase or a restock, with every answer to it.
type request struct {
	step

	answers []record
}

// requests groups the answers by their keys. A request without a key has one.
func (w *walkRun) requests() (list []request) {
	byKey := make(map[string]int)
	for _, r := range w.records {
		i, known := byKey[r.key]
		switch {
		case r.do != buy && r.do != restock:
		case known:
			list[i].answers = append(list[i].answers, r)
		default:
			list = append(list, request{r.step, []record{r}})
			if r.key != "" {
				byKey[r.key] = len(list) - 1
			}
		}
	}
	return list
}

// reconcile compares the answers with the rows of the ledger, row for row, and
// returns what has happened.
func (w *walkRun) reconcile(rows []ledgerRow) (happened []itemOp, faults []string) {
	byName := make(map[string]ledgerRow) // request ids and orders
	unexplained := make(map[string]ledgerRow)
	for _, row := range rows {
		byName[row.request], byName[row.order], unexplained[row.request] = row, row, row
	}
	delete(unexplained, w.fullKey("create"))
	var open []request
	for _, r := range w.requests() {
		row, found := byName[cmp.Or(w.fullKey(r.key), r.answers[0].order)]
		if fault := r.fault(row, found); fault != "" {
			faults = append(faults, fault)
		}
		switch {
		case found:
			delete(unexplained, row.request)
			happened = append(happened, r.operation(row))
		case r.key == "" && r.answers[0].outcome == history.Unknown:
			open = append(open, r)
		}
	}
	// Of requests without a key that are alike, those that began first can have
	// happened at any time at which a later one can.
	slices.SortFunc(open, func(a, b request) int { return a.answers[0].start.Compare(b.answers[0].start) })
	for _, row := range unexplained {
		i := slices.IndexFunc(open, func(r request) bool { return row.matches(r.step) })
		if i < 0 {
			faults = append(faults, fmt.Sprintf("the ledger has %s, which was not asked for", row))
			continue
		}
		happened = append(happened, open[i].operation(row))
		open = slices.Delete(open, i, i+1)
	}
	return happened, faults
}

// fault judges the answers to a request by its row of the ledger.
func (r request) fault(row ledgerRow, found bool) string {
	var accepted, unknown bool
	for _, a := range r.answers {
		accepted = accepted || a.outcome == history.Sold
		unknown = unknown || a.outcome == history.Unknown
		if found && a.outcome == history.Sold && r.do == buy && a.order != row.order {
			return fmt.Sprintf("%s was answered with order %s, and the ledger has %s", r, a.order, row)
		}
	}
	switch {
	case accepted && !found:
		return fmt.Sprintf("%s was accepted, and the ledger does not have it", r)
	case found && !row.matches(r.step):
		return fmt.Sprintf("%s is in the ledger as %s", r, row)
	case found && !accepted && !unknown:
		return fmt.Sprintf("%s was rejected, and the ledger has %s", r, row)
	default:
		return ""
	}
}

// operation is the request as it has happened: after it was first sent, and before
// its first acceptance, or any time where there was none.
func (r request) operation(row ledgerRow) itemOp {
	op := itemOp{do: r.do, units: r.quantity, left: row.remaining, start: r.answers[0].start, what: r.String()}
	for _, a := range r.answers {
		if a.start.Before(op.start) {
			op.start = a.start
		}
		if a.outcome == history.Sold && (op.end.IsZero() || a.end.Before(op.end)) {
			op.end = a.end
			if r.do == buy {
				op.left = &a.remaining
			}
		}
	}
	return op
}

func (r request) String() string {
	outcomes := make([]string, len(r.answers))
	for i, a := range r.answers {
		outcomes[i] = strings.TrimSpace(fmt.Sprint(a.outcome, " ", a.problem))
	}
	return fmt.Sprintf("%s %s of %d by %s (group %t, fence %t, answers %v)", r.do, r.key, r.quantity, r.strategy, r.group, r.fence, outcomes)
}

func (row ledgerRow) String() string {
	return fmt.Sprintf("row %s: %s of %d by %s, request %s", row.order, row.kind, row.quantity, row.strategy, row.request)
}
