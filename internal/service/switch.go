package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/stock"
)

// switchesEvery is the pause between two looks at what was changed through another
// replica. A look that takes half a second itself still ends within a second.
const switchesEvery = 500 * time.Millisecond

// switches are the strategies that the admin has switched off on all replicas, the choices
// of items, and the items that have units in Redis, as far as this replica knows.
// The request path reads one pointer of each.
type switches struct {
	store   *repo.Store
	turn    chan struct{} // holds one element during a look: one that began earlier must not be kept after a later one
	off     atomic.Pointer[map[string]string]
	choices atomic.Pointer[map[int64]stock.Choice]
	inRedis atomic.Pointer[map[int64]bool]
}

func newSwitches(store *repo.Store) *switches {
	return &switches{store: store, turn: make(chan struct{}, 1)}
}

// reason is why a strategy is switched off.
func (s *switches) reason(name string) (reason string, off bool) {
	known := s.off.Load()
	if known == nil {
		return "", false
	}
	reason, off = (*known)[name]
	return reason, off
}

// choice is that of an item; without one it is the zero Choice.
func (s *switches) choice(goodsID int64) stock.Choice {
	if known := s.choices.Load(); known != nil {
		return (*known)[goodsID]
	}
	return stock.Choice{}
}

// hasUnitsInRedis reports whether orders of an item may be pending.
func (s *switches) hasUnitsInRedis(goodsID int64) bool {
	known := s.inRedis.Load()
	return known != nil && (*known)[goodsID]
}

// look reads all of it. Where that fails, the cached state stays.
func (s *switches) look(ctx context.Context) (changed bool, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("read switches: %w", context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	off, err := s.store.SwitchedOff(ctx)
	if err != nil {
		return false, err
	}
	choices, err := s.store.Choices(ctx)
	if err != nil {
		return false, err
	}
	inRedis, err := s.store.ItemsIn(ctx, hot.Allocation)
	if err != nil {
		return false, err
	}
	s.choices.Store(&choices)
	s.inRedis.Store(&inRedis)
	before := s.off.Swap(&off)
	return before != nil && !maps.Equal(*before, off), nil
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
	return c.switches.reason(name)
}

// KeepSwitches applies within about a second what the admin switches through another
// replica, until ctx ends. While the switches cannot be read, the cached state stays, and
// the log says so once.
func (c *Catalogue) KeepSwitches(ctx context.Context) {
	tick := time.NewTicker(switchesEvery)
	defer tick.Stop()
	var failing bool
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		changed, err := c.lookAgain(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			c.log.WarnContext(ctx, "cannot refresh the switches; using the cached state", "error", err)
		case changed:
			c.log.WarnContext(ctx, "strategies were switched", "off", c.switches.known())
		}
		failing = err != nil
	}
}

// lookWithin bounds a look, so that one without an answer does not prevent the next.
const lookWithin = 2 * time.Second

func (c *Catalogue) lookAgain(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	err = background.Guard(ctx, c.log, "look at switches", func() (err error) {
		changed, err = c.switches.look(ctx)
		return err
	})
	return changed, err
}

// known is what is switched off, for the log.
func (s *switches) known() slog.Value {
	known := *s.off.Load()
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
func (c *Catalogue) switchBy(ctx context.Context, written error) error {
	err := c.LookAtSwitches(ctx)
	if written == nil && err != nil {
		return fmt.Errorf("%w: it was switched: %w", stock.ErrUnknownOutcome, err)
	}
	return errors.Join(written, err)
}
