package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"
)

// RedisPair is a Redis with a replica that can take its place. Neither keeps
// anything on disk.
type RedisPair struct {
	Info
	Primary, Replica *Redis
	// Link is how the replica hears of what the primary is told: frozen, it hears
	// of nothing.
	Link *Proxy
	// Front is where clients connect to: the primary is behind it, and after Promote
	// the replica.
	Front *Proxy
}

// StartRedisPair starts a primary and its replica, which has all that the primary
// has before this returns.
func StartRedisPair(ctx context.Context, k *Supervisor) (*RedisPair, error) {
	password := rand.Text()
	// A replica would wait five seconds for others that want a copy, too.
	primary, err := localRedis(ctx, k, redisSetup{password: password, config: keepsNothing + "repl-diskless-sync-delay 0\n"})
	if err != nil {
		return nil, err
	}
	p := &RedisPair{Info: primary.Info, Primary: primary}
	p.Name += " with a replica"
	if err := p.startReplica(ctx, k, password); err != nil {
		return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *RedisPair) startReplica(ctx context.Context, k *Supervisor, password string) (err error) {
	if p.Link, err = NewProxy(p.Primary.Address); err != nil {
		return err
	}
	if p.Front, err = NewProxy(p.Primary.Address); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(p.Link.Address)
	if err != nil {
		return err
	}
	config := keepsNothing + fmt.Sprintf("replicaof %s %s\nmasterauth %s\n", host, port, password)
	if p.Replica, err = localRedis(ctx, k, redisSetup{password: password, config: config}); err != nil {
		return err
	}
	return p.AwaitSync(ctx)
}

// AwaitSync waits until the replica has all that the primary has.
func (p *RedisPair) AwaitSync(ctx context.Context) error {
	if err := p.Replica.AwaitReplica(ctx); err != nil {
		return fmt.Errorf("wait for the replica: %w", err)
	}
	return p.awaitOffset(ctx)
}

// awaitOffset waits until the replica has acknowledged a write.
func (p *RedisPair) awaitOffset(ctx context.Context) error {
	client := p.Primary.Open()
	defer client.Close() //nolint:errcheck // what it was for has been answered
	const key = "stockd:lab:in-sync"
	if err := errors.Join(client.Set(ctx, key, "", 0).Err(), client.Del(ctx, key).Err()); err != nil {
		return fmt.Errorf("write to the primary: %w", err)
	}
	for {
		// WAIT counts for the connection that has written.
		n, err := client.Wait(ctx, 1, time.Second).Result()
		if err != nil {
			return fmt.Errorf("wait for the replica: %w", err)
		}
		if n == 1 {
			return nil
		}
	}
}

// Promote makes the replica the primary, with what it has heard up to now, and
// puts it behind the front. Nobody tells the old one.
func (p *RedisPair) Promote(ctx context.Context) error {
	client := p.Replica.Open()
	defer client.Close() //nolint:errcheck // what it was for has been answered
	if err := Promote(ctx, client); err != nil {
		return err
	}
	return p.Front.Redirect(p.Replica.Address)
}

// Close ends both, and what is between them.
func (p *RedisPair) Close(ctx context.Context) error {
	var errs []error
	for _, server := range []*Redis{p.Primary, p.Replica} {
		if server != nil {
			errs = append(errs, server.Close(ctx))
		}
	}
	for _, proxy := range []*Proxy{p.Link, p.Front} {
		if proxy != nil {
			proxy.Close()
		}
	}
	return errors.Join(errs...)
}

// Env is what a replica of stockd has to be told to use the pair.
func (p *RedisPair) Env() []string {
	return []string{"STOCKD_REDIS_ADDRESSES=" + p.Front.Address, "STOCKD_REDIS_PASSWORD=" + p.Primary.Password}
}
