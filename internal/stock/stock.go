// Package stock is the domain of stockd: what is bought, what came of it, and
// the arithmetic that tells a true ledger from a false one. It knows no
// database, no lock and no HTTP; everything else imports it, and it imports
// nothing of stockd.
package stock

import (
	"slices"
	"time"
)

// Kind is what a row of the ledger records.
type Kind string

// The kinds of a ledger row.
const (
	Deduction Kind = "deduct"
	Restock   Kind = "restock"
)

// Limits of one purchase and of one goods. They keep every sum that stockd
// computes far inside an int64.
const (
	// MaxQuantity is the most units that one purchase may ask for.
	MaxQuantity = 1_000_000
	// MaxStock is the most units that one goods may have in stock.
	MaxStock = 1_000_000_000_000
	// MaxRequestID is the longest key of a client, in bytes.
	MaxRequestID = 128
	// MaxUserID is the longest user id, in characters.
	MaxUserID = 64
	// MaxPerUser is the highest limit of one buyer.
	MaxPerUser = 1_000_000_000
)

// Purchase is a wish to buy some units of one goods.
type Purchase struct {
	// RequestID is the stored id, as BuyerKey makes it: the ledger takes it once.
	RequestID string
	// Keyed tells that the buyer chose the key, and may send it again to get the
	// first answer.
	Keyed bool
	// Quantity is the number of units, 1 to MaxQuantity.
	Quantity int64
	// UserID is the buyer, or empty.
	UserID string
	// Durable is the least that the buyer wants; empty is InRedis.
	Durable Durability
}

// Durability is where an accepted purchase is written down before it is answered.
type Durability string

// The durabilities; each holds what the one before it holds.
const (
	// InRedis: the order is lost where Redis loses its memory before the ledger
	// has it.
	InRedis Durability = "redis"
	// InSQL: the ledger has the order.
	InSQL Durability = "sql"
)

// Order is one row of the ledger: a purchase that was accepted, or a restock.
type Order struct {
	ID        string
	Kind      Kind
	RequestID string
	GoodsID   int64
	Quantity  int64
	UserID    string
	// Remaining is the stock that was left, as the writer of the row saw it.
	Remaining int64
	Strategy  string
	Replica   string
	// Token is the fencing token of the lease that guarded the deduction, or 0.
	Token uint64
	// CreatedAt is when the order was accepted, by the clock of its replica: UTC, in
	// microseconds.
	CreatedAt time.Time
}

// Answers reports whether the order is what p asks for, so that sending p
// again may be answered with it.
func (o Order) Answers(goodsID int64, p Purchase) bool {
	return o.Kind == Deduction && slices.Contains(StoredIDs(p.RequestID), o.RequestID) && o.GoodsID == goodsID &&
		o.Quantity == p.Quantity && o.UserID == p.UserID
}

// Outcome is what came of one purchase of a batch.
type Outcome struct {
	// Order is set where Refused is nil.
	Order Order
	// Refused tells why the purchase was not accepted; nothing was taken for it.
	Refused error
	// Replayed tells that the order was accepted earlier, under the same key.
	Replayed bool
	// Durable is where the order is written down; empty is InSQL.
	Durable Durability
	// Wait is how long the purchase waited for its lock and, where it was
	// grouped, in the queue; Hold is how long the lock was held for its batch.
	// Both are 0 for strategies without a lock that are not grouped.
	Wait, Hold time.Duration
}

// Goods is the row that everyone fights over.
type Goods struct {
	ID    int64 `json:"goods_id"`
	Stock int64 `json:"stock"`
	// Version grows with every write of the row.
	Version int64 `json:"version"`
	// Fence is the highest fencing token that has claimed the row.
	Fence uint64 `json:"fence"`
	// PerUser is the most units that one buyer may have; 0 is no limit.
	PerUser int64 `json:"per_user"`
	// Allocated is how many units are outside of the row that was read, in allocations
	// such as buckets and Redis; 0 where Stock has them already.
	Allocated int64 `json:"-"`
	// Writer is the strategy that alone has written the row since the last change
	// beside the sales, or empty.
	Writer string `json:"-"`
	// WriterEpoch grows with each change of the row beside the sales, and with each
	// sale by another strategy than the last one: see repo.ErrRowChanged.
	WriterEpoch int64 `json:"-"`
}

// Recalled is what came of the recall of one allocation.
type Recalled struct {
	// Returned is how many units are back in the row.
	Returned int64 `json:"returned"`
	// Pending is how many stay in the allocation, because orders that are accepted and
	// not in the ledger yet have them.
	Pending int64 `json:"pending"`
}

// Units is the sum of the quantities of a batch.
func Units(batch []Purchase) int64 {
	var units int64
	for _, p := range batch {
		units += p.Quantity
	}
	return units
}

// Limit is what of a goods one buyer may have. The zero Limit is none.
type Limit struct {
	// PerUser is the most units; 0 is no limit.
	PerUser int64
	// Has is what the buyers of a batch have already.
	Has map[string]int64
}

// Allot gives units to a batch, first come first served: a purchase that does not fit,
// or is beyond its buyer's limit, is passed over and the next one may still fit.
// rejected[i] tells why batch[i] gets nothing, and is nil where it does:
// ErrInsufficientStock, ErrUserLimit, or ErrUserUnknown.
func Allot(units int64, batch []Purchase, limit Limit) (rejected []error) {
	return Goods{Stock: units}.Allot(batch, limit)
}

// Allot gives the units of the row that was read to a batch. What would fit with what is
// allocated outside of the row is rejected with an *AllocatedError.
func (g Goods) Allot(batch []Purchase, limit Limit) (rejected []error) {
	rejected = make([]error, len(batch))
	left := g.Stock
	taken := make(map[string]int64) // under the limit
	for i, p := range batch {
		switch rejected[i] = limit.refuses(p, taken[p.UserID]); {
		case rejected[i] != nil:
		case p.Quantity <= left:
			left -= p.Quantity
			if limit.PerUser > 0 {
				taken[p.UserID] += p.Quantity
			}
		case p.Quantity <= max(0, left)+g.Allocated:
			rejected[i] = &AllocatedError{Units: g.Allocated, Version: g.Version}
		default:
			rejected[i] = ErrInsufficientStock
		}
	}
	return rejected
}

// Share is how many units of the row a strategy moves into its allocation: all, or half
// of them where another strategy was the last to sell the item. Strategies that sell in
// turns therefore move units seldom: each move leaves the other one half of the rest.
func (g Goods) Share(strategy string) int64 {
	units := max(0, g.Stock)
	if g.Writer != "" && g.Writer != strategy {
		return units - units/2
	}
	return units
}

// EpochFor is the epoch in which a strategy sells from the row that was read: its first
// sale after another strategy's begins one.
func (g Goods) EpochFor(strategy string) int64 {
	if g.Writer != "" && g.Writer != strategy {
		return g.WriterEpoch + 1
	}
	return g.WriterEpoch
}

// refuses tells why the limit does not let a purchase through whose buyer takes so
// many units already in the same batch.
func (l Limit) refuses(p Purchase, taken int64) error {
	if l.PerUser == 0 {
		return nil
	}
	if p.UserID == "" {
		return ErrUserUnknown
	}
	if has := l.Has[p.UserID] + taken; has+p.Quantity > l.PerUser {
		return &UserLimitError{PerUser: l.PerUser, Has: has}
	}
	return nil
}
