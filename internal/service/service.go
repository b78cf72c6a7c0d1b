// Package service is what stockd does, whatever protocol asks for it: it sells
// through a strategy, keeps the promise of idempotency around it, and looks
// after the goods.
package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Service sells through one strategy. What every strategy owes its buyers is
// done here once: a time limit, and the first answer to a key that was sold
// under before.
type Service struct {
	entry    strategy.Entry
	strategy strategy.Strategy
	bare     strategy.Strategy // the strategy without modifiers
	ledger   strategy.Ledger   // where keys are looked up
	items    *items
	timeout  time.Duration
	recalls  *recaller
	heard    strategy.Observer
	// refused is why the configuration refuses it, and refusedUnfenced why it does so
	// only without a fence; empty: it does not.
	refused, refusedUnfenced string
	unconfigured             error // an *UnconfiguredError, or nil
	// The same service with a modifier; both may be itself. fenced is nil where
	// there is no lock.
	fenced, grouped *Service
}

// Fenced is the same service with its writes fenced: a holder that lost its
// lock and does not know it cannot write. ErrNotFenceable: there is no lock.
func (s *Service) Fenced() (*Service, error) {
	if s.fenced == nil {
		return nil, fmt.Errorf("%w: %s has no lock whose token the store could check", ErrNotFenceable, s.entry.Name)
	}
	return s.fenced, nil
}

// Grouped is the same service, which makes one batch of the purchases that wait
// for the same goods.
func (s *Service) Grouped() *Service { return s.grouped }

// Deduct takes stock for one purchase. The ledger was searched for its key before, by
// Catalogue.Replay.
//
// The outcome's order carries the request id also where Deduct fails: after
// stock.ErrUnknownOutcome, sending it again finds out. stock.ErrKeyReused: the
// request id was used for other content. stock.ErrUnknownGoods: there is no such item,
// and nothing was locked or written. The strategy's errors pass through.
func (s *Service) Deduct(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	ctx, step := telemetry.StartSpan(ctx, "deduct")
	if step.IsRecording() {
		step.SetAttributes(attribute.String("stockd.strategy", s.entry.Name))
	}
	defer step.End()
	begun := time.Now()
	outcome, err := s.inTime(ctx, goodsID, p)
	s.heard.Deducted(outcome, err, time.Since(begun))
	return outcome, err
}

func (s *Service) inTime(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if p.RequestID == "" {
		key, err := newKey("")
		if err != nil {
			return stock.Outcome{}, err
		}
		p.RequestID = stock.BuyerKey(key, p.UserID)
	}
	outcome, err := s.deductKnown(ctx, goodsID, p)
	if err == nil && p.Durable == stock.InSQL {
		outcome, err = s.written(ctx, outcome)
	}
	outcome.Order.RequestID = p.RequestID
	return outcome, err
}

// deductKnown asks no strategy for an item that does not exist: a client may invent any
// number of those, and locks, queues and copies in Redis would be made for each of them.
func (s *Service) deductKnown(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if err := s.items.require(ctx, goodsID); err != nil {
		return stock.Outcome{}, err
	}
	outcome, err := s.deduct(ctx, goodsID, p)
	if errors.Is(err, stock.ErrUnknownGoods) {
		s.items.forget(goodsID)
	}
	return outcome, err
}

// replays bounds how often a purchase is tried whose request id was in the
// ledger when it was written and gone when it was looked for: each time, a
// copy of it must have been rolled back in between.
const replays = 10

func (s *Service) deduct(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	for range replays {
		outcome, err := s.offer(ctx, goodsID, p)
		duplicate := errors.Is(err, stock.ErrDuplicateRequest)
		if !duplicate && (err != nil || outcome.Refused == nil || !p.Keyed) {
			return outcome, err
		}
		// A copy of this purchase has been sold since, or may have taken the
		// last unit: then its answer is ours.
		first, err := replay(ctx, s.ledger, goodsID, p)
		if err != nil || first.Replayed {
			return first, err
		}
		if !duplicate {
			return outcome, nil
		}
	}
	return stock.Outcome{}, fmt.Errorf("%w: copies of request %s keep being rolled back", stock.ErrBusy, stock.KeyOf(p.RequestID))
}

func (s *Service) once(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	outcomes, err := s.strategy.Deduct(ctx, goodsID, []stock.Purchase{p})
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("deduct by %s: %w", s.entry.Name, err)
	}
	return outcomes[0], nil
}

// written waits until the ledger has what was only promised.
func (s *Service) written(ctx context.Context, o stock.Outcome) (stock.Outcome, error) {
	promiser, is := s.promiser()
	if !is || o.Durable != stock.InRedis {
		return o, nil
	}
	return written(ctx, promiser, o)
}

func written(ctx context.Context, promiser strategy.Promiser, o stock.Outcome) (stock.Outcome, error) {
	if err := promiser.Await(ctx, o.Order); err != nil {
		return stock.Outcome{}, fmt.Errorf("wait for the ledger: %w", err)
	}
	o.Durable = stock.InSQL
	return o, nil
}

func (s *Service) promiser() (strategy.Promiser, bool) {
	promiser, is := s.bare.(strategy.Promiser)
	return promiser, is
}

// newKey is the caller's key, or a new one where there is none.
func newKey(key string) (string, error) {
	if key != "" {
		return key, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make request id: %w", err)
	}
	return id.String(), nil
}
