// Package stock is the domain of stockd: purchases, orders, outcomes, and the arithmetic of audits.
// It knows no database, no lock and no HTTP, and imports nothing of stockd.
package stock

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Kind is what a row of the ledger records.
type Kind string

// The kinds of a ledger row.
const (
	Deduction Kind = "deduct"
	Restock   Kind = "restock"
	// Hold takes units for a reservation. It is followed by one of the next three: units are
	// sold, or come back.
	Hold         Kind = "hold"
	Confirmation Kind = "confirm"
	Release      Kind = "release"
	Expiry       Kind = "expire"
	// Return gives units of an order back.
	Return Kind = "return"
	// Correct sets the stock right. Its quantity is what it has added, and may be negative.
	Correct Kind = "correct"
	// LimitSet, ChoiceSet and SaleSet are changes of an item that move no units.
	LimitSet  Kind = "limit"
	ChoiceSet Kind = "strategy"
	SaleSet   Kind = "sale"
)

// Steps are the kinds of orders, of what became of them, and of corrections.
func Steps() []Kind {
	return []Kind{Deduction, Hold, Confirmation, Release, Expiry, Return, Correct}
}

// Kinds are all kinds.
func Kinds() []Kind { return append(Steps(), Restock, LimitSet, ChoiceSet, SaleSet) }

// Limits of one purchase and of one item. They keep every sum that stockd
// computes far inside an int64.
const (
	// MaxQuantity is the most units that one purchase may ask for.
	MaxQuantity = 1_000_000
	// MaxStock is the largest stock of one item.
	MaxStock = 1_000_000_000_000
	// MaxRequestID is the longest key of a client, in bytes.
	MaxRequestID = 128
	// MaxUserID is the longest user id, in characters.
	MaxUserID = 64
	// MaxReason is the longest reason of a correction, in characters.
	MaxReason = 200
	// MaxPerUser is the highest limit per buyer.
	MaxPerUser = 1_000_000_000
)

// Purchase is a request for units of one item.
type Purchase struct {
	// RequestID is the stored id, as BuyerKey makes it; it is unique in the ledger.
	RequestID string
	// Keyed reports that the client chose the key, and may repeat it to get the first answer.
	Keyed bool
	// Quantity is the number of units, 1 to MaxQuantity.
	Quantity int64
	// UserID is the buyer, or empty.
	UserID string
	// Durable is the least that the client accepts; empty is InRedis.
	Durable Durability
	// TTL makes the purchase a reservation, which expires so long after it was accepted; 0:
	// it is an order at once.
	TTL time.Duration
	// Number is that of the reservation, where it is one.
	Number string
	// MaxWait is how long the purchase waits for the lock of the item at most; 0: as long as
	// the strategy has its purchases wait.
	MaxWait time.Duration
}

// Kind is that of the row that an accepted purchase is in the ledger.
func (p Purchase) Kind() Kind {
	if p.TTL > 0 {
		return Hold
	}
	return Deduction
}

// Durability is where an accepted purchase is stored before it is answered.
type Durability string

// The durabilities, the weakest first.
const (
	// InRedis: the order is lost if Redis loses its memory before the ledger has it.
	InRedis Durability = "redis"
	// InSQL: the ledger has the order.
	InSQL Durability = "sql"
)

// Order is one row of the ledger: an accepted purchase, what became of it, or a change of an item.
type Order struct {
	ID        string
	Kind      Kind
	RequestID string
	GoodsID   int64
	Quantity  int64
	UserID    string
	// Remaining is the stock after the order, as the writer of the row saw it.
	Remaining int64
	Strategy  string
	Replica   string
	// Token is the fencing token of the lease that guarded the deduction, or 0.
	Token uint64
	// TTL is how long the units are held, of a Hold that is being written; the ledger has it
	// not.
	TTL time.Duration
	// CreatedAt is when the order was accepted, by the clock of its replica: UTC, in
	// microseconds.
	CreatedAt time.Time
	// Correction is set where Kind is Correct.
	Correction *Correction
	// Settings are set where Kind is LimitSet, ChoiceSet or SaleSet.
	Settings *Settings
}

// Settings are what a LimitSet, a ChoiceSet or a SaleSet has set. What is empty or nil of a choice is as the configuration
// has it.
type Settings struct {
	PerUser *int64 `json:"per_user,omitempty"`
	Choice
	Sale
}

// Correction sets right what is in stock of an item.
type Correction struct {
	// Counted is how many units there are, for sale and held: what is on the shelf once the sold units are off it. It
	// is nil where By says how many more there are; it is negative where there are fewer.
	Counted *int64
	By      int64
	// Reason is why, up to MaxReason characters.
	Reason string
}

// Is reports whether both ask for the same.
func (c Correction) Is(other Correction) bool {
	if c.Counted == nil || other.Counted == nil {
		return c == other
	}
	return *c.Counted == *other.Counted && c.Reason == other.Reason
}

// Sells reports that units are sold with the row.
func (o Order) Sells() bool { return o.Kind == Deduction || o.Kind == Confirmation }

// Answers reports whether the order is the result of p, so that a repeated p gets it.
func (o Order) Answers(goodsID int64, p Purchase) bool {
	return o.Kind == p.Kind() && IsLineNumber(o.ID) == IsLineNumber(p.Number) && o.RequestID == p.RequestID && o.GoodsID == goodsID &&
		o.Quantity == p.Quantity && o.UserID == p.UserID
}

// Outcome is the result of one purchase of a batch.
type Outcome struct {
	// Order is set where Rejected is nil.
	Order Order
	// Rejected is why the purchase was rejected; nothing was sold.
	Rejected error
	// Replayed reports that the order was accepted earlier, under the same key.
	Replayed bool
	// Durable is where the order is stored; empty is InSQL.
	Durable Durability
	// Wait is how long the purchase waited for its lock and, where it was
	// grouped, in the queue; Hold is how long the lock was held for its batch.
	// Both are 0 for strategies without a lock that are not grouped.
	Wait, Hold time.Duration
}

// Goods is the contended row of an item.
type Goods struct {
	ID    int64 `json:"goods_id"`
	Stock int64 `json:"stock"`
	// Version grows with every write of the row.
	Version int64 `json:"version"`
	// Fence is the highest fencing token that has claimed the row.
	Fence uint64 `json:"fence"`
	// PerUser is the limit per buyer; 0 means unlimited.
	PerUser int64 `json:"per_user"`
	// Allocated is the units outside of the row, in allocations such as buckets and Redis; 0
	// where Stock includes them.
	Allocated int64 `json:"-"`
	// Withheld is the units of the row while the item is not on sale; nil while it is.
	Withheld *int64 `json:"-"`
	// Sale is read with what an item has in all.
	Sale
	// Writer is the only strategy that has written the row since its last change beside
	// sales, or empty.
	Writer string `json:"-"`
	// WriterEpoch grows with each change of the row beside the sales, and with each
	// sale by another strategy than the last one: see repo.ErrRowChanged.
	WriterEpoch int64 `json:"-"`
}

// NewItem is an item to be created, with its first units, 0 to MaxStock, and a limit per buyer of up to MaxPerUser; 0 means
// unlimited.
type NewItem struct {
	GoodsID, Units, PerUser int64
	Choice                  Choice
	Sale                    SaleChange
}

// Available reports that a buyer can have units now.
func (g Goods) Available() bool { return g.Stock > 0 && g.Rejects() == nil }

// maxFew is the most units of an item that are few left. It is a number, and no share of what there was: that would cost
// each look a read of the ledger.
const maxFew = 10

// Availability is a word for what a buyer can have now, which says no more of it than a buyer needs.
func (g Goods) Availability() string {
	switch off := g.Rejects(); {
	case errors.Is(off, ErrSaleClosed):
		return "ended"
	case off != nil:
		return "not-started"
	case g.Stock <= 0:
		return "sold-out"
	case g.Stock <= maxFew:
		return "few-left"
	default:
		return "in-stock"
	}
}

// Recalled is the result of the recall of one allocation.
type Recalled struct {
	// Returned is the units that are back in the row.
	Returned int64 `json:"returned"`
	// Pending is the units that stay in the allocation, for accepted orders that are not in
	// the ledger yet.
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

// Limit is the limit per buyer of an item. The zero Limit is unlimited.
type Limit struct {
	// PerUser is the most units; 0 means unlimited.
	PerUser int64
	// Has is the units that the buyers of a batch have already.
	Has map[string]int64
}

// Allot distributes units to a batch in its order: a purchase that does not fit, or exceeds its
// buyer's limit, is rejected, and the next one may still fit. rejected[i] is nil if batch[i] is
// accepted, else ErrInsufficientStock, ErrUserLimit or ErrUserUnknown.
func Allot(units int64, batch []Purchase, limit Limit) (rejected []error) {
	return Goods{Stock: units}.Allot(batch, limit)
}

// Allot distributes the units of the row. A purchase that would fit with the allocated units is
// rejected with an *AllocatedError, and so is each one of an item that is not on sale.
func (g Goods) Allot(batch []Purchase, limit Limit) (rejected []error) {
	rejected = make([]error, len(batch))
	if g.Withheld != nil {
		for i := range rejected {
			rejected[i] = g.OffSale()
		}
		return rejected
	}
	left := g.Stock
	taken := make(map[string]int64) // under the limit
	for i, p := range batch {
		switch rejected[i] = limit.rejects(p, taken[p.UserID]); {
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

// InRow is the units of the row, on sale or withheld.
func (g Goods) InRow() int64 {
	if g.Withheld != nil {
		return *g.Withheld
	}
	return g.Stock
}

// OffSale is the rejection of a purchase of an item whose units are withheld.
func (g Goods) OffSale() error {
	return &AllocatedError{Units: *g.Withheld, Version: g.Version, Withheld: true}
}

// Sale is when an item is sold, by the clock of the database; nil is any time.
type Sale struct {
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
	// Now is the time of the database when they were read; zero where there are none.
	Now time.Time `json:"now,omitzero"`
}

// SaleChange sets the times of a sale: nil leaves one as it is, and the zero time means any.
type SaleChange struct{ StartsAt, EndsAt *time.Time }

// Keeps reports whether the change leaves a sale as it is, to the millisecond.
func (c SaleChange) Keeps(s Sale) bool {
	as := func(set, now *time.Time) bool {
		switch {
		case set == nil:
			return true
		case now == nil:
			return set.IsZero()
		default:
			return set.Truncate(time.Millisecond).Equal(now.Truncate(time.Millisecond))
		}
	}
	return as(c.StartsAt, s.StartsAt) && as(c.EndsAt, s.EndsAt)
}

// Check returns ErrSaleTimes where a sale would end before it starts.
func (c SaleChange) Check(s Sale) error {
	starts, ends := cmp.Or(c.StartsAt, s.StartsAt), cmp.Or(c.EndsAt, s.EndsAt)
	if starts == nil || ends == nil || ends.IsZero() || ends.After(*starts) {
		return nil
	}
	return fmt.Errorf("%w: the item would be sold from %s until %s", ErrSaleTimes, starts.UTC().Format(time.RFC3339), ends.UTC().Format(time.RFC3339))
}

// Rejects is why nothing is sold at that time: ErrSaleClosed, also where the sale was closed before its start, a
// *NotStartedError, or nil.
func (s Sale) Rejects() error {
	if s.EndsAt != nil && !s.Now.Before(*s.EndsAt) {
		return ErrSaleClosed
	}
	if s.StartsAt != nil && s.Now.Before(*s.StartsAt) {
		return &NotStartedError{In: s.StartsAt.Sub(s.Now)}
	}
	return nil
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

// rejects is why the limit rejects a purchase whose buyer gets taken units earlier in the batch, or
// nil.
func (l Limit) rejects(p Purchase, taken int64) error {
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

// Choice is how an item is sold: by which strategy where a request does not say, and how
// much at a time. What is empty or nil is as the configuration has it.
type Choice struct {
	Strategy string `json:"strategy,omitempty"`
	Group    *bool  `json:"group,omitempty"`
	// Fence has another name in answers: "fence" is the token that has claimed the row.
	Fence *bool `json:"fenced,omitempty"`
	// MaxQuantity is the most units of one purchase, 1 to MaxQuantity.
	MaxQuantity *int64 `json:"max_quantity,omitempty"`
}

// WithoutQuantity is the choice of a strategy and its modifiers alone.
func (c Choice) WithoutQuantity() Choice {
	c.MaxQuantity = nil
	return c
}
