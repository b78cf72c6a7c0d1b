package stock

// Audit compares the ledger of an item with its stock row. The ledger only grows, so it cannot lose
// an update; the row can.
type Audit struct {
	GoodsID int64 `json:"goods_id"`
	// Stock is what is in the row and in allocations.
	Stock int64 `json:"stock"`
	// Initial is the sum of all restocks, the first included.
	Initial int64 `json:"initial"`
	// Corrected is the sum of all corrections, and may be negative.
	Corrected int64 `json:"corrected,omitempty"`
	// Sold is the sum of all deductions and confirmed reservations, Orders their number.
	Sold   int64 `json:"sold"`
	Orders int64 `json:"orders"`
	// Held is what reservations have taken that are not ended yet.
	Held int64 `json:"held"`
	// Returned is what has come back of Sold.
	Returned int64 `json:"returned"`
	// Oversold counts units sold or held beyond the stock.
	Oversold int64 `json:"oversold"`
	// Lost is positive where updates of the row were lost (it shows more than is left),
	// negative where stock is missing without a purchase.
	Lost int64 `json:"lost"`
	// Clean reports that row and ledger are consistent, that nothing was oversold, and that
	// audited buyers are consistent.
	Clean bool `json:"clean"`
	// Buyers is the result for the buyers: only of a full audit of an item with a limit.
	Buyers *Buyers `json:"buyers,omitempty"`
}

// Buyers counts the inconsistent buyers of an item with a limit.
type Buyers struct {
	// Miscounted have a count that differs from the ledger.
	Miscounted int64 `json:"miscounted"`
	// BeyondLimit have more than the limit by the ledger, and more than they had when it was
	// set or lowered.
	BeyondLimit int64 `json:"beyond_limit"`
}

// With adds the result for the buyers.
func (a Audit) With(b Buyers) Audit {
	a.Buyers = &b
	a.Clean = a.Clean && b == (Buyers{})
	return a
}

// Sums are those of the ledger of an item.
type Sums struct {
	Restocked, Corrected, Sold, Orders, Held, Returned int64
}

// left is what the row should have.
func (s Sums) left() int64 { return s.Restocked + s.Corrected + s.Returned - s.Sold - s.Held }

// NewAudit compares the row with the ledger of an item that was never reserved.
func NewAudit(goodsID, stock, restocked, sold, orders int64) Audit {
	return AuditOf(goodsID, stock, Sums{Restocked: restocked, Sold: sold, Orders: orders})
}

// AuditOf compares the row with the sums of the ledger:
// restocked + corrected + returned = in stock + sold + held.
func AuditOf(goodsID, stock int64, ledger Sums) Audit {
	a := Audit{
		GoodsID:   goodsID,
		Stock:     stock,
		Initial:   ledger.Restocked,
		Corrected: ledger.Corrected,
		Sold:      ledger.Sold,
		Orders:    ledger.Orders,
		Held:      ledger.Held,
		Returned:  ledger.Returned,
		Oversold:  max(0, -ledger.left()),
		Lost:      stock - ledger.left(),
	}
	a.Clean = a.Oversold == 0 && a.Lost == 0 && a.Stock >= 0 && a.Held >= 0
	return a
}

// Since is the audit of what happened after an earlier audit of the same item: what was in
// stock or held then counts as initial stock.
func (a Audit) Since(earlier Audit) Audit {
	return AuditOf(a.GoodsID, a.Stock, Sums{
		Restocked: earlier.Stock + earlier.Held + a.Initial - earlier.Initial, Corrected: a.Corrected - earlier.Corrected, Sold: a.Sold - earlier.Sold, Orders: a.Orders - earlier.Orders,
		Held: a.Held, Returned: a.Returned - earlier.Returned,
	})
}

// Undersold is the number of units that rejected purchases asked for and
// that were left in the end. Only a run that should have sold out may be asked
// for it; rejected counts the units of its rejected purchases.
func (a Audit) Undersold(rejected int64) int64 {
	return min(rejected, max(0, a.Initial+a.Corrected+a.Returned-a.Sold-a.Held))
}

// Audits sums the audits of all items, each kind of failure by itself: a surplus of one item never
// hides a lack of another.
type Audits struct {
	// Goods is the number of audited items.
	Goods int64
	// Oversold, Lost and Vanished are units: sold beyond the stock, left in a row whose
	// updates were lost, and missing from a row without a purchase.
	Oversold, Lost, Vanished int64
}
