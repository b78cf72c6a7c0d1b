package sourcelock

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lock"
)

// InStep is the name of the lock below.
const InStep = "redlock-in-step"

// inStep is Redlock on several masters without the random delay: a client that fails
// tries again after a pause that is always the same.
type inStep struct {
	pools []redsyncredis.Pool
	pause time.Duration
}

// NewInStep makes the lock on the connections of one contender.
func NewInStep(masters []redis.UniversalClient, pause time.Duration) lock.Locker {
	l := &inStep{pause: pause}
	for _, master := range masters {
		l.pools = append(l.pools, goredis.NewPool(master))
	}
	return l
}

// inStepTTL is long for an experiment, and so are the tries many.
const (
	inStepTTL   = 10 * time.Second
	inStepTries = 1 << 20
)

// Acquire tries until ctx ends.
func (l *inStep) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	mutex := redsync.New(l.pools...).NewMutex("stockd:lab:{"+name+"}",
		redsync.WithExpiry(inStepTTL), redsync.WithTries(inStepTries), redsync.WithRetryDelay(l.pause))
	if err := mutex.LockContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(lock.ErrNotAcquired, context.Cause(ctx))
		}
		return nil, err
	}
	held, end := context.WithCancel(context.Background())
	return &inStepLease{mutex: mutex, held: held, end: end}, nil
}

type inStepLease struct {
	mutex *redsync.Mutex
	held  context.Context //nolint:containedctx // it is the lease's own, which the contract asks for
	end   func()
}

// Token is 0: the masters have no common counter.
func (*inStepLease) Token() uint64 { return 0 }

// Context ends with the release. A loss is not reported.
func (l *inStepLease) Context() context.Context { return l.held }

// Release gives the name back on every master.
func (l *inStepLease) Release(ctx context.Context) error {
	defer l.end()
	_, err := l.mutex.UnlockContext(ctx)
	return err
}
