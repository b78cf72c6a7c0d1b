package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	redislock "github.com/stockd/stockd/internal/lock/redis"
	"github.com/stockd/stockd/internal/lock/registry"
)

const day = 24 * time.Hour

func expiryOf(t *testing.T, client redis.UniversalClient, key string) time.Duration {
	t.Helper()
	left, err := client.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// A counter of tokens expires, each use renews that, and the next counter is above it.
func TestACounterOfTokensExpires(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range scripted() {
		t.Run(name, func(t *testing.T) {
			client := clientAt(server, server.Address)
			l, counter := onRedis(t, name, client), "stockd:{expires-"+name+"}:"+name+":token"
			var last uint64
			hold := func() {
				t.Helper()
				token := labtest.HoldAndRelease(t, l, "expires-"+name)
				if left := expiryOf(t, client, counter); left < 29*day || left > 30*day {
					t.Errorf("the counter expires in %s, want 30 days", left)
				}
				if token <= last {
					t.Errorf("token %d came after %d", token, last)
				}
				last = token
			}
			hold()
			if err := client.PExpire(t.Context(), counter, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			hold()
			for _, lost := range []error{client.Del(t.Context(), counter).Err(), client.Set(t.Context(), counter, 7, 0).Err()} {
				if lost != nil {
					t.Fatal(lost)
				}
				hold()
			}
			if err := l.(interface { //nolint:forcetypeassert // each of them can
				Reseed(ctx context.Context, name string) error
			}).Reseed(t.Context(), "expires-"+name); err != nil {
				t.Fatal(err)
			}
			hold()
		})
	}
}

// A counter that is lifted to the floor expires like any other.
func TestACounterThatIsLiftedExpires(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range scripted() {
		client := clientAt(server, server.Address)
		entry, err := registry.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		floor := func(context.Context, string) (uint64, error) { return 1000, nil }
		l := entry.New(lock.Deps{Clients: &backend.Clients{Redis: client}, TTL: redisTTL, Retry: 10 * time.Millisecond, Floor: floor})
		err = l.(interface { //nolint:forcetypeassert // each of them can
			Reseed(ctx context.Context, name string) error
		}).Reseed(t.Context(), "lifted-"+name)
		if err != nil {
			t.Fatal(err)
		}
		counter := "stockd:{lifted-" + name + "}:" + name + ":token"
		if left := expiryOf(t, client, counter); left < 29*day || left > 30*day {
			t.Errorf("%s: the counter expires in %s, want 30 days", name, left)
		}
		if token := labtest.HoldAndRelease(t, l, "lifted-"+name); token <= 1000 {
			t.Errorf("%s: the next token is %d, want one above 1000", name, token)
		}
		if closer, ok := l.(interface{ Close() error }); ok {
			closer.Close() //nolint:errcheck // the test is over
		}
		client.Close() //nolint:errcheck // the same
	}
}

// The queue of a fair lock expires when no waiter is alive to be dropped.
func TestAFairQueueExpires(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	l := onRedis(t, "redis-fair", client)
	lease, err := l.Acquire(t.Context(), "queue-expires")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = l.Acquire(ctx, "queue-expires") // it only waits
	}()
	const queue = "stockd:{queue-expires}:redis-fair:queue"
	for expiryOf(t, client, queue) < 0 {
		if ctx.Err() != nil {
			t.Fatal("the queue does not expire while a waiter is in it")
		}
	}
	cancel()
	<-left
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Counters of the version before have no expiry.
func TestOldCountersAreGivenAnExpiry(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"one":     labtest.RedisClient(lab.OwnRedis(t)),
		"cluster": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if client == nil {
				node := lab.OwnCluster(t)
				client = backend.NewRedis(backend.RedisOptions{
					Addresses: []string{node.Address}, Password: node.Password, Cluster: true, Timeout: time.Second, PoolSize: 4,
				})
			}
			t.Cleanup(func() { _ = client.Close() }) // the test is over
			const counters = 2500
			for i := range counters {
				if err := client.Set(t.Context(), fmt.Sprintf("stockd:{goods%%2F%d}:redis-lua:token", i), 1, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			others := []string{"stockd:{goods%2F1}:redis-setnx", "shop:{a}:b:token", "stockd:{stock-1}:goods:7"}
			for _, key := range others {
				if err := client.Set(t.Context(), key, 1, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range []int{counters, 0} {
				if n, err := redislock.ExpireCounters(t.Context(), client, "stockd"); err != nil || n != want {
					t.Errorf("%d counters were given an expiry (%v), want %d", n, err, want)
				}
			}
			for i := range counters {
				if left := expiryOf(t, client, fmt.Sprintf("stockd:{goods%%2F%d}:redis-lua:token", i)); left < 29*day {
					t.Fatalf("counter %d expires in %s", i, left)
				}
			}
			for _, key := range others {
				if left := expiryOf(t, client, key); left != -1 {
					t.Errorf("%s expires in %s, and belongs to another", key, left)
				}
			}
		})
	}
}
