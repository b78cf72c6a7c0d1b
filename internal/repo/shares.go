package repo

import (
	"container/list"
	"context"
	"sync"
)

// shares keeps purchases of one item by one strategy from using all connections of a
// pool: those that wait for a row lock hold theirs meanwhile. The purchases that wait for
// a connection wait in one queue an item and strategy, and the queues are served in turns.
// An item and strategy may use at most shareOfFree times as many connections as are free.
type shares struct {
	most int // connections

	mu    sync.Mutex
	taken int
	users map[shareUser]*share // that use or wait for connections
	turns []*share             // those that wait, and some that no longer do
}

// shareOfFree lets one item and strategy alone use three quarters of all connections.
const shareOfFree = 3

type shareUser struct {
	goodsID  int64
	strategy string
}

type share struct {
	taken   int
	waiting list.List // of *shareTurn, the first come first
	inTurns bool
}

// shareTurn is one waiting purchase.
type shareTurn struct {
	granted chan struct{} // closed when it has its connection
}

func newShares(connections int) *shares {
	return &shares{most: max(connections, 1), users: make(map[shareUser]*share)}
}

// Turn waits until a purchase of an item may use a connection. End the turn. The error is
// that of a transaction that has not begun in time.
func (s *Store) Turn(ctx context.Context, goodsID int64) (end func(), err error) {
	user := shareUser{goodsID, s.strategy}
	if err := s.shares.take(ctx, user); err != nil {
		return nil, s.beginFault(ctx, err)
	}
	return func() { s.shares.free(user) }, nil
}

func (s *shares) take(ctx context.Context, user shareUser) error {
	s.mu.Lock()
	of, ok := s.users[user]
	if !ok {
		of = &share{}
		s.users[user] = of
	}
	if of.waiting.Len() == 0 && s.mayUse(of) {
		s.taken++
		of.taken++
		s.mu.Unlock()
		return nil
	}
	turn := &shareTurn{granted: make(chan struct{})}
	queued := of.waiting.PushBack(turn)
	s.enqueue(of)
	s.mu.Unlock()
	select {
	case <-turn.granted:
		return nil
	case <-ctx.Done():
		s.leave(user, of, queued, turn)
		return ctx.Err()
	}
}

// leave removes a purchase from its queue, or returns the connection that it was granted meanwhile.
func (s *shares) leave(user shareUser, of *share, queued *list.Element, turn *shareTurn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-turn.granted:
		s.giveBack(user, of)
	default:
		of.waiting.Remove(queued)
		s.forget(user, of)
	}
}

func (s *shares) free(user shareUser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(user, s.users[user])
}

// giveBack serves the next turns. An item and strategy that may not use more has at least
// shareOfFree connections: few are passed over.
func (s *shares) giveBack(user shareUser, of *share) {
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
			turn, _ := next.waiting.Remove(first).(*shareTurn)
			s.taken++
			next.taken++
			close(turn.granted)
		}
		if next.waiting.Len() > 0 {
			s.enqueue(next)
		}
	}
	s.forget(user, of)
}

func (s *shares) mayUse(of *share) bool { return of.taken < shareOfFree*(s.most-s.taken) }

func (s *shares) enqueue(of *share) {
	if !of.inTurns {
		of.inTurns = true
		s.turns = append(s.turns, of)
	}
}

// forget removes an item and strategy that neither uses nor waits for a connection.
func (s *shares) forget(user shareUser, of *share) {
	if of.taken == 0 && of.waiting.Len() == 0 {
		delete(s.users, user)
	}
}
