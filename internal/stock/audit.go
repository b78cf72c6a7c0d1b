package stock

// Audit compares what the ledger says of one goods with its stock row. The
// ledger only grows, so it cannot lose an update; the row can.
type Audit struct {
	GoodsID int64 `json:"goods_id"`
	// Stock is what the row says is left.
	Stock int64 `json:"stock"`
	// Initial is the sum of all restocks, the first included.
	Initial int64 `json:"initial"`
	// Sold is the sum of all deductions, Orders their number.
	Sold   int64 `json:"sold"`
	Orders int64 `json:"orders"`
	// Oversold counts units promised that do not exist.
	Oversold int64 `json:"oversold"`
	// Lost is positive where updates of the row were lost (it shows more than
	// is left), negative where stock is gone that nobody bought.
	Lost int64 `json:"lost"`
	// Clean tells that row and ledger agree, and that nothing was promised
	// twice; and where buyers were looked at, that nothing was found.
	Clean bool `json:"clean"`
	// Buyers is what was found about them, where they were looked at: that takes an
	// audit in full of a goods with a limit of one buyer.
	Buyers *Buyers `json:"buyers,omitempty"`
}

// Buyers is what an audit finds about the buyers of a goods with a limit.
type Buyers struct {
	// Miscounted are those whose count differs from their rows of the ledger.
	Miscounted int64 `json:"miscounted"`
	// BeyondLimit are those who have more than the limit by the ledger, and more
	// than they had when it was set or lowered.
	BeyondLimit int64 `json:"beyond_limit"`
}

// With is the audit with what was found about the buyers.
func (a Audit) With(b Buyers) Audit {
	a.Buyers = &b
	a.Clean = a.Clean && b == (Buyers{})
	return a
}

// NewAudit does the arithmetic over the row and the ledger's sums.
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

// Since is the audit of what happened after an earlier audit of the same goods:
// what the row had then counts as what there was to sell.
func (a Audit) Since(earlier Audit) Audit {
	return NewAudit(a.GoodsID, a.Stock, earlier.Stock+a.Initial-earlier.Initial, a.Sold-earlier.Sold, a.Orders-earlier.Orders)
}

// Undersold is the number of units that were refused to buyers while the
// ledger still had them. Only a run that should have sold out may be asked
// for it; refused counts the units of its refused purchases.
func (a Audit) Undersold(refused int64) int64 {
	return min(refused, max(0, a.Initial-a.Sold))
}

// Audits is what the audits of all goods add up to, each kind of failure by itself:
// what one goods has too much never makes up for what another one lacks.
type Audits struct {
	// Goods is how many were audited.
	Goods int64
	// Oversold, Lost and Vanished are units: promised that do not exist, left in a
	// row whose updates were lost, and gone from a row without a buyer.
	Oversold, Lost, Vanished int64
}
