package strategytest

import (
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// The types that a strategy of another module is made of.
type (
	// Entry describes a strategy and makes it.
	Entry = strategy.Entry
	// Guarantees are its guarantees, which the suite tests.
	Guarantees = strategy.Guarantees
	// Damage is what it may do where it guarantees less.
	Damage = strategy.Damage
	// Deps is what it is made of.
	Deps = strategy.Deps
	// Strategy sells a batch of purchases.
	Strategy = strategy.Strategy
	// Restocker is a strategy that keeps a copy of the stock.
	Restocker = strategy.Restocker
	// Minimum is the oldest version of a server on which it works.
	Minimum = strategy.Minimum
	// Allocator is a strategy with units outside of the row.
	Allocator = strategy.Allocator
	// Limiter is a strategy that checks the limit of a buyer outside of the store.
	Limiter = strategy.Limiter
	// Store is the stock and the ledger in SQL.
	Store = repo.Store
	// Tx is a transaction on them.
	Tx = repo.Tx
	// Allocation is a part of the units of an item outside of its row.
	Allocation = repo.Allocation
	// Limit is what one buyer may have, and has.
	Limit = stock.Limit
	// Sale is what is written to the ledger.
	Sale = repo.Sale
	// Item is the row of an item.
	Item = stock.Goods
	// Purchase is what a buyer asks for.
	Purchase = stock.Purchase
	// Outcome is the answer to a purchase.
	Outcome = stock.Outcome
	// Order is an entry of the ledger.
	Order = stock.Order
	// Recalled is what a recall returned to the row.
	Recalled = stock.Recalled
	// Backend names a backend that a strategy needs.
	Backend = backend.Name
	// LockDeps is what locks are made of.
	LockDeps = lock.Deps
)
