package lock

import "context"

func zkHerd() Entry {
	return Entry{
		Name:    "zk-herd",
		Family:  FamilyZooKeeper,
		Summary: "a queue of numbered ephemeral nodes, all watching their folder: a release wakes everyone",
		Needs:   []Backend{ZooKeeper},
		Claims: Claims{
			Exclusive: true, SurvivesCrash: true, Renews: true, Reentrant: true,
			Fair: true, Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		New: func(d Deps) Locker { return newReentrant(newZKQueue("zk-herd", d, lookAround)) },
	}
}

// lookAround watches the whole folder: whoever comes or goes wakes all who wait,
// and all but one of them for nothing.
func lookAround(ctx context.Context, link *zkLink, p *zkPlace) (turn bool, changed <-chan struct{}, err error) {
	names, watch, err := link.watchList(ctx, p.folder)
	if err != nil {
		return false, nil, err
	}
	ahead, err := p.ahead(names)
	return ahead == "" && err == nil, watch.Done(), err
}
