package repo

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/stockd/stockd/internal/stock"
)

// shares keeps what is done with one item from using all connections of a pool: what waits
// for a row lock holds its own meanwhile. Purchases, what gives units back, restocks and new limits
// wait for a connection in one queue an item, and the queues are served in turns.
// An item may use at most shareOfFree times as many connections as are free.
type shares struct {
	most int // connections

	mu    sync.Mutex
	taken int
	users map[int64]*share // that use or wait for connections
	turns []*share         // those that wait, and some that no longer do
}

// shareOfFree lets one item alone use three quarters of all connections.
const shareOfFree = 3

type share struct {
	taken   int
	waiting list.List // of chan struct{}, each closed when its purchase has a connection; the first come first
	inTurns bool
}

func newShares(connections int) *shares {
	return &shares{most: max(connections, 1), users: make(map[int64]*share)}
}

// Turn waits until what is done with an item may use a connection. End the turn. The error is
// that of a transaction that has not begun in time.
func (s *Store) Turn(ctx context.Context, goodsID int64) (end func(), err error) {
	if err := s.shares.take(ctx, goodsID); err != nil {
		return nil, s.fault(ctx, "begin", err)
	}
	return func() { s.shares.free(goodsID) }, nil
}

// SeveralItems is the item of a turn for what is done with several.
const SeveralItems = 0

// InItem is InTx for one item in its turn: transactions that wait for a row of the item leave connections to other items.
func (s *Store) InItem(ctx context.Context, goodsID int64, do func(*Tx) error) error {
	end, err := s.Turn(ctx, goodsID)
	if err != nil {
		return err
	}
	defer end()
	return s.InTx(ctx, do)
}

// inFreeItem is InItem that waits for no turn. stock.ErrBusy: others have all of the item's.
func (s *Store) inFreeItem(ctx context.Context, goodsID int64, do func(*Tx) error) error {
	if !s.shares.takeFree(goodsID) {
		return fmt.Errorf("%w: others have all turns of item %d", stock.ErrBusy, goodsID)
	}
	defer s.shares.free(goodsID)
	return s.InTx(ctx, do)
}

// takeFree takes a turn that is free, and reports whether one was.
func (s *shares) takeFree(goodsID int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of(goodsID)
	defer s.forget(goodsID, of)
	return s.takeNow(of)
}

// of is the share of an item, which is forgotten again when no one uses it or waits for it.
func (s *shares) of(goodsID int64) *share {
	of, ok := s.users[goodsID]
	if !ok {
		of = &share{}
		s.users[goodsID] = of
	}
	return of
}

func (s *shares) takeNow(of *share) bool {
	free := of.waiting.Len() == 0 && s.mayUse(of)
	if free {
		s.taken++
		of.taken++
	}
	return free
}

func (s *shares) take(ctx context.Context, goodsID int64) error {
	s.mu.Lock()
	of := s.of(goodsID)
	if s.takeNow(of) {
		s.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	queued := of.waiting.PushBack(granted)
	s.enqueue(of)
	s.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
		s.leave(goodsID, of, queued, granted)
		return ctx.Err()
	}
}

// leave removes a purchase from its queue, or returns the connection that it was granted meanwhile.
func (s *shares) leave(goodsID int64, of *share, queued *list.Element, granted <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-granted:
		s.giveBack(goodsID, of)
	default:
		of.waiting.Remove(queued)
		s.forget(goodsID, of)
	}
}

func (s *shares) free(goodsID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(goodsID, s.users[goodsID])
}

// giveBack serves the next turns. An item that may not use more has at least
// shareOfFree connections: few are passed over.
func (s *shares) giveBack(goodsID int64, of *share) {
	s.taken--
	of.taken--
	for range len(s.turns) {
		if s.taken == s.most {
			break
		}
		next := s.turns[0]
		s.turns, next.inTurns = s.turns[1:], false
		first := next.waiting.Front()
		if first != nil && s.mayUse(next) {
			granted, _ := next.waiting.Remove(first).(chan struct{})
			s.taken++
			next.taken++
			close(granted)
		}
		if next.waiting.Len() > 0 {
			s.enqueue(next)
		}
	}
	s.forget(goodsID, of)
}

func (s *shares) mayUse(of *share) bool { return of.taken < shareOfFree*(s.most-s.taken) }

func (s *shares) enqueue(of *share) {
	if !of.inTurns {
		of.inTurns = true
		s.turns = append(s.turns, of)
	}
}

// forget removes an item that neither uses nor waits for a connection.
func (s *shares) forget(goodsID int64, of *share) {
	if of.taken == 0 && of.waiting.Len() == 0 {
		delete(s.users, goodsID)
	}
}
