package strategy

import (
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/redisstock"
)

func redisStock() Entry {
	return Entry{
		Name:         redisstock.Allocation,
		Family:       Hot,
		Summary:      "one script in Redis decides and appends the order to a stream; consumers write it to the ledger, exactly once",
		Needs:        []backend.Name{backend.Redis},
		MinRedis:     "7.0", // its script says so as well, where Redis did not answer at the start
		Allocates:    true,
		SeveralItems: true,
		Together:     true, // one call of the script for all that wait
		Guarantees:   Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New: func(d Deps) Strategy {
			o := d.RedisStock
			o.Replica, o.Observer, o.Changes = d.Store.Replica(), d.Observer(), d.Changes
			return redisstock.New(d.Store, d.Lock.Clients, o)
		},
	}
}
