package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
)

// pinged counts the pings of a Redis, each of which takes a while.
type pinged struct {
	count atomic.Int64
	takes time.Duration
}

func (p *pinged) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p *pinged) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "ping" {
			p.count.Add(1)
			time.Sleep(p.takes)
		}
		return next(ctx, cmd)
	}
}

func (p *pinged) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// However many ask for readiness, each backend is pinged about twice a second.
func TestPingsAreShared(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks, counted := lab.Locks(t, d, backend.Redis), &pinged{takes: 50 * time.Millisecond}
	locks.Redis.AddHook(counted)
	c, err := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	var all sync.WaitGroup
	begun := time.Now()
	for i := range 200 {
		all.Go(func() {
			if i%2 == 0 {
				c.Describe(t.Context())
				return
			}
			list, err := c.Backends(t.Context())
			if err != nil || len(list) < 2 || list[1].Name != "redis" || list[1].Status != service.Up {
				t.Errorf("the backends are %+v, %v", list, err)
			}
		})
	}
	all.Wait()
	if most := 1 + int64(time.Since(begun)/(500*time.Millisecond)); counted.count.Load() > most {
		t.Errorf("200 requests at once ping Redis %d times, want %d at most", counted.count.Load(), most)
	}
	before := counted.count.Load()
	soon(t, "another ping", func() bool {
		_, err := c.Backends(t.Context())
		return err == nil && counted.count.Load() > before
	})
}

// One who leaves gets its own error, and spoils nothing for the others.
func TestACallerThatLeavesDoesNotEndTheOthersPing(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks, slow := lab.Locks(t, d, backend.Redis), &pinged{takes: 300 * time.Millisecond}
	locks.Redis.AddHook(slow)
	c, err := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	hasty, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := c.Backends(hasty); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) >= slow.takes {
		t.Errorf("one in a hurry gets %v after %s", err, time.Since(begun))
	}
	list, err := c.Backends(t.Context())
	if err != nil || list[1].Status != service.Up || slow.count.Load() != 1 {
		t.Errorf("the next gets %+v, %v after %d pings", list, err, slow.count.Load())
	}
}

// silent is a Redis that does not answer a ping.
type silent struct{ pinged }

func (*silent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "ping" {
			return next(ctx, cmd)
		}
		<-ctx.Done()
		return fmt.Errorf("dial tcp 192.0.2.7:6379: %w", context.Cause(ctx))
	}
}

// A backend that hangs is down within a second, which delays nothing else. Who asks does not learn its
// address.
func TestABackendThatHangsIsDown(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks := lab.Locks(t, d, backend.Redis)
	locks.Redis.AddHook(&silent{})
	c, err := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const why = "redis does not answer"
	list, err := c.Backends(ctx)
	if err != nil || list[0].Status != service.Up || list[1] != (service.Backend{Name: "redis", Status: service.Down, Note: why}) {
		t.Errorf("the backends are %+v, %v", list, err)
	}
	for _, d := range c.Describe(ctx) {
		if onRedis := slices.Contains(d.Needs, "redis"); onRedis && (d.Available || !d.Enabled || d.Note != why) || d.Name == "sql-conditional" && !d.Available {
			t.Errorf("%s is described as %+v", d.Name, d)
		}
	}
}
