package redisstock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// markerTTL is how long the other replicas leave a rebuild to an owner that renews
	// its marker no more, and renewEvery the time between two renewals.
	markerTTL, renewEvery = 2 * time.Second, markerTTL / 4
	// firstLook is the first pause between two looks at another replica's rebuild, and
	// longestLook the longest.
	firstLook, longestLook = 3 * time.Millisecond, 50 * time.Millisecond
	// epochTries bounds how often a later epoch may be there already.
	epochTries = 5
	// streamPage bounds the entries of the stream that one step counts.
	streamPage = 1000
	// progressEvery is the time between two reports of one rebuild.
	progressEvery = 2 * time.Second
)

// wanted is the counter of an item. Where it takes another epoch, that is an open one for
// a purchase that needs the units of the row. Background jobs open no allocation.
type wanted struct {
	goodsID int64
	open    bool
}

// rebuild is a counter that this replica has rebuilt, or waits for.
type rebuild struct {
	above int64
	began time.Time
	done  chan struct{}
	err   error // set before done is closed
}

// counterAbove returns when Redis has a counter of an epoch above one. The rebuild goes
// on in the background when ctx ends: stock.ErrBusy, where that was its deadline.
func (s *Stock) counterAbove(ctx context.Context, want wanted, above int64) error {
	for {
		r := s.rebuildAbove(want, above)
		select {
		case <-r.done:
			if r.err != nil || r.above >= above {
				return r.err
			}
		case <-ctx.Done():
			return errBusy(ctx, want.goodsID)
		}
	}
}

// counterSoon is counterAbove for background jobs: stock.ErrBusy where the rebuild began
// longer ago than patience.
func (s *Stock) counterSoon(ctx context.Context, goodsID, above int64, patience time.Duration) error {
	want := wanted{goodsID: goodsID}
	r := s.rebuildAbove(want, above)
	ctx, cancel := context.WithDeadline(ctx, r.began.Add(patience))
	defer cancel()
	return s.counterAbove(ctx, want, above)
}

// rebuildAbove is the rebuild of a counter in progress, or a new one. All requests of
// this replica share one.
func (s *Stock) rebuildAbove(want wanted, above int64) *rebuild {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.rebuilds[want]; ok {
		return r
	}
	r := &rebuild{above: above, began: time.Now(), done: make(chan struct{})}
	if s.closed {
		r.err = fmt.Errorf("%w: the replica stops", stock.ErrBusy)
		close(r.done)
		return r
	}
	s.rebuilds[want] = r
	s.working.Go(func() {
		b := &rebuilder{Stock: s, part: s.part(want.goodsID), wanted: want, above: above, owner: s.options.Replica + " " + rand.Text()}
		r.err = s.options.Changes.Run(want.goodsID, stock.Change{Kind: stock.ChangeOfCounter}, func() error {
			return background.Guard(s.lifetime, s.options.Log, "rebuild a counter", func() error { return b.run(s.lifetime) })
		})
		s.mu.Lock()
		delete(s.rebuilds, want)
		s.mu.Unlock()
		close(r.done)
	})
	return r
}

// rebuilder rebuilds one counter. That only one replica does so at a time saves work:
// several do no harm, because each step is one script that checks where they stand.
type rebuilder struct {
	*Stock
	wanted
	part  *partition
	above int64
	owner string

	epochs int // begun so far
}

// run takes steps until the counter is there. Each has a deadline of its own.
func (b *rebuilder) run(ctx context.Context) error {
	defer b.release(ctx)
	look := firstLook
	for b.epochs < epochTries {
		state, err := b.survey(ctx)
		if err != nil {
			return err
		}
		switch state.next {
		case there:
			return nil
		case taken:
			if err := pause.For(ctx, look); err != nil {
				return err
			}
			look = min(2*look, longestLook)
			continue
		}
		if err := b.renewed(ctx, func() error { return b.goOn(ctx, state) }); err != nil {
			return notUnknown(err)
		}
	}
	return fmt.Errorf("%w: other replicas rebuild the counter of item %d all the time", stock.ErrBusy, b.goodsID)
}

// What the script answers to a step of a rebuild; see lua/3_rebuild.lua.
const (
	there = "THERE"
	taken = "TAKEN"
	next  = "NEXT"
	more  = "MORE"
)

// survey is what is to be done for the counter.
type survey struct {
	next   string
	epoch  int64
	user   string // the last one that was staged
	loaded bool   // all users are staged
}

func (b *rebuilder) survey(ctx context.Context) (survey, error) {
	keys := []string{b.part.counter(b.goodsID), b.part.marker(b.goodsID)}
	answer, err := b.ask(ctx, "survey", keys, b.owner, markerTTL.Milliseconds(), b.above)
	if err != nil {
		return survey{}, failed("see what a counter needs", err)
	}
	row, ok := answer.([]any)
	if !ok || len(row) != 4 {
		return survey{}, failed("see what a counter needs", fmt.Errorf("script answered %v", answer))
	}
	state := survey{next: fmt.Sprint(row[0]), user: fmt.Sprint(row[2]), loaded: fmt.Sprint(row[3]) == "1"}
	if state.next != taken {
		_, err = fmt.Sscan(fmt.Sprint(row[1]), &state.epoch)
	}
	return state, failed("see what a counter needs", err)
}

// renewed renews the marker, and reports the progress, until the steps end, however long each of them takes. A step
// notices where a renewal fails.
func (b *rebuilder) renewed(ctx context.Context, steps func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer cancel()
	repeat := func(every time.Duration, do func() error) {
		jobs.Go(func() {
			for pause.For(ctx, every) == nil {
				_ = background.Guard(ctx, b.options.Log, "attend a rebuild", do)
			}
		})
	}
	repeat(renewEvery, func() error {
		_, err := b.ask(ctx, "renew", []string{b.part.marker(b.goodsID)}, b.owner, markerTTL.Milliseconds())
		return err
	})
	repeat(progressEvery, func() error {
		state, err := b.rebuilding(ctx, b.goodsID)
		if err == nil && state != nil {
			b.options.Log.InfoContext(ctx, "counter rebuild", "goods", b.goodsID, "epoch", state.Epoch, "users", state.Users)
		}
		return err
	})
	return steps()
}

// goOn takes the steps of one epoch until the counter is installed, or another epoch
// or replica comes between.
func (b *rebuilder) goOn(ctx context.Context, state survey) error {
	place, state, err := b.epoch(ctx, state)
	if err != nil || state.next != next {
		return err
	}
	if err := b.settleWritten(ctx, b.goodsID); err != nil {
		return err
	}
	if !state.loaded {
		if loaded, err := b.stageUsers(ctx, place, state.user); err != nil || !loaded {
			return err
		}
	}
	return b.countStream(ctx, place)
}

// epoch is the allocation in the epoch to go on with: the one that is being rebuilt, if
// it is SQL's present one, or a new one.
func (b *rebuilder) epoch(ctx context.Context, state survey) (repo.Allocation, survey, error) {
	bounded, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	if state.next == next && state.epoch > b.above {
		place, err := b.store.Allocation(bounded, b.goodsID, Allocation)
		if err != nil || place.Epoch == state.epoch {
			return place, state, err // nothing of this epoch can have been written yet
		}
	}
	// From the commit on nothing of an earlier epoch is written: what the stream has of
	// it when the rebuild ends is all that is accepted beside the units.
	b.epochs++
	begin := b.store.Refill
	if b.open {
		begin = b.store.Fill
	}
	place, err := begin(bounded, b.goodsID, Allocation, max(b.above, state.epoch))
	if err != nil {
		return place, state, fmt.Errorf("fill %s: %w", Allocation, err)
	}
	keys := []string{b.part.counter(b.goodsID), b.part.staged(b.goodsID)}
	staged := place.PerUser > 0 && !place.Closed // a closed counter compares no user with the limit
	answer, err := b.ask(ctx, "begin", keys, place.Epoch, staged)
	state = survey{epoch: place.Epoch, loaded: !staged}
	if fmt.Sprint(answer) == fmt.Sprint(place.Epoch) {
		state.next = next // otherwise another replica has begun a later one
	}
	return place, state, failed("begin a rebuild", err)
}

// stageUsers stages what each user has of an item with a limit, a page at a time,
// after the last one that has been staged. It is read after the epoch has begun, like
// the units of the allocation: what is in the ledger by then is in it, and what is not
// is on the stream.
func (b *rebuilder) stageUsers(ctx context.Context, place repo.Allocation, after string) (loaded bool, err error) {
	keys := []string{b.part.counter(b.goodsID), b.part.staged(b.goodsID), b.part.marker(b.goodsID)}
	for {
		page, err := b.usersAfter(ctx, after)
		if err != nil {
			return false, err
		}
		last, end := after, len(page) < repo.UsersAtOnce
		if len(page) > 0 {
			last = page[len(page)-1].User
		}
		args := []any{b.owner, markerTTL.Milliseconds(), place.Epoch, after, last, end}
		for _, u := range page {
			args = append(append(args, u.User, u.Units), mark(u)...)
		}
		answer, err := b.ask(ctx, "stage", keys, args...)
		if err != nil || answer != more {
			return false, failed("stage users", err)
		}
		if end {
			return true, nil
		}
		after = last
	}
}

func (b *rebuilder) usersAfter(ctx context.Context, after string) ([]repo.UserUnits, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	return b.store.UsersAfter(ctx, b.goodsID, after)
}

// countStream counts what is accepted and pending, a page of the stream at a time, until
// its end is reached and the counter rebuilt.
func (b *rebuilder) countStream(ctx context.Context, place repo.Allocation) error {
	p := b.part
	keys := []string{p.counter(b.goodsID), p.users(b.goodsID), p.orders(), p.staged(b.goodsID), p.marker(b.goodsID)}
	for {
		answer, err := b.ask(ctx, "page", keys, b.owner, markerTTL.Milliseconds(), place.Epoch,
			b.goodsID, place.Units, place.PerUser, b.soldOut.channel, streamPage, place.Closed, place.Added)
		if err != nil {
			return failed("count the stream", err)
		}
		if answer == there {
			b.options.Log.DebugContext(ctx, "counter rebuilt", "goods", b.goodsID, "units", place.Units, "epoch", place.Epoch)
		}
		if answer != more {
			return nil // it is there, or must be surveyed again
		}
	}
}

// release leaves the counter to others. The marker expires where that fails, and where
// the replica stops: it has no time for another answer.
func (b *rebuilder) release(ctx context.Context) {
	_, _ = b.ask(ctx, "release", []string{b.part.marker(b.goodsID)}, b.owner)
}

// LimitChanged rebuilds the counter where the item is sold from Redis: it has the
// limit, and what each buyer has. Doing it again goes on with the same rebuild. A closed
// counter is rebuilt when its orders are offered again.
func (s *Stock) LimitChanged(ctx context.Context, goodsID int64) error {
	place, err := s.store.Allocation(ctx, goodsID, Allocation)
	if err != nil || place.Epoch == 0 || place.Closed {
		return err
	}
	return s.counterAbove(ctx, wanted{goodsID: goodsID}, place.Epoch-1)
}

// Restocked adds units to the counter that were added to the row of an item, and those of them that these buyers have
// given back to what they may have, where its allocation is open. Doing it again adds nothing twice. Where the
// allocation is closed, the units stay in the row, and whether Redis answers does not matter.
func (s *Stock) Restocked(ctx context.Context, goodsID, _ int64, buyers ...string) error {
	_, err := s.added(ctx, goodsID, buyers...)
	return err
}

// notUnknown keeps the unknown outcome of Fill from being taken for that of a
// purchase: nothing is accepted before Fill has been repeated.
func notUnknown(err error) error {
	if failure, ok := errors.AsType[*stock.BackendError](err); ok && errors.Is(err, stock.ErrUnknownOutcome) {
		return failure
	}
	return err
}
