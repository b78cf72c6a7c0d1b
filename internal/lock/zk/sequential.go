package zk

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Sequential queues sequential nodes that each watch the one before.
func Sequential() lock.Entry {
	return lock.Entry{
		Name:       "zk-sequential",
		Family:     lock.FamilyZooKeeper,
		Summary:    "a queue of numbered ephemeral nodes, each watching the one before it: a release wakes one",
		Needs:      []backend.Name{backend.ZooKeeper},
		Guarantees: lock.Complete(true),
		New:        func(d lock.Deps) lock.Locker { return lock.NewReentrant(newQueue("zk-sequential", d, lookAhead)) },
	}
}

// lookAhead watches the node next before ours. That it went is no grant: it may
// have been a place that was given up, with others still before us.
//
// Where it is the node of another place in this replica, there is nothing to
// ask the server: we hear of it here, and that it had its turn and went is a
// grant.
func lookAhead(ctx context.Context, link *backend.ZKLink, p *place) (turn bool, changed <-chan struct{}, err error) {
	if p.before != nil && p.before.hasPassed() {
		return true, nil, nil
	}
	p.before = nil // until it is known that no place of another replica is between the two
	before := p.line.before(p)
	if before != nil && before.isNextBefore(p) {
		p.before = before
		return false, before.gone, nil
	}
	names, err := link.List(ctx, p.folder)
	if err != nil {
		return false, nil, err
	}
	ahead, err := p.ahead(names)
	if ahead == "" || err != nil {
		return err == nil, nil, err
	}
	if before != nil && before.name == ahead {
		p.before = before
		return false, before.gone, nil
	}
	_, watch, err := link.Get(ctx, p.folder+"/"+ahead)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil // it went before we watched it, and the watch has ended
	}
	return false, watch.Done(), err
}
