package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

func channel() Entry {
	return Entry{
		Name:    "channel",
		Family:  Process,
		Summary: "one goroutine owns the goods and serves a channel; another replica has an owner of its own",
		Claims:  Claims{ExclusiveInProcess: true, SurvivesCrash: true},
		Damage:  LostUpdates,
		New: func(d Deps) Strategy {
			return &owned{store: d.site(), wait: d.LockWait, heard: d.Observer(), log: d.Log, owners: make(map[int64]*owner)}
		},
	}
}

// owned hands every batch of a goods to the one goroutine that may touch it.
type owned struct {
	store site
	wait  time.Duration
	heard Observer
	log   *slog.Logger

	mu     sync.Mutex
	owners map[int64]*owner
}

// owner is the channel of one goods. It lives for as long as somebody has a
// batch for it.
type owner struct {
	jobs  chan func()
	users int // guarded by owned.mu
}

func (s *owned) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	o := s.enter(goodsID)
	defer s.leave(goodsID, o)

	asked := time.Now()
	done := make(chan struct{})
	job := func() {
		defer close(done)
		taken := time.Now()
		waited := taken.Sub(asked)
		s.heard.Waited(waited)
		outcomes, err = orUnknown(ctx, s.log, goodsID, func() ([]stock.Outcome, error) {
			return checkThenWrite(ctx, s.store, s.store.GoodsSettled, goodsID, batch, noToken, setStock)
		})
		held := time.Since(taken)
		s.heard.Held(held, false)
		for i := range outcomes {
			outcomes[i].Wait, outcomes[i].Hold = waited, held
		}
	}
	if err := s.hand(ctx, o, job); err != nil {
		s.heard.Waited(time.Since(asked))
		return nil, err
	}
	<-done // soon, even when ctx ends: the job runs under ctx
	return outcomes, err
}

// hand gives the job to the owner, no later than the wait limit.
func (s *owned) hand(ctx context.Context, o *owner, job func()) error {
	waiting, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	select {
	case o.jobs <- job:
		return nil
	case <-waiting.Done():
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			return fmt.Errorf("wait for the owner of the goods: %w", context.Cause(ctx))
		}
		return fmt.Errorf("%w: the owner of the goods was not free within %s", stock.ErrBusy, s.wait)
	}
}

func (s *owned) enter(goodsID int64) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[goodsID]
	if o == nil {
		o = &owner{jobs: make(chan func())}
		s.owners[goodsID] = o
		go o.serve()
	}
	o.users++
	return o
}

func (s *owned) leave(goodsID int64, o *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users--; o.users == 0 {
		delete(s.owners, goodsID)
		close(o.jobs)
	}
}

func (o *owner) serve() {
	for job := range o.jobs {
		job()
	}
}
