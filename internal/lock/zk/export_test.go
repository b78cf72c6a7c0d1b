package zk

import (
	"context"
	"sync"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Folder is where a lock keeps a name.
func Folder(prefix, kind, name string) string { return folderOf(prefix, kind, name) }

// LastNumber has a lock take a lower number for the last one that the server
// can count to.
func LastNumber(l lock.Locker, last int) {
	l.(*lock.Reentrant).Locker.(*queue).last = last //nolint:forcetypeassert // a test's own lock
}

// EndOnTurn ends the connection of a waiter once it has looked and it is its turn.
func EndOnTurn(l lock.Locker, end func()) {
	q := l.(*lock.Reentrant).Locker.(*queue) //nolint:forcetypeassert // a test's own lock
	var once sync.Once
	look := q.look
	q.look = func(ctx context.Context, link *backend.ZKLink, p *place) (bool, <-chan struct{}, error) {
		turn, changed, err := look(ctx, link, p)
		if turn {
			once.Do(func() {
				end()
				<-link.Ctx.Done()
			})
		}
		return turn, changed, err
	}
}

// AfterAFailedLook calls a function after the first look that failed from the place of a number, before it looks again.
func AfterAFailedLook(l lock.Locker, number int, then func()) {
	q := l.(*lock.Reentrant).Locker.(*queue) //nolint:forcetypeassert // a test's own lock
	var once sync.Once
	look := q.look
	q.look = func(ctx context.Context, link *backend.ZKLink, p *place) (bool, <-chan struct{}, error) {
		turn, changed, err := look(ctx, link, p)
		if err != nil && p.number == number {
			once.Do(then)
		}
		return turn, changed, err
	}
}

// LooksAgain is the shortest time after which a waiter looks again without a watch event.
const LooksAgain = backend.LookAgain / 2
