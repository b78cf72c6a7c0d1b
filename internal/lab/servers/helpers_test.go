package servers_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/should"
)

// limit bounds what a test waits for.
const limit = 10 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// through is a Redis whose keys no other test uses, reached through a proxy
// and directly.
func through(t *testing.T) (p *servers.Proxy, far, near *redis.Client) {
	t.Helper()
	server := lab.OwnRedis(t)
	p = labtest.NewProxy(t, server.Address)
	at := *server
	at.Address = p.Address
	return p, open(t, &at), open(t, server)
}

func open(t *testing.T, r *servers.Redis) *redis.Client {
	t.Helper()
	client := r.Open()
	t.Cleanup(func() {
		should.Do(t, client.Close())
	})
	return client
}

// later does something, and tells how it ended.
func later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatal("it does not end")
		return nil
	}
}

func pending(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s has ended with %v", what, err)
	case <-time.After(100 * time.Millisecond):
	}
}
