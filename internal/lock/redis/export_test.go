package redis

import (
	"context"

	"github.com/stockd/stockd/internal/lock"
)

// Keys is the pattern of the keys that the locks keep of a name.
func Keys(d lock.Deps, name string) string { return newBase("*", d).key(name) }

// Ask sends the request of an Acquire, as it is sent again where its answer was lost. hold
// is the Acquire's own, whereas an owner may come more than once.
func Ask(ctx context.Context, l lock.Locker, name, owner, hold string) (won bool, token uint64, err error) {
	var grant outcome
	switch l := l.(type) {
	case luaLock:
		grant, err = l.take(ctx, l.acquire, name, []string{l.key(name), l.counter(name)}, owner)
	case *hashLock:
		a := attempt{hashLock: l, name: name, owner: owner, hold: hold}
		grant, err = l.take(ctx, l.acquire, name, a.keys(a.counter(name)), owner, hold, l.patience.Milliseconds())
	}
	return grant.won(), grant.token, err
}
