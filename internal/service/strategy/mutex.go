package strategy

import (
	"github.com/stockd/stockd/internal/lock/process"
)

func mutex() Entry {
	return Entry{
		Name:       "mutex",
		Family:     Process,
		Summary:    "one mutex an item, taken around the transaction; another replica has a mutex of its own",
		Guarantees: Guarantees{ExclusiveInProcess: true, SurvivesCrash: true},
		Damage:     LostUpdates,
		New: func(d Deps) Strategy {
			return newGuarded(d, process.New())
		},
	}
}
