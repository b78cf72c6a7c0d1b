package strategy

import (
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/service/hot"
)

func redisStock() Entry {
	return Entry{
		Name:    hot.Allocation,
		Family:  Hot,
		Summary: "one script in Redis decides and appends the order to a stream; consumers write it to the ledger, exactly once",
		Needs:   []lock.Backend{lock.Redis},
		Claims:  Claims{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New: func(d Deps) Strategy {
			if err := d.lacks([]lock.Backend{lock.Redis}); err != nil {
				return unavailable{err}
			}
			o := d.Hot
			o.Replica, o.Observer = d.Store.Replica(), d.Observer()
			return hot.New(d.Store, d.Lock.Clients, o)
		},
	}
}
