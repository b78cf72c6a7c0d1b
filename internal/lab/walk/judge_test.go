package walk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func at(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

const seller = "sql-conditional"

// record is a step from a time to a time, in milliseconds.
func record(s Step, from, to int, outcome history.Outcome, order string, remaining int64) Record {
	return Record{Step: s, Start: at(from), End: at(to), Outcome: outcome, Order: order, Remaining: remaining}
}

func sellerOf(units int64, others ...string) *Run {
	return &Run{Item: 3, Plan: Plan{Units: units, Kind: AllReplicas, Strategies: append([]string{seller}, others...), entries: entries()}}
}

// Rows of the ledger of goodWalk.
const (
	rowCreated = iota
	rowBought
	rowHeld
	rowConfirmed
	rowReturned
	rowBasket
	rowBasketConfirmed
	rowRestocked
)

// goodWalk is a walk in which everything is right: two buyers have what the limit allows, one of
// them by a purchase and a reservation, of which a unit came back, and the other by a basket.
func goodWalk() *Run {
	w := sellerOf(20)
	w.Limits = []int64{4}
	buy := Step{Do: Buy, Key: "b", Quantity: 2, Strategy: seller, User: "ann"}
	reserve := Step{Do: Reserve, Key: "r", Quantity: 3, Strategy: seller, User: "ann"}
	order := Step{Do: Order, Key: "o", Quantity: 4, Strategy: seller, User: "bob"}
	number := w.numbersOf(request{Step: order})[0]
	w.Records = []Record{
		record(buy, 0, 1, history.Sold, "1", 18),
		record(reserve, 2, 3, history.Sold, "2", 15),
		record(Step{Do: Confirm, Quantity: 3, Strategy: seller}, 4, 5, history.Sold, "2", 0),
		record(Step{Do: Return, Quantity: 1, Strategy: seller}, 6, 7, history.Sold, "2", 0),
		record(order, 8, 9, history.Sold, number, 12),
		record(Step{Do: Restock, Key: "s", Quantity: 5}, 10, 11, history.Sold, "", 17),
		record(Step{Do: ReadItem}, 12, 13, history.Sold, "", 17),
	}
	w.Ledger = []Row{
		rowCreated:         {Order: "100", Kind: "restock", Request: w.FullKey("create"), Quantity: 20},
		rowBought:          {Order: "1", Kind: "deduct", Request: w.FullKey("b"), User: "ann", Strategy: seller, Quantity: 2},
		rowHeld:            {Order: "2", Kind: "hold", Request: w.FullKey("r"), User: "ann", Strategy: seller, Quantity: 3},
		rowConfirmed:       {Order: "2", Kind: "confirm", Request: "2 final", User: "ann", Strategy: seller, Quantity: 3},
		rowReturned:        {Order: "2", Kind: "return", Request: w.FullKey("return-2"), User: "ann", Strategy: seller, Quantity: 1},
		rowBasket:          {Order: number + lineOfItem, Kind: "hold", Request: number, User: "bob", Strategy: seller, Quantity: 4},
		rowBasketConfirmed: {Order: number + lineOfItem, Kind: "confirm", Request: number + " final", User: "bob", Strategy: seller, Quantity: 4},
		rowRestocked:       {Order: "101", Kind: "restock", Request: w.FullKey("s"), Quantity: 5},
	}
	w.Beside = []Row{{Order: number + lineOfBeside, Kind: "confirm", Quantity: 1}}
	w.Audit = stock.AuditOf(3, 17, stock.Sums{Restocked: 25, Sold: 9, Orders: 3, Returned: 1})
	w.Full = w.Audit.With(stock.Buyers{})
	return w
}

// Each row spoils one thing of a walk that is right, and the judge names it.
func TestEachFaultOfAWalkIsFound(t *testing.T) {
	audits := func(change func(*stock.Audit)) func(*Run) {
		return func(w *Run) { change(&w.Audit); change(&w.Full) }
	}
	for name, c := range map[string]struct {
		spoil func(w *Run)
		fault string // a part of it; empty: there is none
	}{
		"nothing":                   {func(*Run) {}, ""},
		"a row too many":            {func(w *Run) { w.Ledger = append(w.Ledger, Row{Order: "9", Kind: "deduct", Request: "x", Quantity: 1}) }, "was not asked for"},
		"a restock too many":        {func(w *Run) { w.Ledger = append(w.Ledger, Row{Order: "9", Kind: "restock", Request: "x", Quantity: 5}) }, "was not asked for"},
		"a purchase is missing":     {func(w *Run) { w.Ledger = slices.Delete(w.Ledger, rowBought, rowBought+1) }, "the ledger does not have it"},
		"a restock is missing":      {func(w *Run) { w.Ledger = slices.Delete(w.Ledger, rowRestocked, rowRestocked+1) }, "the ledger does not have it"},
		"of another buyer":          {func(w *Run) { w.Ledger[rowBought].User = "bob" }, "is in the ledger as"},
		"by another strategy":       {func(w *Run) { w.Ledger[rowBought].Strategy = "mutex" }, "is in the ledger as"},
		"of another kind":           {func(w *Run) { w.Ledger[rowBought].Kind = "restock" }, "is in the ledger as"},
		"restocked with more":       {func(w *Run) { w.Ledger[rowRestocked].Quantity++ }, "is in the ledger as"},
		"sold as a restock":         {func(w *Run) { w.Ledger[rowRestocked].Kind = "deduct" }, "is in the ledger as"},
		"a line with more":          {func(w *Run) { w.Ledger[rowBasket].Quantity++; w.Ledger[rowBasketConfirmed].Quantity++ }, "is in the ledger as"},
		"a line of another buyer":   {func(w *Run) { w.Ledger[rowBasket].User = "ann" }, "is in the ledger as"},
		"half a basket":             {func(w *Run) { w.Beside = nil }, "sold by half"},
		"beyond the limit":          {func(w *Run) { w.Limits = []int64{3} }, `"ann" bought 4, and the limits were [3]`},
		"not returned":              {func(w *Run) { w.Ledger = slices.Delete(w.Ledger, rowReturned, rowReturned+1) }, "was answered as done"},
		"held, and never ended":     {func(w *Run) { w.Ledger = slices.Delete(w.Ledger, rowConfirmed, rowConfirmed+1) }, "has ended 0 times"},
		"held more than is sold":    {func(w *Run) { w.Ledger[rowConfirmed].Quantity = 2 }, "1 units have not ended"},
		"another stock is read":     {func(w *Run) { w.Records[6].Remaining++ }, "no order of"},
		"another rest is answered":  {func(w *Run) { w.Records[0].Remaining-- }, "no order of"},
		"stranded":                  {func(w *Run) { w.SoldOut = true }, "17 units are stranded"},
		"a lost update":             {audits(func(a *stock.Audit) { a.Lost = 1 }), "at the end the audit is not exact"},
		"oversold":                  {audits(func(a *stock.Audit) { a.Oversold = 1 }), "at the end the audit is not exact"},
		"below zero":                {audits(func(a *stock.Audit) { a.Stock = -1 }), "at the end the audit is not exact"},
		"totals that do not add up": {func(w *Run) { w.Full.Sold++ }, "and by all rows"},
		"a buyer is miscounted":     {func(w *Run) { w.Full.Buyers = &stock.Buyers{Miscounted: 1} }, "buyers: the full audit finds"},
		"oversold for a moment": {func(w *Run) {
			w.Records = append(w.Records, Record{Step: Step{Do: ReadAudit}, Start: at(5), Outcome: history.Sold, Audit: stock.Audit{Oversold: 1}})
		}, "during the sale the audit is not exact"},
		"damaged, and sold again": {func(w *Run) { w.Records[3].Damaged = true }, "1 units of order 2 came back damaged, and 0 were taken off"},
		"damaged, and taken off": {func(w *Run) {
			w.Records[3].Damaged = true
			w.Ledger = append(w.Ledger, Row{Order: "9", Kind: "correct", Request: w.returnKey("2"), Quantity: -1})
			w.Records[6].Remaining--
		}, ""},
		"taken off, and not damaged": {func(w *Run) {
			w.Ledger = append(w.Ledger, Row{Order: "9", Kind: "correct", Request: w.returnKey("2"), Quantity: -1})
		}, "was not asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			w := goodWalk()
			c.spoil(w)
			faults := strings.Join(w.Faults(), "; ")
			if c.fault == "" && faults != "" || !strings.Contains(faults, c.fault) {
				t.Errorf("the faults are %q, want %q", faults, c.fault)
			}
		})
	}
}

// An answer to a step, and whether it is a fault.
func TestAnAnswerThatMayNotBeIsAFault(t *testing.T) {
	limited := Plan{Limits: []int64{3}}
	buyer, unnamed := Step{Do: Buy, User: "ann"}, Step{Do: Buy}
	check := func(p Plan, s Step, problem string, want bool) {
		t.Helper()
		fault := (&Run{Plan: p}).recordFault(Record{Step: s, Outcome: history.Failed, Problem: problem})
		if (fault != "") != want || want && !strings.HasSuffix(fault, "is answered with "+problem) {
			t.Errorf("%s of %q with the limits %v answered with %q: %q", s.Do, s.User, p.Limits, problem, fault)
		}
	}
	check(Plan{}, buyer, "user-limit", true)
	check(limited, buyer, "user-limit", false)
	check(Plan{}, unnamed, "invalid-request", true)
	check(limited, unnamed, "invalid-request", false)
	check(limited, buyer, "invalid-request", true)
	check(Plan{}, Step{Do: ReadItem}, "internal", false)
	check(Plan{}, Step{Do: ReadAudit}, "internal", false)
	for _, do := range []Action{Buy, Reserve, Order, Confirm, Release, Extend, Return, Restock, Correct} {
		ends := do == Confirm || do == Release || do == Extend
		check(Plan{}, Step{Do: do}, "internal", true)
		check(Plan{}, Step{Do: do}, "reservation-expired", !ends)
		for _, problem := range []string{"", "no-answer", "outcome-unknown", "insufficient-stock", "busy", "fenced", "lease-lost", "backend-unavailable"} {
			check(Plan{}, Step{Do: do}, problem, false)
		}
	}
}

// Strategies that lose updates are not asked for an order of what they answered.
func TestALossyWalkHasNoOrder(t *testing.T) {
	w := goodWalk()
	w.Kind = Lossy
	w.Records[6].Remaining = 1
	if faults := w.Faults(); len(faults) > 0 {
		t.Errorf("the faults are %q, want none", faults)
	}
}

// Each row has five units, a purchase of two, and what was read of the item at 2.
func TestARequestHappensBetweenItsSendingAndItsFirstAcceptance(t *testing.T) {
	buy := Step{Do: Buy, Key: "b", Quantity: 2, Strategy: seller}
	for name, c := range map[string]struct {
		answers []Record
		read    int64
		fault   bool
	}{
		"not before it is accepted":              {[]Record{record(buy, 0, 1, history.Unknown, "", 0), record(buy, 4, 5, history.Sold, "7", 3)}, 5, false},
		"from the first sending on":              {[]Record{record(buy, 4, 5, history.Sold, "7", 3), record(buy, 0, 1, history.Unknown, "", 0)}, 3, false},
		"by the first of its acceptances":        {[]Record{record(buy, 0, 9, history.Sold, "7", 3), record(buy, 0, 1, history.Sold, "7", 3), record(buy, 4, 5, history.Sold, "7", 3)}, 5, true},
		"not before it is sent":                  {[]Record{record(buy, 4, 5, history.Sold, "7", 3)}, 3, true},
		"its row says what it left":              {[]Record{record(buy, 0, 1, history.Unknown, "", 0)}, 3, false},
		"it may be written after all have ended": {[]Record{record(buy, 0, 1, history.Unknown, "", 0)}, 5, false},
	} {
		left := int64(3)
		w := sellerOf(5)
		w.Ledger = []Row{{Order: "7", Kind: "deduct", Request: w.FullKey("b"), Strategy: seller, Quantity: 2, Remaining: &left}}
		w.Records = append(slices.Clone(c.answers), record(Step{Do: ReadItem}, 2, 3, history.Sold, "", c.read))
		happened, faults := w.reconcile()
		faults = append(faults, w.orderFaults(happened)...)
		should.Be(t, len(faults) > 0, c.fault, name, faults)
		left--
		if faults := w.orderFaults(happened); strings.HasPrefix(name, "its row") && len(faults) == 0 {
			t.Errorf("%s: it left 2 of 5 without a fault", name)
		}
	}
}

// Of two requests that are alike, without a key and an answer, one was sold: it may be the first, which
// alone explains that a read in between sees it.
func TestTheFirstOfRequestsThatAreAlikeMayHaveHappened(t *testing.T) {
	keyless := Step{Do: Buy, Quantity: 2, Strategy: seller}
	for _, first := range []int{0, 4} {
		w := sellerOf(5)
		w.Ledger = []Row{{Order: "7", Kind: "deduct", Request: "7", Strategy: seller, Quantity: 2}}
		w.Records = []Record{
			record(keyless, first, first+1, history.Unknown, "", 0), record(keyless, 4-first, 5-first, history.Unknown, "", 0),
			record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 3),
		}
		happened, faults := w.reconcile()
		if faults = append(faults, w.orderFaults(happened)...); len(faults) > 0 {
			t.Errorf("the one that is recorded first began at %d: %q", first, faults)
		}
	}
}

// Each row is what was seen of five units after a purchase of two, and whether it binds.
func TestOnlyWhatShowsTheWholeStockIsInTheOrder(t *testing.T) {
	buy := Step{Do: Buy, Key: "b", Quantity: 2, Strategy: seller}
	order := Step{Do: Order, Key: "o", Quantity: 1, Strategy: seller}
	for name, c := range map[string]struct {
		beside string // another strategy of the walk
		left   int64  // by the answer to the purchase
		seen   Record
		fault  bool
	}{
		"the rest in the row":                      {"", 1, record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 3), true},
		"the rest in the row, with allocations":    {"sql-bucket", 1, record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 3), false},
		"a read":                                   {"", 3, record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 5), true},
		"a read beside allocations":                {"sql-bucket", 3, record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 5), true},
		"a read of what is pending":                {hotStrategy, 3, record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 5), false},
		"a read without an answer":                 {"", 3, record(Step{Do: ReadItem}, 2, 3, history.Unknown, "", 0), false},
		"a basket that the other item is short of": {"", 3, record(order, 2, 3, history.Rejected, "", 0), false},
	} {
		w := sellerOf(5)
		if c.beside != "" {
			w = sellerOf(5, c.beside)
		}
		w.Ledger = []Row{{Order: "7", Kind: "deduct", Request: w.FullKey("b"), Strategy: seller, Quantity: 2}}
		w.Records = []Record{record(buy, 0, 1, history.Sold, "7", c.left), c.seen}
		happened, faults := w.reconcile()
		faults = append(faults, w.orderFaults(happened)...)
		should.Be(t, len(faults) > 0, c.fault, name, faults)
	}
}

// Each row has five units, of which three were held from 0 on, and what was read of the item later.
func TestUnitsAreBackWhenTheirStepSays(t *testing.T) {
	reserve := Step{Do: Reserve, Key: "r", Quantity: 3, Strategy: seller}
	step := func(do Action, from, to int, outcome history.Outcome, order string) Record {
		return record(Step{Do: do, Quantity: 3, Strategy: seller}, from, to, outcome, order, 0)
	}
	for name, c := range map[string]struct {
		kind  stock.Kind
		steps []Record
		at    int
		read  int64
		fault bool
	}{
		"released at the second try":           {stock.Release, []Record{step(Release, 4, 5, history.Unknown, "7"), step(Release, 8, 9, history.Sold, "7")}, 6, 5, false},
		"released at either, recorded late":    {stock.Release, []Record{step(Release, 8, 9, history.Sold, "7"), step(Release, 4, 5, history.Unknown, "7")}, 6, 5, false},
		"released when that is answered":       {stock.Release, []Record{step(Release, 4, 5, history.Unknown, "7"), step(Release, 8, 9, history.Sold, "7")}, 6, 2, false},
		"released by the first answer":         {stock.Release, []Record{step(Release, 4, 5, history.Sold, "7"), step(Release, 8, 9, history.Sold, "7")}, 6, 2, true},
		"released by the first, recorded late": {stock.Release, []Record{step(Release, 8, 9, history.Sold, "7"), step(Release, 4, 5, history.Sold, "7")}, 6, 2, true},
		"released before that is asked for":    {stock.Release, []Record{step(Release, 4, 5, history.Sold, "7")}, 2, 5, true},
		"expired":                              {stock.Expiry, nil, 1200, 5, false},
		"expired, and not yet seen":            {stock.Expiry, nil, 1200, 2, false},
		"expired before its time":              {stock.Expiry, nil, 900, 5, true},
		"expired although it was extended":     {stock.Expiry, []Record{step(Extend, 500, 501, history.Sold, "7")}, 1200, 5, true},
		"extended, and expired":                {stock.Expiry, []Record{step(Extend, 500, 501, history.Sold, "7")}, 1600, 5, false},
		"extended in vain":                     {stock.Expiry, []Record{step(Extend, 500, 501, history.Failed, "7")}, 1200, 5, false},
		"another one was extended":             {stock.Expiry, []Record{step(Extend, 500, 501, history.Sold, "8")}, 1200, 5, false},
		"extended twice, recorded in reverse":  {stock.Expiry, []Record{step(Extend, 900, 901, history.Sold, "7"), step(Extend, 500, 501, history.Sold, "7")}, 1600, 5, true},
	} {
		w := sellerOf(5)
		w.Ledger = []Row{
			{Order: "7", Kind: "hold", Request: w.FullKey("r"), Strategy: seller, Quantity: 3},
			{Order: "7", Kind: string(c.kind), Request: "7 final", Strategy: seller, Quantity: 3},
		}
		w.Records = slices.Concat([]Record{record(reserve, 0, 1, history.Sold, "7", 2)}, c.steps, []Record{record(Step{Do: ReadItem}, c.at, c.at+1, history.Sold, "", c.read)})
		happened, faults := w.reconcile()
		faults = append(faults, w.orderFaults(happened)...)
		should.Be(t, len(faults) > 0, c.fault, name, faults)
	}
}

// The line of a basket that was rejected is back from then on.
func TestTheLineOfARejectedBasketComesBack(t *testing.T) {
	w := sellerOf(5)
	w.SoldOut = true // and the audit finds nothing in stock
	order := Step{Do: Order, Key: "o", Quantity: 4, Strategy: seller}
	line := w.numbersOf(request{Step: order})[0] + lineOfItem
	w.Ledger = []Row{
		{Order: line, Kind: "hold", Request: "line", Strategy: seller, Quantity: 4},
		{Order: line, Kind: "release", Request: "line final", Strategy: seller, Quantity: 4},
	}
	w.Records = []Record{record(order, 0, 1, history.Rejected, "", 0), record(Step{Do: ReadItem}, 2, 3, history.Sold, "", 5)}
	if faults := w.Faults(); len(faults) > 0 {
		t.Errorf("the faults are %q, want none", faults)
	}
}

// The basket of a good walk is bought from 8 to 9 ms.
func TestNothingIsSoldBetweenAnAnswerAndTheNextTurnOfTheSale(t *testing.T) {
	turn := func(do Action, from, to int, outcome history.Outcome) Record {
		return record(Step{Do: do}, from, to, outcome, "", 0)
	}
	delayed := turn(Delay, 1, 7, history.Sold)
	delayed.Starts = at(20)
	early := delayed
	early.Starts = at(15)
	for name, c := range map[string]struct {
		turns []Record
		fault bool
	}{
		"closed before":              {[]Record{turn(Close, 1, 7, history.Sold), turn(Reopen, 20, 21, history.Sold)}, true},
		"closed at the same time":    {[]Record{turn(Close, 1, 8, history.Sold), turn(Reopen, 20, 21, history.Sold)}, false},
		"not known to be closed":     {[]Record{turn(Close, 1, 7, history.Unknown), turn(Reopen, 20, 21, history.Sold)}, false},
		"opened again":               {[]Record{turn(Close, 1, 7, history.Sold), turn(Reopen, 15, 21, history.Sold)}, false},
		"opened late by an old turn": {[]Record{turn(Reopen, 0, 1, history.Unknown), turn(Close, 1, 7, history.Sold), turn(Reopen, 20, 21, history.Sold)}, false},
		"delayed":                    {[]Record{delayed}, true},
		"delayed until then":         {[]Record{early}, false},
	} {
		w := goodWalk()
		w.Records = append(w.Records, c.turns...)
		faults := w.Faults()
		should.Be(t, len(faults) > 0, c.fault, name, faults)
	}
}
