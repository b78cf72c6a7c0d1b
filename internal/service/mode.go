package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Mode is how a purchase is served: a strategy and its modifiers.
type Mode struct {
	Strategy     string
	Group, Fence bool
}

// String is the mode as the fields of a request.
func (m Mode) String() string {
	return fmt.Sprintf("strategy=%s, group=%t, fence=%t", m.Strategy, m.Group, m.Fence)
}

// SetDefault sets the mode of purchases of which neither the request nor the item says
// more. It is called before anything is sold. ErrUnknownStrategy, ErrStrategyRejected,
// ErrNotFenceable: nothing could be sold in this mode.
func (c *Catalogue) SetDefault(m Mode) error {
	c.standard = m
	_, err := c.In(m)
	return err
}

// SetMaxQuantity sets the most units of one purchase of which the item says nothing, 1 to
// stock.MaxQuantity. It is called before anything is sold.
func (c *Catalogue) SetMaxQuantity(units int64) { c.maxQuantity = units }

// MaxQuantity is the most units of one purchase of an item. The item's own maximum holds,
// also where it is above that of the configuration.
func (c *Catalogue) MaxQuantity(goodsID int64) int64 {
	return *cmp.Or(c.Choice(goodsID).MaxQuantity, &c.maxQuantity)
}

// Default is what SetDefault has set.
func (c *Catalogue) Default() Mode { return c.standard }

// Choice is what is chosen for an item, as far as this replica knows: within about a
// second it has what was changed through another one.
func (c *Catalogue) Choice(goodsID int64) stock.Choice {
	return c.switches.last.Load().choices[goodsID]
}

// Mode is how a purchase of an item is served that asks for a choice, and own how one is
// that asks for nothing. Both are of one moment.
func (c *Catalogue) Mode(goodsID int64, asked stock.Choice) (mode, own Mode) {
	choice := c.Choice(goodsID)
	return c.mode(asked, choice), c.mode(stock.Choice{}, choice)
}

// mode takes what is asked for, else what is chosen, else the default. A fence that is
// not asked for is meant for the strategies that can have one.
func (c *Catalogue) mode(asked, chosen stock.Choice) Mode {
	standard := c.standard
	m := Mode{
		Strategy: cmp.Or(asked.Strategy, chosen.Strategy, standard.Strategy),
		Group:    *cmp.Or(asked.Group, chosen.Group, &standard.Group),
		Fence:    *cmp.Or(asked.Fence, chosen.Fence, &standard.Fence),
	}
	if o, ok := c.byName[m.Strategy]; ok && asked.Fence == nil {
		m.Fence = m.Fence && o.fenceable()
	}
	return m
}

// In finds what serves purchases in a mode. ErrUnknownStrategy, ErrStrategyRejected and
// ErrNotFenceable: why nothing does.
func (c *Catalogue) In(m Mode) (*Seller, error) {
	o, ok := c.byName[m.Strategy]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownStrategy, m.Strategy)
	}
	if why := c.rejection(o, m.Fence); why != "" {
		return nil, fmt.Errorf("%w: %s, because %s", ErrStrategyRejected, m.Strategy, why)
	}
	if o.unconfigured != nil {
		return nil, o.unconfigured
	}
	seller, ok := o.sellers[m]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no lock whose token the store could check", ErrNotFenceable, m.Strategy)
	}
	return seller, nil
}

// rejection is why the admin does not want a strategy used: by the configuration of this
// replica, or by a switch. It is empty where the strategy is not rejected.
func (c *Catalogue) rejection(o *offer, fenced bool) string {
	if o.rejected != "" {
		return o.rejected
	}
	if !fenced && o.rejectedUnfenced != "" {
		return o.rejectedUnfenced
	}
	if reason, off := c.SwitchedOff(o.entry.Name); off {
		return "it is switched off: " + reason
	}
	return ""
}

// Names lists the strategies that the admin lets requests name without a fence of their
// own, in the registry's order, also those whose backend is not configured.
func (c *Catalogue) Names() []string {
	names := make([]string, 0, len(c.offers))
	for _, o := range c.offers {
		if c.rejection(o, c.mode(stock.Choice{Strategy: o.entry.Name}, stock.Choice{}).Fence) == "" {
			names = append(names, o.entry.Name)
		}
	}
	return names
}

// check reports whether purchases could be served as a choice says.
func (c *Catalogue) check(choice stock.Choice) error {
	_, err := c.In(c.mode(choice, stock.Choice{}))
	return err
}

// Unserved counts the items that this replica cannot sell as they are chosen to be sold,
// by the reason.
func (c *Catalogue) Unserved() map[string]int {
	unserved := make(map[string]int)
	for _, choice := range c.switches.last.Load().choices {
		if err := c.check(choice); err != nil {
			unserved[err.Error()]++
		}
	}
	return unserved
}

// ItemsThrough is how many items have chosen a strategy.
func (c *Catalogue) ItemsThrough(name string) (count int) {
	for _, choice := range c.switches.last.Load().choices {
		if choice.Strategy == name {
			count++
		}
	}
	return count
}

// ErrStrategyRejected reports that the admin has disabled this strategy.
var ErrStrategyRejected = errors.New("strategy is rejected here")

// UnconfiguredError is an ErrStrategyRejected: the strategy needs a backend that this
// replica does not have, or a later version of it.
type UnconfiguredError struct {
	Strategy, Backend string
	// Err is a backend.ErrNotConfigured, or names both versions.
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
	if lacks, ok := errors.AsType[*stock.BackendError](clients.HasAll(entry.Needs)); ok {
		return &UnconfiguredError{Strategy: entry.Name, Backend: lacks.Backend, Err: lacks.Err}
	}
	return nil
}

// redisVersion is the version of Redis where an entry has a minimum for it. It is empty where Redis does not answer.
func (c *Catalogue) redisVersion(ctx context.Context, entries []strategy.Entry) string {
	onRedis := slices.ContainsFunc(entries, func(e strategy.Entry) bool { return e.MinRedis != "" })
	if !onRedis || c.clients.Has(backend.Redis) != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	version, _ := backend.RedisVersion(ctx, c.clients.Redis)
	return version
}

// tooOld says that a version of Redis is too old for a strategy, or returns nil.
func tooOld(entry strategy.Entry, redis string) error {
	if redis == "" || backend.IsSince(redis, entry.MinRedis) {
		return nil
	}
	return &UnconfiguredError{
		Strategy: entry.Name, Backend: string(backend.Redis),
		Err: fmt.Errorf("version %s, and %s or later is required", redis, entry.MinRedis),
	}
}

// Policy is which strategies the admin has disabled.
type Policy struct {
	// OnlySafe rejects what is not Guarantees.Safe: some strategies only without a fence.
	OnlySafe bool
	// Deny rejects by name.
	Deny []string
}

// Enforce has the catalogue reject strategies. It is called before anything is
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
		switch guarantees := o.entry.Guarantees; {
		case !p.OnlySafe || guarantees.Safe(false):
		case guarantees.Safe(true):
			o.rejectedUnfenced = "strategies.only_safe is set, and without fence=true a holder that has lost its lock unnoticed overwrites sales"
		default:
			o.rejected = "strategies.only_safe is set, and it does not guarantee exclusion across replicas"
		}
	}
	return nil
}

// switchesEvery is the pause between two looks at what was changed through another
// replica. A look that takes half a second itself still ends within a second.
const switchesEvery = 500 * time.Millisecond

// endsSoon is how long before its end the purchases of an item begin to look at the time of the database. A replica that
// could not look for as long may sell for as long as it cannot, or until another one has withheld the units.
const endsSoon = 5 * time.Second

// switches are what this replica has seen at its last look. The request path reads one pointer.
type switches struct {
	store *repo.Store
	turn  chan struct{} // holds one element during a look: one that began earlier must not be kept after a later one
	last  atomic.Pointer[sight]
}

// sight is the strategies that the admin has switched off on all replicas, with the reasons, the choices of items, the
// items that have units in Redis, and those whose sale ends soon. Before the first look there is nothing of it.
type sight struct {
	off     map[string]string
	choices map[int64]stock.Choice
	inRedis map[int64]bool
	ending  []int64
}

func newSwitches(store *repo.Store) *switches {
	s := &switches{store: store, turn: make(chan struct{}, 1)}
	s.last.Store(new(sight))
	return s
}

// hasUnitsInRedis reports whether an item had units in Redis at the last look.
func (s *switches) hasUnitsInRedis(goodsID int64) bool { return s.last.Load().inRedis[goodsID] }

// ends reports whether the sale of an item ended, or ends before the next look.
func (s *switches) ends(goodsID int64) bool { return slices.Contains(s.last.Load().ending, goodsID) }

// look reads all of it. Where that fails, the cached state stays.
func (s *switches) look(ctx context.Context) (changed bool, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("read switches: %w", context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	now := new(sight)
	if now.off, err = s.store.SwitchedOff(ctx); err != nil {
		return false, err
	}
	if now.choices, err = s.store.Choices(ctx); err != nil {
		return false, err
	}
	if now.inRedis, err = s.store.ItemsIn(ctx, redisstock.Allocation); err != nil {
		return false, err
	}
	if now.ending, err = s.store.SalesDue(ctx, endsSoon); err != nil {
		return false, err
	}
	before := s.last.Swap(now)
	return before.off != nil && !maps.Equal(before.off, now.off), nil
}

// LookAtSwitches reads what is switched off on all replicas, and the choices of items.
// It is called before anything is sold.
func (c *Catalogue) LookAtSwitches(ctx context.Context) error {
	_, err := c.switches.look(ctx)
	return err
}

// SwitchedOff reports whether a strategy is switched off on all replicas, as far as this
// one knows, and why.
func (c *Catalogue) SwitchedOff(name string) (reason string, off bool) {
	reason, off = c.switches.last.Load().off[name]
	return reason, off
}

// lookWithin bounds a look, so that one without an answer does not prevent the next.
const lookWithin = 2 * time.Second

// KeepSwitches applies within about a second what the admin switches through another
// replica, until ctx ends. While the switches cannot be read, the cached state stays, and
// the log says so once.
func (c *Catalogue) KeepSwitches(ctx context.Context) {
	looks := background.Rounds{
		Doing: "look at switches", Failed: "cannot refresh the switches; using the cached state", Every: switchesEvery, Within: lookWithin, Once: true, Log: c.log,
	}
	looks.Repeat(ctx, func(ctx context.Context) error {
		changed, err := c.switches.look(ctx)
		if changed {
			c.log.WarnContext(ctx, "strategies were switched", "off", c.switches.known())
		}
		return err
	})
}

// known is what is switched off, for the log.
func (s *switches) known() slog.Value {
	known := s.last.Load().off
	off := make([]slog.Attr, 0, len(known))
	for name, reason := range known {
		off = append(off, slog.String(name, reason))
	}
	return slog.GroupValue(off...)
}

// SwitchOff switches a strategy off on all replicas: on this one at once, on the
// others within about a second. The reason, 1 to 200 characters, is in the answers to
// requests for the strategy. Purchases in flight end as they would have.
// ErrUnknownStrategy: nothing was switched. stock.ErrUnknownOutcome may also mean
// that it was, and that this replica follows as late as the others.
func (c *Catalogue) SwitchOff(ctx context.Context, name, reason string) error {
	if _, ok := c.byName[name]; !ok {
		return fmt.Errorf("%w: %q", ErrUnknownStrategy, name)
	}
	return c.switchBy(ctx, c.switches.store.SwitchOff(ctx, name, reason))
}

// SwitchOn reverts SwitchOff. ErrStrategyRejected: the configuration of this
// replica rejects the strategy, which no switch changes. ErrUnknownStrategy:
// there is no such strategy. Nothing was switched then. stock.ErrUnknownOutcome is as
// with SwitchOff.
func (c *Catalogue) SwitchOn(ctx context.Context, name string) error {
	o, ok := c.byName[name]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownStrategy, name)
	}
	if o.rejected != "" {
		return fmt.Errorf("%w: %s, because %s, which no switch changes", ErrStrategyRejected, name, o.rejected)
	}
	return c.switchBy(ctx, c.switches.store.SwitchOn(ctx, name))
}

// switchBy reads the switches after a write, also where its outcome is unknown.
func (c *Catalogue) switchBy(ctx context.Context, failure error) error {
	err := c.LookAtSwitches(ctx)
	if failure == nil && err != nil {
		return fmt.Errorf("%w: it was switched: %w", stock.ErrUnknownOutcome, err)
	}
	return errors.Join(failure, err)
}
