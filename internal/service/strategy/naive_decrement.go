package strategy

func naiveDecrement() Entry {
	return Entry{
		Name:       "naive-decrement",
		Family:     None,
		Summary:    "read the stock, compare, then let the database subtract; no update is lost, and the stock goes below zero",
		Guarantees: Guarantees{SurvivesCrash: true},
		Damage:     BelowZero,
		New:        func(d Deps) Strategy { return unguarded{store: d.site(), write: subtract} },
	}
}
