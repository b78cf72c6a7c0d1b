package servers

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// redlockNodes are as many as the description of Redlock has.
const redlockNodes = 5

// Redlock is a number of Redis masters that know nothing of each other. They
// have one password.
type Redlock struct {
	Info
	Nodes []*Redis
}

// StartRedlock starts the masters. They keep nothing on disk.
func StartRedlock(ctx context.Context, k *Supervisor, mode Mode) (*Redlock, error) {
	password := rand.Text()
	return startMasters(ctx, func(ctx context.Context) (*Redis, error) { return startRedis(ctx, k, mode, password) })
}

// RedlockOptions say how masters are to be that experiments are made with.
type RedlockOptions struct {
	// Durable has each master write each command to its disk before it answers, and
	// have it again after Restart.
	Durable bool
	// Clocks has each master have a clock of its own.
	Clocks bool
	// Security is what they ask of clients; nil: a password alone.
	Security *Security
}

// StartRedlockWith starts masters that are real servers.
func StartRedlockWith(ctx context.Context, k *Supervisor, o RedlockOptions) (*Redlock, error) {
	setup := redisSetup{password: rand.Text(), config: keepsNothing, clock: o.Clocks, security: o.Security}
	if o.Durable {
		setup.config = keepsAll
	}
	return startMasters(ctx, func(ctx context.Context) (*Redis, error) { return localRedis(ctx, k, setup) })
}

func startMasters(ctx context.Context, start func(context.Context) (*Redis, error)) (*Redlock, error) {
	nodes, err := startAll(ctx, redlockNodes, start)
	if err != nil {
		return nil, err
	}
	r := &Redlock{Info: nodes[0].Info, Nodes: nodes}
	r.Name = fmt.Sprintf("%d × %s", len(r.Nodes), r.Name)
	return r, nil
}

// Close ends all masters.
func (r *Redlock) Close(ctx context.Context) error { return closeAll(ctx, r.Nodes) }

// Env is what a replica has to be told to use the masters.
func (r *Redlock) Env() []string {
	addresses := make([]string, len(r.Nodes))
	for i, node := range r.Nodes {
		addresses[i] = node.Address
	}
	return append([]string{"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses, ","), "STOCKD_REDLOCK_PASSWORD=" + r.Nodes[0].Password}, r.Nodes[0].security.env("redlock")...)
}
