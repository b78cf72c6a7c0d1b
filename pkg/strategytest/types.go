package strategytest

import (
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

type (
	// Entry and the following are what a strategy of another module is made of.
	Entry     = strategy.Entry
	Claims    = strategy.Claims
	Damage    = strategy.Damage
	Deps      = strategy.Deps
	Strategy  = strategy.Strategy
	Restocker = strategy.Restocker
	Allocator = strategy.Allocator
	Limiter   = strategy.Limiter
	Store     = repo.Store
	Tx        = repo.Tx
	Sale      = repo.Sale
	Item      = stock.Goods
	Purchase  = stock.Purchase
	Outcome   = stock.Outcome
	Order     = stock.Order
	Recalled  = stock.Recalled
	Backend   = backend.Name
	LockDeps  = lock.Deps
)
