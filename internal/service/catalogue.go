package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
)

// ErrUnknownStrategy tells that the registry has no strategy of this name.
var ErrUnknownStrategy = errors.New("unknown strategy")

// Catalogue is every strategy of the registry, made for one replica.
type Catalogue struct {
	store    *repo.Store
	services []*Service
	byName   map[string]*Service
}

// NewCatalogue makes the strategies. Each deduction ends within timeout.
func NewCatalogue(entries []strategy.Entry, deps strategy.Deps, timeout time.Duration) *Catalogue {
	c := &Catalogue{store: deps.Store, byName: make(map[string]*Service, len(entries))}
	for _, entry := range entries {
		own := deps
		own.Store = deps.Store.As(entry.Name)
		s := &Service{entry: entry, strategy: entry.New(own), store: own.Store, timeout: timeout}
		c.services = append(c.services, s)
		c.byName[entry.Name] = s
	}
	return c
}

// Service finds a strategy by its name.
func (c *Catalogue) Service(name string) (*Service, error) {
	s, known := c.byName[name]
	if !known {
		return nil, fmt.Errorf("%w: %q", ErrUnknownStrategy, name)
	}
	return s, nil
}

// Names lists the strategies in the registry's order.
func (c *Catalogue) Names() []string {
	names := make([]string, len(c.services))
	for i, s := range c.services {
		names[i] = s.entry.Name
	}
	return names
}

// Description is a strategy as GET /strategies shows it.
type Description struct {
	Name    string          `json:"name"`
	Family  strategy.Family `json:"family"`
	Summary string          `json:"summary"`
	Needs   []string        `json:"needs"`
	Claims  strategy.Claims `json:"claims"`
	// Damage is what is shown where it claims no exclusion.
	Damage strategy.Damage `json:"damage,omitempty"`
	// Available tells whether every backend that it needs answers now.
	Available bool `json:"available"`
	// Note is why it is not available, or what the database does to it.
	Note string `json:"note,omitempty"`
	// Hidden tells that what the strategy is there to show cannot be seen on
	// this database.
	Hidden bool `json:"hidden,omitempty"`
}

// Describe lists the strategies and asks their backends whether they answer.
func (c *Catalogue) Describe(ctx context.Context) []Description {
	down := c.store.Ping(ctx)
	list := make([]Description, len(c.services))
	for i, s := range c.services {
		caveat := s.entry.Caveat(c.store.Dialect())
		list[i] = Description{
			Name: s.entry.Name, Family: s.entry.Family, Summary: s.entry.Summary,
			Needs: []string{c.store.Dialect()}, Claims: s.entry.Claims, Damage: s.entry.Damage,
			Available: down == nil, Note: caveat.Words, Hidden: caveat.Hides,
		}
		if down != nil {
			list[i].Note = down.Error()
		}
	}
	return list
}

// Close closes the strategies that hold something open.
func (c *Catalogue) Close() error {
	var errs []error
	for _, s := range c.services {
		if closer, ok := s.strategy.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}
