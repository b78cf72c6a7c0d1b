package locktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// redlockBackend is several independent masters, and a database that issues the
// tokens that they cannot count together.
type redlockBackend struct {
	at     addresses
	admins []redis.UniversalClient
}

func newRedlockBackend(t *testing.T, server *servers.Redlock) *redlockBackend {
	t.Helper()
	b := &redlockBackend{at: addresses{
		Driver: repo.SQLite, DSN: newSQLite(t).DSN, Password: server.Nodes[0].Password,
		TTL: 2 * time.Second, // of which a write to a disk, for the token, takes its part
	}}
	for _, node := range server.Nodes {
		admin := b.at.redis(node.Address)
		t.Cleanup(func() { closed(t, admin) })
		b.at.Redlock = append(b.at.Redlock, node.Address)
		b.admins = append(b.admins, admin)
	}
	return b
}

func (b *redlockBackend) addresses() addresses { return b.at }
func (b *redlockBackend) ttl() time.Duration   { return b.at.TTL }
func (b *redlockBackend) named() backend.Name  { return backend.Redlock }
func (b *redlockBackend) requests() []string   { return []string{""} }

func (b *redlockBackend) drop(t *testing.T, name string) {
	t.Helper()
	for _, admin := range b.admins {
		dropKeys(t, admin, name)
	}
}

func (b *redlockBackend) litter(t *testing.T, name string) (traces []string) {
	t.Helper()
	for i, admin := range b.admins {
		for _, trace := range tracesIn(t, admin, name) {
			traces = append(traces, fmt.Sprintf("node %d: %s", i+1, trace))
		}
	}
	return traces
}

func (b *redlockBackend) forget(t *testing.T) {
	t.Helper()
	for _, admin := range b.admins {
		forgetIn(t, admin)
	}
}

// masters are killed and started again all together.
type masters []*servers.Redis

// Kill ends them all.
func (m masters) Kill(ctx context.Context) error {
	return m.each(func(r *servers.Redis) error { return r.Kill(ctx) })
}

// Restart starts them all.
func (m masters) Restart(ctx context.Context) error {
	return m.each(func(r *servers.Redis) error { return r.Restart(ctx) })
}

func (m masters) each(do func(*servers.Redis) error) error {
	errs := make([]error, len(m))
	for i, master := range m {
		errs[i] = do(master)
	}
	return errors.Join(errs...)
}
