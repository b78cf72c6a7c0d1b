package zk

import (
	"context"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Herd queues sequential nodes that all watch the folder.
func Herd() lock.Entry {
	return lock.Entry{
		Name:       "zk-herd",
		Family:     lock.FamilyZooKeeper,
		Summary:    "a queue of numbered ephemeral nodes, all watching their folder: a release wakes everyone",
		Needs:      []backend.Name{backend.ZooKeeper},
		Guarantees: lock.Complete(true),
		New:        func(d lock.Deps) lock.Locker { return lock.NewReentrant(newQueue("zk-herd", d, lookAround)) },
	}
}

// lookAround watches the whole folder: each place that comes or goes wakes all waiters, and
// all but one of them for nothing.
func lookAround(ctx context.Context, link *backend.ZKLink, p *place) (turn bool, changed <-chan struct{}, err error) {
	names, watch, err := link.WatchList(ctx, p.folder)
	if err != nil {
		return false, nil, err
	}
	ahead, err := p.ahead(names)
	return ahead == "" && err == nil, watch.Done(), err
}
