package locktest

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

// The types that a lock of another module is made of.
type (
	// Entry describes a lock and makes it.
	Entry = lock.Entry
	// Guarantees are its guarantees, which the suite tests.
	Guarantees = lock.Guarantees
	// Deps is what it is made of.
	Deps = lock.Deps
	// Clients are the connections to the servers.
	Clients = backend.Clients
	// Backend names a server that a lock needs.
	Backend = backend.Name
	// BackendError is the failure of a server.
	BackendError = stock.BackendError
	// Locker grants a name to one holder at a time.
	Locker = lock.Locker
	// Lease is a name held.
	Lease = lock.Lease
	// Held is a lease that needs only a function that gives the name back.
	Held = lock.Held
	// Lab is the servers of a test binary.
	Lab = labtest.Lab
)

// The servers that a lock may need.
const (
	Database  = backend.Database
	MySQL     = backend.MySQL
	Redis     = backend.Redis
	Redlock   = backend.Redlock
	ZooKeeper = backend.ZooKeeper
	Etcd      = backend.Etcd
)

// The errors of a Locker and of a Lease.
var (
	ErrNotAcquired = lock.ErrNotAcquired
	ErrLost        = lock.ErrLost
)

// NewHeld makes a lease. giveUp gives the name back; it is called once at the most, and
// never after the lease was lost. It returns ErrLost where another holds the name.
func NewHeld(token uint64, giveUp func(context.Context) error) *Held {
	return lock.NewHeld(token, giveUp)
}

// Watch renews a lease that was requested at a time, until it ends or cannot be renewed.
func Watch(lease *Held, asked time.Time, ttl time.Duration, renew func(context.Context) (still bool, err error)) {
	lock.Watch(lease, asked, ttl, renew)
}

// NotAcquired is the error of an Acquire: the end of ctx, or the failure of the server.
func NotAcquired(ctx context.Context, server Backend, err error) error {
	return lock.NotAcquired(ctx, string(server), err)
}
