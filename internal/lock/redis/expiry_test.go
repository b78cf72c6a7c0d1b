package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
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
			l, counter := onRedis(t, name, client), keyOf("expires-"+name, name)+":token"
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
			for _, lost := range []func() error{
				func() error { return client.Del(t.Context(), counter).Err() },
				func() error { return client.Set(t.Context(), counter, 7, 0).Err() },
			} {
				if err := lost(); err != nil {
					t.Fatal(err)
				}
				hold()
			}
			if err := l.(interface { //nolint:forcetypeassert // each of them can
				Reseed(ctx context.Context, name string) error
			}).Reseed(t.Context(), "expires-"+name); err != nil {
				t.Fatal(err)
			}
			hold()
			const large = 1<<53 + 2 // the next one is none of Lua's numbers
			if err := client.Set(t.Context(), counter, large, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if hold(); last != large+1 {
				t.Errorf("token %d came after %d", last, large)
			}
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
		asked := 0
		floor := func(context.Context, string) (uint64, error) { asked++; return 1000, nil }
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
		labtest.HoldAndRelease(t, l, "lifted-"+name)
		if asked != 2 { // by Reseed, and where the counter was below any clock
			t.Errorf("%s: the floor was asked for %d times, want 2", name, asked)
		}
		if closer, ok := l.(interface{ Close() error }); ok {
			closer.Close() //nolint:errcheck // the test is over
		}
		client.Close() //nolint:errcheck // the same
	}
}

// The queue of a fair lock expires when no waiter is alive to be dropped, soon also where a lease
// is long.
func TestAFairQueueExpires(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	deps := redisDeps(client)
	deps.TTL = time.Hour
	l := madeOf(t, "redis-fair", deps)
	leave := waits(t, client, l, "queue-expires", "redis-fair")
	key := keyOf("queue-expires", "redis-fair")
	for _, what := range []string{key + ":queue", key + ":alive"} {
		if !labtest.Eventually(5*time.Second, func() bool { return expiryOf(t, client, what) >= 0 }) {
			t.Errorf("%s does not expire while a waiter is in it", what)
		}
		if left := expiryOf(t, client, what); left > 6*time.Second {
			t.Errorf("%s expires in %s, want twice the patience of 3 s at the most", what, left)
		}
	}
	leave()
}

// waits has a lock wait for a name whose holder neither renews it nor gives it back. Leave
// ends the wait, which must not have been granted the name.
func waits(t *testing.T, client redis.UniversalClient, l lock.Locker, name, kind string, notes ...func(lock.Note)) (leave func()) {
	t.Helper()
	if err := client.HSet(t.Context(), keyOf(name, kind), "owner", "another", "token", 1, "hold:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(lock.WithNotes(t.Context(), func(n lock.Note) {
		for _, note := range notes {
			note(n)
		}
	}))
	left := locktest.HoldLater(ctx, l, name)
	return func() {
		t.Helper()
		cancel()
		if err := left.Fails(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the waiter ended with %v", err)
		}
	}
}

// A waiter in the queue of a fair lock reports for itself, and keeps its place.
func TestAWaiterThatReportsKeepsItsPlace(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	deps := redisDeps(client)
	deps.TTL = 600 * time.Millisecond // which is its patience, too
	leave := waits(t, client, madeOf(t, "redis-fair", deps), "reports", "redis-fair")
	queue, alive := keyOf("reports", "redis-fair")+":queue", keyOf("reports", "redis-fair")+":alive"
	first := func(key string) (who string, score float64) {
		all, err := client.ZRangeWithScores(t.Context(), key, 0, 0).Result()
		if err != nil || len(all) == 0 {
			return "", 0
		}
		return all[0].Member.(string), all[0].Score //nolint:forcetypeassert // members are strings
	}
	var until float64
	if !labtest.Eventually(5*time.Second, func() bool { _, until = first(alive); return until > 0 }) {
		t.Fatal("there is no waiter in the queue")
	}
	who, place := first(queue)
	for _, err := range []error{
		client.ZAdd(t.Context(), queue, redis.Z{Score: 1000, Member: "the next"}).Err(),
		client.ZAdd(t.Context(), alive, redis.Z{Score: until + 1e6, Member: "the next"}).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !labtest.Eventually(5*time.Second, func() bool { _, now := first(alive); return now > until && now < until+1e6 }) {
		t.Error("it does not report that it is alive")
	}
	if now, score := first(queue); now != who || score != place {
		t.Errorf("the first in the queue is %s with %v, want %s with %v", now, score, who, place)
	}
	leave()
}
