package service

import (
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// ErrStrategyRejected reports that the admin has disabled this strategy.
var ErrStrategyRejected = errors.New("strategy is refused here")

// UnconfiguredError is an ErrStrategyRejected: the strategy needs a backend that this
// replica does not have.
type UnconfiguredError struct {
	Strategy, Backend string
	// Err is a backend.ErrNotConfigured.
	Err error
}

// Error names the backend.
func (e *UnconfiguredError) Error() string {
	return fmt.Sprintf("%v: %s, because %s is %v", ErrStrategyRejected, e.Strategy, e.Backend, e.Err)
}

// Unwrap makes the kind visible to errors.Is.
func (e *UnconfiguredError) Unwrap() error { return ErrStrategyRejected }

// unconfigured returns which backend a strategy lacks, or returns nil.
func unconfigured(entry strategy.Entry, clients *backend.Clients) error {
	for _, need := range entry.Needs {
		if lacks, ok := errors.AsType[*stock.BackendError](clients.Has(need)); ok {
			return &UnconfiguredError{Strategy: entry.Name, Backend: lacks.Backend, Err: lacks.Err}
		}
	}
	return nil
}

// Policy is which strategies the admin has disabled.
type Policy struct {
	// OnlySafe rejects what is not Guarantees.Safe: some strategies only without a fence.
	OnlySafe bool
	// Deny rejects by name.
	Deny []string
}

// Enforce has the catalogue refuse strategies. It is called before anything is
// sold. ErrUnknownStrategy: a name is none, and nothing would be rejected by it.
//
// A rejected strategy is there all the same: what it has accepted before is still written,
// and restocks still reach it.
func (c *Catalogue) Enforce(p Policy) error {
	for _, name := range p.Deny {
		o, ok := c.byName[name]
		if !ok {
			return fmt.Errorf("strategies.deny: %w: %q", ErrUnknownStrategy, name)
		}
		o.rejected = "strategies.deny names it"
	}
	for _, o := range c.offers {
		switch claims := o.entry.Guarantees; {
		case !p.OnlySafe || claims.Safe(false):
		case claims.Safe(true):
			o.rejectedUnfenced = "strategies.only_safe is set, and without fence=true a holder that has lost its lock unnoticed overwrites sales"
		default:
			o.rejected = "strategies.only_safe is set, and it does not guarantee exclusion across replicas"
		}
	}
	return nil
}
