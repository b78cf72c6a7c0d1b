package stock

// Audit compares the ledger of an item with its stock row. The ledger only grows, so it cannot lose
// an update; the row can.
type Audit struct {
	GoodsID int64 `json:"goods_id"`
	// Stock is the stock of the row.
	Stock int64 `json:"stock"`
	// Initial is the sum of all restocks, the first included.
	Initial int64 `json:"initial"`
	// Sold is the sum of all deductions, Orders their number.
	Sold   int64 `json:"sold"`
	Orders int64 `json:"orders"`
	// Oversold counts units sold beyond the stock.
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

// NewAudit compares the row with the sums of the ledger.
func NewAudit(goodsID, stock, restocked, sold, orders int64) Audit {
	a := Audit{
		GoodsID:  goodsID,
		Stock:    stock,
		Initial:  restocked,
		Sold:     sold,
		Orders:   orders,
		Oversold: max(0, sold-restocked),
		Lost:     stock - (restocked - sold),
	}
	a.Clean = a.Oversold == 0 && a.Lost == 0 && a.Stock >= 0
	return a
}

// Since is the audit of what happened after an earlier audit of the same item: the stock of the
// row then counts as initial stock.
func (a Audit) Since(earlier Audit) Audit {
	return NewAudit(a.GoodsID, a.Stock, earlier.Stock+a.Initial-earlier.Initial, a.Sold-earlier.Sold, a.Orders-earlier.Orders)
}

// Undersold is the number of units that rejected purchases asked for and
// that were left in the end. Only a run that should have sold out may be asked
// for it; rejected counts the units of its rejected purchases.
func (a Audit) Undersold(rejected int64) int64 {
	return min(rejected, max(0, a.Initial-a.Sold))
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
