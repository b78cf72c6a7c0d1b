package locktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
)

// addresses are where the servers of a backend are: all that another process
// needs to connect as this one does. The database is the locks' own, or for Redlock the one
// that issues its tokens.
type addresses struct {
	servers.Conn

	// TTL is a short one that the backend still counts exactly.
	TTL time.Duration
}

// The limits of the clients: short enough for a test, long enough for a busy
// machine.
const (
	answerWithin = time.Second
	connections  = 16
	retry        = 10 * time.Millisecond
)

func (a addresses) connect() (*backend.Clients, error) {
	return a.Connect(servers.Limits{Session: a.TTL, Timeout: answerWithin, Pool: connections})
}

// replica is one replica of stockd: its clients, and the lock made of them.
type replica struct {
	lock.Locker
	clients *backend.Clients
	deps    lock.Deps
}

// open makes a replica. floor may be nil.
func (a addresses) open(entry lock.Entry, floor func(context.Context, string) (uint64, error)) (*replica, error) {
	clients, err := a.connect()
	if err != nil {
		return nil, err
	}
	deps := lock.Deps{Clients: clients, TTL: a.TTL, Retry: retry, Floor: floor, Releases: lock.NewReleases(), Log: slog.New(slog.DiscardHandler)}
	if clients.DB != nil {
		deps.Issue = sqllock.NewTokens(clients.DB, clients.Dialect).Issue
	}
	return &replica{Locker: entry.New(deps), clients: clients, deps: deps}, nil
}

// connected returns the replica when its backends have answered it, and each of its independent
// masters: a request has a second for its answer, and a master half of one to vote, in which a busy
// machine does not also connect, and log in.
func (r *replica) connected(t *testing.T) *replica {
	t.Helper()
	for _, b := range []backend.Name{backend.Redis, backend.ZooKeeper, backend.Etcd, backend.Database} {
		if r.clients.Has(b) == nil {
			labtest.AwaitAnswer(t, string(b), patience, func() error { return r.clients.Ping(t.Context(), b) })
		}
	}
	for i, master := range r.clients.Redlock {
		labtest.AwaitAnswer(t, fmt.Sprintf("master %d", i+1), patience, func() error { return master.Ping(t.Context()).Err() })
	}
	return r
}

// Close closes the lock and then what it was made of, as a replica does.
func (r *replica) Close() error {
	var err error
	if closer, ok := r.Locker.(io.Closer); ok {
		err = closer.Close()
	}
	return errors.Join(err, r.deps.Close())
}

// served reports whether the backend is a server, and not a file.
func (a addresses) served() bool {
	return a.Database.Driver != repo.SQLite || len(a.Redlock.Addresses) > 0
}

func (a addresses) each(t *testing.T, instead func(address string) string) addresses {
	t.Helper()
	a.Conn = must.Get(a.Through(instead))(t)
	return a
}

func (a addresses) through(t *testing.T) (fronts addresses, cuts proxies) {
	t.Helper()
	fronts = a.each(t, func(target string) string {
		proxy := labtest.NewProxy(t, target)
		cuts = append(cuts, proxy)
		return proxy.Address
	})
	return fronts, cuts
}

// proxies stand between one replica and its servers.
type proxies []*servers.Proxy

// each does something to all of them.
func (p proxies) each(do func(*servers.Proxy)) {
	for _, one := range p {
		do(one)
	}
}

// silence makes the servers accept requests and not answer, or ends that.
func (p proxies) silence(silent bool) {
	p.each(func(one *servers.Proxy) { one.Hang(silent) })
}

// lose ends the connection to each server at the n-th request with these bytes, before or
// after the server gets it.
func (p proxies) lose(n int, sent string, deliver bool) (armed triggers) {
	for _, one := range p {
		armed = append(armed, labtest.LoseNth(one, n, sent, deliver))
	}
	return armed
}

func (p proxies) arm(rule servers.Rule) (armed triggers) {
	for _, one := range p {
		armed = append(armed, one.Arm(rule))
	}
	return armed
}

// triggers are rules that were armed.
type triggers []*servers.Trigger

// seen is the number of matching requests at the server that had most of them.
func (p triggers) seen() (n int) {
	for _, one := range p {
		n = max(n, one.Seen())
	}
	return n
}

// await waits until a request has met its rule at one of the servers.
func (p triggers) await(t *testing.T) {
	t.Helper()
	met := func(one *servers.Trigger) bool {
		select {
		case <-one.Reached():
			return true
		default:
			return false
		}
	}
	labtest.Await(t, "the request that is to be held", patience, func() bool { return slices.ContainsFunc(p, met) })
}

// disarm ends that, and reports whether a connection was ended.
func (p triggers) disarm() (met bool) {
	for _, one := range p {
		met = one.Disarm() || met
	}
	return met
}
