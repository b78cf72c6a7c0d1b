package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// A seed that is printed can be replayed, and a handful of them does everything.
func TestAWalkIsAFunctionOfItsSeed(t *testing.T) {
	seen := make(map[any]bool)
	for seed := range uint64(50) {
		w := planWalk(seed)
		if !reflect.DeepEqual(w, planWalk(seed)) {
			t.Errorf("two plans of seed %d differ", seed)
		}
		seen[w.kind] = true
		for _, steps := range w.actors {
			for _, s := range steps {
				seen[s.do], seen[s.strategy] = true, true
			}
		}
	}
	for _, want := range []any{
		allReplicas, oneReplica, lossy, buy, restock, changeLimit, readItem, readAudit, killReplica, pauseReplica, restartRedis,
		"sql-bucket", "redis-stock", "redis-lua", "sql-named-lock", "mutex", "channel", "naive",
	} {
		if !seen[want] {
			t.Errorf("no walk of 50 has %v", want)
		}
	}
}

// A seed that has found a bug must not sell by other strategies one day, because one
// was added that comes before them. Then it is time to look for another seed.
func TestTheSeedsThatFoundBugsKeepTheirStrategies(t *testing.T) {
	for seed, want := range map[uint64]string{
		4: "channel", 28: "mutex-in-tx", 44: "redis-reentrant",
		8: "channel sql-bucket", 100: "mutex-in-tx redis-stock", 23: "redis-setnx-ttl redis-stock",
		11: "mutex redis-lua redis-decr sql-bucket",
	} {
		if got := strings.Join(planWalk(seed).strategies, " "); got != want {
			t.Errorf("seed %d sells by %s, want %s", seed, got, want)
		}
	}
}

// answered is a request with the outcomes of its attempts, a millisecond each.
func answered(s step, outcomes ...record) []record {
	at := time.Unix(0, 0)
	for i := range outcomes {
		outcomes[i].step, outcomes[i].start = s, at
		at = at.Add(time.Millisecond)
		outcomes[i].end = at
	}
	return outcomes
}

func TestTheLedgerIsJudgedRowForRow(t *testing.T) {
	purchase := step{do: buy, key: "k", quantity: 2, strategy: "redis-lua"}
	keyless := purchase
	keyless.key = ""
	sold, rejected, unknown := record{outcome: history.Sold, order: "7"}, record{outcome: history.Rejected}, record{outcome: history.Unknown}
	w := &walkRun{}
	row := ledgerRow{order: "7", kind: "deduct", request: w.fullKey("k"), strategy: "redis-lua", quantity: 2}
	other, foreign, more := row, row, row
	other.order, foreign.request, more.quantity = "8", "another", 3
	foreign.order = "9"
	for _, c := range []struct {
		name    string
		records []record
		rows    []ledgerRow
		fault   string // a part of it; empty: there is none
	}{
		{"sold", answered(purchase, sold), []ledgerRow{row}, ""},
		{"sold at the second attempt", answered(purchase, unknown, sold), []ledgerRow{row}, ""},
		{"sold under a key of the service", answered(keyless, record{outcome: history.Sold, order: "9"}), []ledgerRow{foreign}, ""},
		{"unknown and sold", answered(purchase, unknown), []ledgerRow{row}, ""},
		{"unknown and not sold", answered(purchase, unknown), nil, ""},
		{"unknown without a key and sold", answered(keyless, unknown), []ledgerRow{foreign}, ""},
		{"rejected", answered(purchase, rejected), nil, ""},
		{"sold and lost", answered(purchase, sold), nil, "does not have it"},
		{"sold and lost at the second attempt", answered(purchase, unknown, sold), nil, "does not have it"},
		{"sold as another order", answered(purchase, sold), []ledgerRow{other}, "order 7"},
		{"sold with another quantity", answered(purchase, sold), []ledgerRow{more}, "is in the ledger as"},
		{"sold twice", answered(purchase, sold), []ledgerRow{row, foreign}, "not asked for"},
		{"rejected and sold", answered(purchase, rejected), []ledgerRow{row}, "was rejected"},
		{"not asked for", nil, []ledgerRow{row}, "not asked for"},
		{"one unknown and two sold", answered(keyless, unknown), []ledgerRow{row, foreign}, "not asked for"},
	} {
		_, faults := (&walkRun{records: c.records}).reconcile(c.rows)
		if found := strings.Join(faults, "; "); c.fault == "" && found != "" || !strings.Contains(found, c.fault) {
			t.Errorf("%s: the faults are %q, want %q", c.name, found, c.fault)
		}
	}
}

func TestEachBuyerIsJudgedByTheHighestLimit(t *testing.T) {
	row := func(user string, units int64) ledgerRow {
		return ledgerRow{kind: "deduct", user: user, quantity: units}
	}
	for _, c := range []struct {
		limits []int64
		rows   []ledgerRow
		faults int
	}{
		{[]int64{3, 5}, []ledgerRow{row("a", 3), row("b", 5), row("a", 2)}, 0},
		{[]int64{3, 5}, []ledgerRow{row("a", 3), row("b", 5), row("a", 3)}, 1},
		{[]int64{3, 5}, []ledgerRow{row("", 1)}, 1},
		{[]int64{3, 0}, []ledgerRow{row("", 1), row("a", 9)}, 0},
		{nil, []ledgerRow{row("", 1), row("a", 9)}, 0},
	} {
		if faults := (&walkRun{walk: walk{limits: c.limits}}).limitFaults(c.rows); len(faults) != c.faults {
			t.Errorf("limits %v, rows %v: %q, want %d faults", c.limits, c.rows, faults, c.faults)
		}
	}
}

// What is lost and what is doubled beside the sale shows, however many sales were
// overwritten.
func TestLostSalesDoNotHideALostRestock(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  walkKind
		audit stock.Audit
		fault bool
	}{
		{"exact", allReplicas, stock.NewAudit(1, 70, 100, 30, 3), false},
		{"a sale is lost", allReplicas, stock.NewAudit(1, 71, 100, 30, 3), true},
		{"a restock is lost", oneReplica, stock.NewAudit(1, 60, 100, 30, 3), true},
		{"all sales are lost", lossy, stock.NewAudit(1, 2*coarse, 2*coarse, 30, 3), false},
		{"all sales and a restock are lost", lossy, stock.NewAudit(1, coarse, 2*coarse, 30, 3), true},
		{"moved units are doubled", lossy, stock.NewAudit(1, 3*coarse-30, 2*coarse, 30, 3), true},
	} {
		if fault := (&walkRun{walk: walk{kind: c.kind}}).auditFault(c.audit); (fault != "") != c.fault {
			t.Errorf("%s: the fault is %q", c.name, fault)
		}
	}
}

func TestTheOrderOfOperationsIsJudged(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	left := func(units int64) *int64 { return &units }
	op := func(do action, units int64, left *int64, from, to int) itemOp {
		return itemOp{do: do, units: units, left: left, start: at(from), end: at(to)}
	}
	rejected := op(buy, 6, nil, 2, 3)
	rejected.rejected = true
	open := op(buy, 5, nil, 0, 0)
	open.end = time.Time{}
	for _, c := range []struct {
		name string
		ops  []itemOp
		want porcupine.CheckResult
	}{
		{"one after the other", []itemOp{op(buy, 4, left(6), 0, 1), op(restock, 5, left(11), 2, 3), op(buy, 11, left(0), 4, 5)}, porcupine.Ok},
		{"at the same time", []itemOp{op(buy, 12, nil, 0, 5), op(restock, 5, nil, 1, 4)}, porcupine.Ok},
		{"sold before the restock", []itemOp{op(buy, 12, nil, 0, 1), op(restock, 5, nil, 2, 3)}, porcupine.Illegal},
		{"a sale overwrites a restock", []itemOp{op(restock, 5, left(15), 0, 3), op(buy, 1, left(9), 1, 4)}, porcupine.Illegal},
		{"read before the answer", []itemOp{op(buy, 4, nil, 0, 9), op(readItem, 0, left(6), 1, 2)}, porcupine.Ok},
		{"read too late", []itemOp{op(buy, 4, nil, 0, 1), op(readItem, 0, left(10), 2, 3)}, porcupine.Illegal},
		{"rejected when too few are left", []itemOp{op(buy, 5, nil, 0, 1), rejected}, porcupine.Ok},
		{"rejected while units are left", []itemOp{rejected}, porcupine.Illegal},
		{"without an answer, before", []itemOp{open, rejected}, porcupine.Ok},
		{"without an answer, after", []itemOp{open, op(buy, 10, nil, 1, 2), op(restock, 5, nil, 4, 5)}, porcupine.Ok},
	} {
		if got, _ := linearize(10, c.ops); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		slices.Reverse(c.ops)
		if got, _ := linearize(10, c.ops); got != c.want {
			t.Errorf("%s, recorded in reverse: %v, want %v", c.name, got, c.want)
		}
	}
}
