package backend

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/pause"
)

// ZKDrop deletes a node of ours and nothing else. It answers zk.ErrNoNode where
// there is none any more.
type ZKDrop func(*zk.Conn) error

// sweepAgain is the pause before litter that did not go is tried again.
const sweepAgain = 100 * time.Millisecond

// Discard deletes in the background what may be left of ours: it would be in
// everybody's way for as long as the session lasts. It is tried until the server
// has answered, over as many connections as that takes.
func (s *ZKSession) Discard(drop ZKDrop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.litter = append(s.litter, drop)
	if !s.sweeping && s.ctx.Err() == nil {
		s.sweeping = true
		go s.sweep()
	}
}

// sweep ends with the litter, or with the session, which takes it along.
func (s *ZKSession) sweep() {
	for drop := s.nextLitter(); drop != nil; drop = s.nextLitter() {
		select {
		case <-s.Current().up:
		case <-s.ctx.Done():
			return
		}
		if ZKAnswered(drop(s.conn)) {
			continue
		}
		s.Discard(drop)
		if pause.About(s.ctx, sweepAgain) != nil {
			return
		}
	}
}

// nextLitter is what comes next, nil when there is none.
func (s *ZKSession) nextLitter() (drop ZKDrop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.litter) == 0 {
		s.sweeping = false
		return nil
	}
	drop, s.litter = s.litter[0], s.litter[1:]
	return drop
}

// ZKAnswered tells what the server said from not knowing what it did. The
// library has many errors for the latter, those of the network among them.
func ZKAnswered(err error) bool {
	return err == nil || slices.ContainsFunc([]error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrAuthFailed,
		zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments, zk.ErrNoChildrenForEphemerals,
	}, func(said error) bool { return errors.Is(err, said) })
}
