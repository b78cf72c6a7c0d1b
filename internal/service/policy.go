package service

import (
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// ErrStrategyRefused tells that the owner does not want this strategy used.
var ErrStrategyRefused = errors.New("strategy is refused here")

// UnconfiguredError is an ErrStrategyRefused: the strategy needs a backend that this
// replica does not have.
type UnconfiguredError struct {
	Strategy, Backend string
	// Err is a lock.ErrNotConfigured.
	Err error
}

// Error names the backend.
func (e *UnconfiguredError) Error() string {
	return fmt.Sprintf("%v: %s, because %s is %v", ErrStrategyRefused, e.Strategy, e.Backend, e.Err)
}

// Unwrap makes the kind visible to errors.Is.
func (e *UnconfiguredError) Unwrap() error { return ErrStrategyRefused }

// unconfigured tells which backend a strategy lacks, or returns nil.
func unconfigured(entry strategy.Entry, clients *backend.Clients) error {
	for _, need := range entry.Needs {
		if lacks, ok := errors.AsType[*stock.BackendError](clients.Has(need)); ok {
			return &UnconfiguredError{Strategy: entry.Name, Backend: lacks.Backend, Err: lacks.Err}
		}
	}
	return nil
}

// Policy is which strategies the owner does not want used.
type Policy struct {
	// OnlySafe refuses what is not Claims.Safe: some strategies only without a fence.
	OnlySafe bool
	// Deny refuses by name.
	Deny []string
}

// Enforce has the catalogue refuse strategies. It is called before anything is
// sold. ErrUnknownStrategy: a name is none, and nothing would be refused by it.
//
// A strategy that is refused is there all the same: what it has promised before
// is still written, and restocking still reaches it.
func (c *Catalogue) Enforce(p Policy) error {
	for _, name := range p.Deny {
		s, known := c.byName[name]
		if !known {
			return fmt.Errorf("strategies.deny: %w: %q", ErrUnknownStrategy, name)
		}
		s.refused = "strategies.deny names it"
	}
	for _, s := range c.services {
		switch claims := s.entry.Claims; {
		case !p.OnlySafe || claims.Safe(false):
		case claims.Safe(true):
			s.refusedUnfenced = "strategies.only_safe is set, and without fence=true a holder that has lost its lock unnoticed overwrites sales"
		default:
			s.refused = "strategies.only_safe is set, and it does not claim to be exclusive across replicas"
		}
	}
	return nil
}
