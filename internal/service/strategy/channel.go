package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

func channel() Entry {
	return Entry{
		Name:       "channel",
		Family:     Process,
		Summary:    "one goroutine owns the item and serves a channel; another replica has another owner",
		Guarantees: Guarantees{ExclusiveInProcess: true, SurvivesCrash: true},
		Damage:     LostUpdates,
		New: func(d Deps) Strategy {
			return &owned{store: d.site(), wait: d.LockWait, observer: d.Observer(), log: d.Log, owners: make(map[int64]*owner)}
		},
	}
}

// owned passes every batch of an item to the one goroutine that may write it.
type owned struct {
	store    site
	wait     time.Duration
	observer Observer
	log      *slog.Logger

	mu     sync.Mutex
	owners map[int64]*owner
}

// owner is the channel of one item. It lives as long as there is a batch for it.
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
		s.observer.Waited(waited)
		err = background.Guard(ctx, s.log, "sell "+lockName(goodsID), func() (err error) {
			outcomes, err = readCheckWrite(ctx, s.store, s.store.GoodsSettled, goodsID, batch, noToken, setStock)
			return err
		})
		if errors.Is(err, background.ErrPanicked) { // it may have come after the commit
			err = fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
		}
		held := time.Since(taken)
		s.observer.Held(held, false)
		for i := range outcomes {
			outcomes[i].Wait, outcomes[i].Hold = waited, held
		}
	}
	if err := s.pass(ctx, o, job, longestWait(s.wait, batch)); err != nil {
		s.observer.Waited(time.Since(asked))
		return nil, err
	}
	<-done // soon, even when ctx ends: the job runs under ctx
	return outcomes, err
}

// LockWait is the wait limit: the owner is the lock.
func (s *owned) LockWait() time.Duration { return s.wait }

// pass gives the job to the owner, no later than the wait limit.
func (*owned) pass(ctx context.Context, o *owner, job func(), wait time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case o.jobs <- job:
		return nil
	case <-limited.Done():
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the owner of the item: %w", context.Cause(ctx))
		}
		return fmt.Errorf("%w: the owner of the item was not free within %s", stock.ErrBusy, wait)
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
