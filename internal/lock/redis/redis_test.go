package redis_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/testlog"
)

const (
	redisTTL = 2 * time.Second
	// shop is the prefix of an installation that has chosen one.
	shop = "shop"
)

// keyOf is the key of a name of the locks of a kind, in that installation.
func keyOf(name, kind string) string { return shop + ":{" + name + "}:" + kind }

func redisDeps(client redis.UniversalClient) lock.Deps {
	return lock.Deps{Clients: &backend.Clients{Redis: client, Prefix: shop}, TTL: redisTTL, Retry: 10 * time.Millisecond}
}

// onRedis makes a lock on a client; both are closed with the test.
func onRedis(t *testing.T, name string, client redis.UniversalClient) lock.Locker {
	t.Helper()
	return madeOf(t, name, redisDeps(client))
}

// madeOf makes a lock, which is closed with the test as its client is.
func madeOf(t *testing.T, name string, d lock.Deps) lock.Locker {
	t.Helper()
	entry := must.Get(registry.Find(name))(t)
	l, client := entry.New(d), d.Redis
	t.Cleanup(func() {
		if closer, ok := l.(interface{ Close() error }); ok {
			closer.Close() //nolint:errcheck // the test is over
		}
		client.Close() //nolint:errcheck // the same
	})
	return l
}

// clientAt is a client of an address, which may be a proxy's.
func clientAt(server *servers.Redis, address string) redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{
		Addresses: []string{address}, Username: servers.RedisUser, Password: server.Password, Timeout: time.Second, PoolSize: 4,
	})
}

// onOne are the locks on one Redis.
func onOne() (all []lock.Entry) {
	return slices.DeleteFunc(registry.Family(lock.FamilyRedis), func(e lock.Entry) bool { return !slices.Equal(e.Needs, []backend.Name{backend.Redis}) })
}

// scripted are the locks on one Redis that are made of scripts.
func scripted() []string { return []string{"redis-lua", "redis-reentrant", "redis-fair", "redsync"} }

// A release wakes a waiter: none of them polls for it.
func TestAReleaseWakesAWaiter(t *testing.T) {
	t.Parallel()
	server := lab.Redis(t)
	for _, name := range []string{"redis-reentrant", "redis-fair"} {
		t.Run(name, func(t *testing.T) {
			l, other := onRedis(t, name, clientAt(server, server.Address)), onRedis(t, name, clientAt(server, server.Address))
			woken := make([]time.Duration, 10)
			for i := range woken {
				woken[i] = handoff(t, l, other, "wake-"+name)
			}
			slices.Sort(woken)
			// Left to the fallback, each would take a third of the TTL.
			if median := woken[len(woken)/2]; median > redisTTL/10 {
				t.Errorf("waiters got hold %s after the release: %v", median, woken)
			}
		})
	}
}

// handoff measures the time from a release to the next one's grant.
func handoff(t *testing.T, from, to lock.Locker, name string) time.Duration {
	t.Helper()
	lease := locktest.Hold(t, from, name)
	granted := make(chan time.Time)
	go func() {
		next, err := to.Acquire(t.Context(), name)
		granted <- time.Now()
		if err == nil {
			err = next.Release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
		granted <- time.Now()
	}()
	time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond)) // the waiter waits
	released := time.Now()
	must.Do(t, lease.Release(t.Context()))
	took := (<-granted).Sub(released)
	<-granted
	return took
}

// Where Redis does not let stockd subscribe, or not publish, a waiter still gets the name within a bound, a release
// is a release, and the log says once what it takes.
func TestWithoutMessagesTheWaitIsBoundedAndTheLogSaysSo(t *testing.T) {
	server := lab.OwnRedis(t)
	owner := labtest.RedisClient(server)
	defer owner.Close() //nolint:errcheck // the test is over
	for user, rights := range map[string]string{
		"unsubscribed": "~* &* +@all -subscribe", "unpublished": "~* &* +@all -publish", "new": "~* +@all",
		"elsewhere": "~* &stockd:* +@all", // the rights of another prefix
	} {
		rules := []any{"ACL", "SETUSER", user, "on", ">secret"}
		for rule := range strings.FieldsSeq(rights) {
			rules = append(rules, rule)
		}
		must.Do(t, owner.Do(t.Context(), rules...).Err())
		for _, name := range []string{"redis-reentrant", "redis-fair"} {
			var lines testlog.Lines
			replica := func(log *slog.Logger) lock.Locker {
				deps := redisDeps(backend.NewRedis(backend.RedisOptions{
					Addresses: []string{server.Address}, Username: user, Password: "secret", Timeout: time.Second, PoolSize: 4,
				}))
				deps.Log = log
				return madeOf(t, name, deps)
			}
			from, to := replica(nil), replica(slog.New(slog.NewTextHandler(&lines, nil)))
			for range 2 {
				if took := handoff(t, from, to, user+name); took > redisTTL/3+500*time.Millisecond {
					t.Errorf("%s, %s: got hold %s after the release, want within a third of %s", user, name, took, redisTTL)
				}
			}
			labtest.Eventually(5*time.Second, func() bool { return lines.String() != "" })
			said := lines.String()
			if strings.Count(said, "no notifications") != 1 || !strings.Contains(said, backend.RedisRights(shop)) || !strings.Contains(said, "NOPERM") {
				t.Errorf("%s, %s: the log is %q, want one line with the reason and the rights", user, name, said)
			}
		}
	}
}

// queued is a waiter in the queue of a fair lock that has reported to be alive until a time.
func queued(t *testing.T, client redis.UniversalClient, name, who string, place float64, until time.Time) {
	t.Helper()
	for what, score := range map[string]float64{":queue": place, ":alive": float64(until.UnixMilli())} {
		must.Do(t, client.ZAdd(t.Context(), keyOf(name, "redis-fair")+what, redis.Z{Score: score, Member: who}).Err())
	}
}

// The first in the queue of the fair lock gives up when the name is free already: the next one is
// woken, and not left to its fallback.
func TestAWaiterThatLeavesAFreeNameWakesTheNext(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	l := onRedis(t, "redis-fair", client)
	const next = "the next"
	key := keyOf("left", "redis-fair")
	woken := releases(t, client)
	must.Do(t, client.HSet(t.Context(), key, "owner", "the dead", "token", 1, "hold:1", 1).Err())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() {
		lease, err := l.Acquire(ctx, "left")
		if err == nil { // it looked just when the name was free
			err = lease.Release(t.Context())
		}
		left <- err
	}()
	labtest.Await(t, "a waiter in the queue", 5*time.Second, func() bool { return client.ZCard(t.Context(), key+":queue").Val() == 1 })
	queued(t, client, "left", next, 1000, time.Now().Add(time.Minute))
	must.Do(t, client.Del(t.Context(), key).Err()) // the holder's time is over: it does not wake anyone
	leave()
	if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	assertWoken(t, woken, key, next)
}

// releases hears what the fair lock publishes.
func releases(t *testing.T, client redis.UniversalClient) *redis.PubSub {
	t.Helper()
	heard := client.Subscribe(t.Context(), shop+":redis-fair:free")
	t.Cleanup(func() { heard.Close() }) //nolint:errcheck // the test is over
	must.Get(heard.Receive(t.Context()))(t)
	return heard
}

// assertWoken requires that the next message of a key is for a waiter.
func assertWoken(t *testing.T, heard *redis.PubSub, key, who string) {
	t.Helper()
	late := time.After(5 * time.Second)
	for {
		select {
		case m := <-heard.Channel():
			of, id, _ := strings.Cut(m.Payload, " ")
			if of == key && id != who {
				t.Errorf("%q is woken, want %q", id, who)
			}
			if of == key {
				return
			}
		case <-late:
			t.Fatalf("%q is not woken", who)
		}
	}
}

// On a cluster every script finds its keys in one slot, or it would be rejected.
func TestLocksWorkOnACluster(t *testing.T) {
	t.Parallel()
	o := labtest.RedisOptions(labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 1}).Masters[0])
	o.Cluster, o.Timeout, o.PoolSize = true, time.Second, 4
	for _, e := range onOne() {
		t.Run(e.Name, func(t *testing.T) {
			l := onRedis(t, e.Name, backend.NewRedis(o))
			first, second := labtest.HoldAndRelease(t, l, "goods/1"), labtest.HoldAndRelease(t, l, "goods/1")
			if e.Guarantees.Fences && second <= first {
				t.Errorf("token %d came after %d", second, first)
			}
			handoff(t, l, l, "goods/2")
		})
	}
}
