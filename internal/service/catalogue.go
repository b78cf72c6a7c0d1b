package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// ErrUnknownStrategy tells that the registry has no strategy of this name.
var ErrUnknownStrategy = errors.New("unknown strategy")

// ErrNotFenceable tells that a strategy has no lock whose token could fence it.
var ErrNotFenceable = errors.New("strategy cannot be fenced")

// Catalogue is every strategy of the registry, made for one replica.
type Catalogue struct {
	store    *repo.Store
	clients  *backend.Clients
	services []*Service
	byName   map[string]*Service
	recalls  *recaller
	switches *switches
	gathered gatheredLedger
	items    *items
	pings    pings
	timeout  time.Duration // of a deduction
	standard Mode
	// maxQuantity is that of items that have none.
	maxQuantity int64
	// countersExpire tells that the counters of locks in Redis were all given an expiry.
	countersExpire atomic.Bool
	log            *slog.Logger
}

// NewCatalogue makes the strategies. Each deduction ends within timeout.
func NewCatalogue(entries []strategy.Entry, deps strategy.Deps, timeout time.Duration) *Catalogue {
	c := &Catalogue{
		store: deps.Store, clients: deps.Lock.Clients, log: cmp.Or(deps.Log, slog.Default()),
		byName: make(map[string]*Service, len(entries)), switches: newSwitches(deps.Store),
		gathered: newGathered(deps.Store, deps.Group.Batch, timeout, deps.Log), timeout: timeout,
		maxQuantity: stock.MaxQuantity,
	}
	c.items = newItems(deps.Store, c.switches, deps.Group.Batch, timeout, deps.Log)
	c.recalls = &recaller{store: deps.Store, services: c.byName, log: c.log}
	for _, entry := range entries {
		own := deps
		own.Store = deps.Store.As(entry.Name)
		s := c.newService(entry, own)
		c.services = append(c.services, s)
		c.byName[entry.Name] = s
	}
	return c
}

// newService makes a service and those that it is with its modifiers.
func (c *Catalogue) newService(entry strategy.Entry, deps strategy.Deps) *Service {
	heard := deps.Observer()
	deps.Group.Timeout, deps.Group.Log, deps.Group.Observer = c.timeout, deps.Log, heard
	bare := entry.New(deps)
	if _, ok := bare.(strategy.Promiser); !ok { // its outcomes are not the row's
		deps.Group.Settled = func(ctx context.Context, goodsID int64) error {
			_, err := deps.Store.GoodsSettled(ctx, goodsID)
			return err
		}
	}
	plain := &Service{
		entry: entry, strategy: bare, bare: bare, ledger: c.gathered, items: c.items, timeout: c.timeout, recalls: c.recalls,
		heard: heard, unconfigured: unconfigured(entry, c.clients),
	}
	plain.grouped = plain.groupedBy(deps.Group)
	if fencer, can := plain.strategy.(strategy.Fencer); can {
		fenced := *plain
		fenced.strategy = fencer.Fenced()
		fenced.grouped = fenced.groupedBy(deps.Group)
		plain.setFenced(&fenced)
	}
	return plain
}

func (s *Service) groupedBy(bounds strategy.Group) *Service {
	grouped := *s
	grouped.strategy = strategy.NewGrouped(s.strategy, s.ledger, bounds)
	grouped.grouped = &grouped
	return &grouped
}

// waiting is how many purchases wait in the service's own queues.
func (s *Service) waiting() int {
	if queues, are := s.grouped.strategy.(*strategy.Grouped); are {
		return queues.Waiting()
	}
	return 0
}

// setFenced lets the modifiers be taken in either order.
func (s *Service) setFenced(fenced *Service) {
	s.fenced, fenced.fenced = fenced, fenced
	s.grouped.fenced, fenced.grouped.fenced = fenced.grouped, fenced.grouped
}

// Description is a strategy as GET /strategies shows it.
type Description struct {
	Name    string          `json:"name"`
	Family  strategy.Family `json:"family"`
	Summary string          `json:"summary"`
	Needs   []string        `json:"needs"`
	Claims  strategy.Claims `json:"claims"`
	// Damage is what is shown where it claims no exclusion, or all the same.
	Damage strategy.Damage `json:"damage,omitempty"`
	// Enabled tells whether it is not refused, neither by the configuration of this
	// replica nor by a switch.
	Enabled bool `json:"enabled"`
	// RequiresFence tells that it is refused without fence=true.
	RequiresFence bool `json:"requires_fence,omitempty"`
	// Available tells whether it is enabled, and every backend that it needs answers
	// now.
	Available bool `json:"available"`
	// Note is why it is not available, or what the database does to it.
	Note string `json:"note,omitempty"`
	// Hidden tells that what the strategy is there to show cannot be seen on
	// this database.
	Hidden bool `json:"hidden,omitempty"`
}

// Describe lists the strategies and asks their backends whether they answer.
func (c *Catalogue) Describe(ctx context.Context) []Description {
	down := c.down(ctx)
	list := make([]Description, len(c.services))
	for i, s := range c.services {
		caveat := s.entry.Caveat(c.store.Dialect())
		list[i] = Description{
			Name: s.entry.Name, Family: s.entry.Family, Summary: s.entry.Summary,
			Needs: []string{c.store.Dialect()}, Claims: s.entry.Claims, Damage: s.entry.Damage,
			Enabled: true, Available: true, Note: caveat.Words, Hidden: caveat.Hides,
		}
		if why := c.refusal(s, s.fenced != nil); why != "" {
			list[i].Enabled, list[i].Available, list[i].Note = false, false, "refused here: "+why
		} else if why := c.refusal(s, false); why != "" {
			list[i].RequiresFence, list[i].Note = true, "refused here without fence=true: "+why
		}
		for _, need := range append([]backend.Name{backend.Database}, s.entry.Needs...) {
			if need != backend.Database && need != backend.MySQL {
				list[i].Needs = append(list[i].Needs, string(need))
			}
			if err := down[need]; err != nil && list[i].Available {
				list[i].Available, list[i].Note = false, whyDown(err)
			}
		}
	}
	return list
}

// whyDown says in words why a backend is down. Where it is, and how it failed, is
// not for everyone who may ask.
func whyDown(err error) string {
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || errors.Is(err, backend.ErrNotConfigured) {
		return err.Error()
	}
	return failed.Backend + " does not answer"
}

// The states of a backend.
const (
	Up            = "ok"
	Down          = "down"
	NotConfigured = "not configured"
)

// Backend is one of the servers behind the strategies, as GET /readyz shows it.
type Backend struct {
	Name string `json:"name"`
	// Status is Up, Down or NotConfigured.
	Status string `json:"status"`
	// Note is why it is down.
	Note string `json:"note,omitempty"`
}

// Backends lists the database and those servers that locks are kept in. The
// error is the database's: without it, nothing can be sold at all.
func (c *Catalogue) Backends(ctx context.Context) ([]Backend, error) {
	down := c.down(ctx)
	list := make([]Backend, 0, 1+len(backend.LockServers()))
	list = append(list, Backend{Name: c.store.Dialect(), Status: Up})
	for _, b := range backend.LockServers() {
		state := Backend{Name: string(b), Status: Up}
		switch err := down[b]; {
		case errors.Is(err, backend.ErrNotConfigured):
			state.Status = NotConfigured
		case err != nil:
			state.Status, state.Note = Down, whyDown(err)
		}
		list = append(list, state)
	}
	return list, down[backend.Database]
}

// Restocked tells those strategies that keep a copy of the stock that units were
// added to the row of a goods. Each of them is told, also where one fails.
func (c *Catalogue) Restocked(ctx context.Context, goodsID, units int64) error {
	var errs []error
	for _, s := range c.services {
		if r, is := s.strategy.(strategy.Restocker); is {
			if err := r.Restocked(ctx, goodsID, units); err != nil {
				errs = append(errs, fmt.Errorf("tell %s of a restock: %w", s.entry.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// LimitChanged tells those strategies that look at the limit of one buyer outside of
// the database that it was changed. Each of them is told, also where one fails.
func (c *Catalogue) LimitChanged(ctx context.Context, goodsID int64) error {
	var errs []error
	for _, s := range c.services {
		if l, is := s.bare.(strategy.Limiter); is {
			if err := l.LimitChanged(ctx, goodsID); err != nil {
				errs = append(errs, fmt.Errorf("tell %s of a limit: %w", s.entry.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// promisers are the strategies that may answer before the ledger has an order.
func (c *Catalogue) promisers() []strategy.Promiser {
	var list []strategy.Promiser
	for _, s := range c.services {
		if promiser, is := s.promiser(); is {
			list = append(list, promiser)
		}
	}
	return list
}

// Waiting is how many grouped purchases wait in the queues of each strategy.
func (c *Catalogue) Waiting() map[string]int {
	waiting := make(map[string]int, len(c.services))
	for _, s := range c.services {
		n := s.waiting()
		if s.fenced != nil {
			n += s.fenced.waiting()
		}
		waiting[s.entry.Name] = n
	}
	return waiting
}

// Lag is how far the ledger is behind what was promised. ErrNothingPromised: no
// strategy here promises anything.
func (c *Catalogue) Lag(ctx context.Context) (hot.Lag, error) {
	if promisers := c.promisers(); len(promisers) > 0 {
		return promisers[0].Lag(ctx)
	}
	return hot.Lag{}, ErrNothingPromised
}

// ErrNothingPromised tells that no strategy of a replica answers before the ledger
// has an order.
var ErrNothingPromised = errors.New("no strategy promises what is not in the ledger")

// Close waits for batches that are being written, and closes the strategies that
// hold something open: all at once, so that one whose backend hangs delays no other.
func (c *Catalogue) Close() error {
	errs := make([]error, len(c.services))
	var closing sync.WaitGroup
	for i, s := range c.services {
		closing.Go(func() { errs[i] = s.close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// close closes what wraps before what it wraps.
func (s *Service) close() error {
	list := []*Service{s.grouped, s}
	if s.fenced != nil {
		list = []*Service{s.grouped, s.fenced.grouped, s}
	}
	var errs []error
	for _, s := range list {
		if closer, ok := s.strategy.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}
