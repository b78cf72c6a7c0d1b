package redis

import "github.com/stockd/stockd/internal/lock"

// Keys is the pattern of the keys that the locks keep of a name.
func Keys(d lock.Deps, name string) string { return newBase("*", d).key(name) }
