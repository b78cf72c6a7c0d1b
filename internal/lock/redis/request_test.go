package redis_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	redislock "github.com/stockd/stockd/internal/lock/redis"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// The locks of two kinds, and of two installations, do not meet: one name is held through all
// of them at once, and each tells the key of its own.
func TestLocksOfTwoKindsOrInstallationsDoNotMeet(t *testing.T) {
	server := lab.Redis(t)
	client := labtest.RedisClient(server)
	for _, prefix := range []string{"", "shop", "shop2"} {
		for _, e := range onOne() {
			deps := redisDeps(clientAt(server, server.Address))
			deps.Prefix = prefix
			key := map[string]string{"": "stockd"}[prefix] + prefix + ":{everywhere}:" + e.Name
			var noted locktest.Notes
			ctx, cancel := context.WithTimeout(lock.WithNotes(t.Context(), noted.Take), 5*time.Second)
			lease, err := madeOf(t, e.Name, deps).Acquire(ctx, "everywhere")
			cancel()
			if err != nil {
				t.Fatalf("%s of the installation %q meets another: %v", e.Name, prefix, err)
			}
			if n := client.Exists(t.Context(), key).Val(); n != 1 || noted.Count(lock.Placed, key) != 1 || len(noted.All()) != 1 {
				t.Errorf("it is kept under %s: %v, and it told %+v", key, n == 1, noted.All())
			}
			defer func() {
				must.Do(t, lease.Release(t.Context()))
			}()
		}
	}
	t.Cleanup(func() { _ = client.Close() }) // the test is over
}

// A lease is counted from before Redis was asked, and not from the answer: Redis counts from in
// between.
func TestALeaseIsCountedFromItsRequest(t *testing.T) {
	server := lab.Redis(t)
	for _, e := range onOne() {
		if !e.Guarantees.SurvivesCrash {
			continue // it never ends
		}
		t.Run(e.Name, func(t *testing.T) {
			way := labtest.NewProxy(t, server.Address)
			l := onRedis(t, e.Name, clientAt(server, way.Address))
			labtest.HoldAndRelease(t, l, "counted-"+e.Name) // the counter of its tokens is there
			held := way.Arm(servers.Rule{Sent: "counted-" + e.Name, Do: servers.Hold})
			granted := make(chan lock.Lease, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				lease, err := l.Acquire(ctx, "counted-"+e.Name)
				if err != nil {
					t.Error(err)
				}
				granted <- lease
			}()
			labtest.AwaitReached(t, held)
			reached := time.Now()
			held.Pass()
			lease := <-granted
			if lease == nil {
				return
			}
			var noted locktest.Notes
			lease.(*lock.Held).Follow(noted.Take) //nolint:forcetypeassert // each of them is one
			if len(noted.All()) != 1 || noted.All()[0].TTL != redisTTL || !noted.All()[0].At.Before(reached) {
				t.Errorf("it told %+v, want an expiry %s from before %s", noted.All(), redisTTL, reached)
			}
			must.Do(t, lease.Release(t.Context()))
		})
	}
}

// A request that is executed twice, because its answer was lost, is one hold, and has the same
// answer. It and each further hold of the owner begin the TTL anew.
func TestARequestThatIsSentAgainHasTheSameAnswer(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range []string{"redis-lua", "redis-reentrant", "redis-fair"} {
		t.Run(name, func(t *testing.T) {
			client := clientAt(server, server.Address)
			l, held := onRedis(t, name, client), "again-"+lock.NewOwner()
			key := keyOf(held, name)
			var tokens []uint64
			for _, hold := range []string{"1", "1", "2"} {
				if name == "redis-lua" && hold == "2" {
					continue // no owner comes twice
				}
				won, token, err := redislock.Ask(t.Context(), l, held, "me", hold)
				if err != nil || !won {
					t.Fatalf("hold %s: %v (%v)", hold, won, err)
				}
				if left := expiryOf(t, client, key); left <= 0 || left > redisTTL {
					t.Errorf("hold %s: it expires in %s, want %s", hold, left, redisTTL)
				}
				tokens = append(tokens, token)
				should.Be(t, token, tokens[0], "hold", hold, "the tokens are", tokens)
				if name != "redis-lua" {
					fields, want := client.HLen(t.Context(), key).Val(), map[string]int64{"1": 3, "2": 4}[hold]
					should.Be(t, fields, want, "hold", hold, "the fields of the lock: the owner, the token, and one for each hold")
				}
				must.Do(t, client.PExpire(t.Context(), key, time.Hour).Err())
			}
			if won, _, err := redislock.Ask(t.Context(), l, held, "another", "3"); won || err != nil {
				t.Errorf("another owner is answered with %v (%v)", won, err)
			}
		})
	}
}

// A floor that is not known is no grant, and the failure of its store; the name is free for the next.
func TestAFloorThatIsNotKnownIsNoGrant(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range scripted() {
		deps := redisDeps(clientAt(server, server.Address))
		deps.TTL = time.Hour
		deps.Floor = func(context.Context, string) (uint64, error) {
			return 0, &stock.BackendError{Backend: string(backend.SQLite), Err: errors.New("the disk is full")}
		}
		_, err := madeOf(t, name, deps).Acquire(t.Context(), "unknown-"+name)
		if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(backend.SQLite) || !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: %v, want %v and the store's failure", name, err, lock.ErrNotAcquired)
		}
		labtest.HoldAndRelease(t, onRedis(t, name, clientAt(server, server.Address)), "unknown-"+name)
	}
}

// A subscription that begins wakes its waiters, because messages may have been lost before it;
// and where none comes, they look again by themselves.
func TestAWaiterTellsWhatWokeIt(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range []string{"redis-reentrant", "redis-fair"} {
		client := clientAt(server, server.Address)
		deps := redisDeps(client)
		deps.TTL = 300 * time.Millisecond
		var noted locktest.Notes
		leave := waits(t, client, madeOf(t, name, deps), "told", name, noted.Take)
		for _, by := range []string{lock.ByPubSub, lock.ByTimeout} {
			should.Be(t, labtest.Eventually(5*time.Second, func() bool { return noted.Count(lock.Woken, by) > 0 }), true, "no waiter tells that it was woken by …", name, by)
		}
		leave()
	}
}

// A release wakes the first waiter that is alive, and not one that has died before it.
func TestAReleaseWakesNoDeadWaiter(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	l, key := onRedis(t, "redis-fair", client), keyOf("alive", "redis-fair")
	woken := releases(t, client)
	lease := locktest.Hold(t, l, "alive")
	queued(t, client, "alive", "the dead", 1, time.Now().Add(-time.Hour))
	queued(t, client, "alive", "the living", 2, time.Now().Add(time.Hour))
	must.Do(t, lease.Release(t.Context()))
	assertWoken(t, woken, key, "the living")
	should.Equal(t, client.ZRange(t.Context(), key+":queue", 0, -1).Val(), []string{"the living"}, "the queue is")
}

// Two clients find the same expired time: the first to replace it has the name, the second not.
func TestAnExpiredTimeIsTakenOverOnce(t *testing.T) {
	server := lab.Redis(t)
	way := labtest.NewProxy(t, server.Address)
	client := clientAt(server, server.Address)
	now := time.Now().Add(time.Hour) // by the clock of the clients
	deps := redisDeps(client)
	deps.Now = func() time.Time { return now }
	first := madeOf(t, "redis-getset", deps)
	deps = redisDeps(clientAt(server, way.Address))
	deps.Now = func() time.Time { return now }
	second, key := madeOf(t, "redis-getset", deps), keyOf("expired", "redis-getset")
	// By the clock of the machine it has not.
	must.Do(t, client.Set(t.Context(), key, now.Add(-time.Minute).UnixMilli(), 0).Err())
	late := way.Arm(servers.Rule{Sent: "\r\ngetset\r\n", Do: servers.Hold})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := locktest.HoldLater(ctx, second, "expired")
	labtest.AwaitReached(t, late)
	lease := locktest.Hold(t, first, "expired")
	should.Be(t, client.Get(t.Context(), key).Val(), strconv.FormatInt(now.Add(redisTTL).UnixMilli(), 10), "by the clock that was given it is held until")
	late.Pass()
	time.AfterFunc(100*time.Millisecond, cancel)
	should.Fail(t, answered.Fails(t), context.Canceled)
	must.Do(t, lease.Release(t.Context()))
}

// A holder that compares before it deletes finds that its time is over.
func TestAnOwnerThatHasExpiredHasLostTheName(t *testing.T) {
	server := lab.Redis(t)
	client := clientAt(server, server.Address)
	l, key := onRedis(t, "redis-setnx-owner", client), keyOf("over", "redis-setnx-owner")
	for _, then := range []func() error{
		func() error { return client.Del(t.Context(), key).Err() },
		func() error { return client.Set(t.Context(), key, "another", time.Second).Err() },
	} {
		lease := locktest.Hold(t, l, "over")
		must.Do(t, then())
		should.Fail(t, lease.Release(t.Context()), lock.ErrLost)
	}
	should.Be(t, client.Get(t.Context(), key).Val(), "another", "another's lock was deleted")
}

// The owner of a fair lock takes it again before those that wait: they wait for the owner, which would wait
// for them.
func TestAnOwnerEntersAgainBeforeThoseThatWait(t *testing.T) {
	server := lab.Redis(t)
	client, name := clientAt(server, server.Address), "enters-"+lock.NewOwner()
	l := onRedis(t, "redis-fair", client)
	ctx, cancel := context.WithTimeout(lock.WithOwner(t.Context(), "me"), redisTTL/2)
	defer cancel()
	first := must.Get(l.Acquire(ctx, name))(t)
	queued(t, client, name, "another", 1, time.Now().Add(time.Hour))
	second := must.Get(l.Acquire(ctx, name))(t)
	must.Do(t, errors.Join(second.Release(t.Context()), first.Release(t.Context())))
}

// Tries that found the name taken are counted, by those locks that try again.
func TestTriesInVainAreCounted(t *testing.T) {
	server := lab.Redis(t)
	for _, e := range onOne() {
		tries := 0
		deps := redisDeps(clientAt(server, server.Address))
		deps.TriedInVain = func() { tries++ }
		l := madeOf(t, e.Name, deps)
		lease := locktest.Hold(t, l, "in-vain")
		should.Be(t, tries, 0, "a try that was granted the name is counted", e.Name)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _ = l.Acquire(ctx, "in-vain") // it is held
		cancel()
		if notified := e.Name == "redis-reentrant" || e.Name == "redis-fair"; (tries == 0) != notified {
			t.Errorf("%s: %d tries in vain are counted", e.Name, tries)
		}
		must.Do(t, lease.Release(t.Context()))
	}
}

// redsync gives a round trip a third of a lease. That this is over, because all connections are in use, is a
// failure of Redis: the wait for the name has not ended.
func TestTheTimeOfOneRoundTripIsNoEndOfTheWait(t *testing.T) {
	server := lab.Redis(t)
	client := backend.NewRedis(backend.RedisOptions{Addresses: []string{server.Address}, Password: server.Password, Timeout: time.Minute, PoolSize: 1})
	deps := redisDeps(client)
	deps.TTL = 300 * time.Millisecond
	l := madeOf(t, "redsync", deps)
	labtest.HoldAndRelease(t, l, "round-trip")
	only := client.(*redis.Client).Conn() //nolint:forcetypeassert // it is no cluster
	defer only.Close()                    //nolint:errcheck // the test is over
	must.Do(t, only.Ping(t.Context()).Err())
	_, err := l.Acquire(t.Context(), "round-trip")
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(backend.Redis) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a connection the name is not granted because of %v, want the failure of redis", err)
	}
}

// afterNext has a client do once what is stored, after the next script that is run, or transaction
// or SETNX, and before its answer is seen.
func afterNext(client redis.UniversalClient) *atomic.Pointer[func()] {
	next := new(atomic.Pointer[func()])
	client.AddHook(locktest.Hook(func(_ context.Context, send func() error, commands ...redis.Cmder) error {
		err := send()
		asked := commands[min(1, len(commands)-1)].Name() // the first one begins a transaction
		if err == nil && slices.Contains([]string{"eval", "evalsha", "set", "setnx"}, asked) {
			if do := next.Swap(nil); do != nil {
				(*do)()
			}
		}
		return err
	}))
	return next
}

// A name that is given back after a waiter has looked, and before it can be woken, is not missed: the
// waiter looks once more before it sleeps.
func TestAReleaseBeforeTheSleepIsNotMissed(t *testing.T) {
	server := lab.Redis(t)
	for _, kind := range []string{"redis-reentrant", "redis-fair"} {
		holder, client := onRedis(t, kind, clientAt(server, server.Address)), clientAt(server, server.Address)
		waiter, next := onRedis(t, kind, client), afterNext(client)
		handoff(t, holder, waiter, "missed") // from now on it listens, and is not woken because that began
		release := func(lease lock.Lease) {
			must.Do(t, lease.Release(t.Context()))
		}
		held := locktest.Hold(t, holder, "missed")
		once := func() { release(held) }
		next.Store(&once)
		var noted locktest.Notes
		ctx, cancel := context.WithTimeout(lock.WithNotes(t.Context(), noted.Take), 30*time.Second)
		defer cancel()
		lease := must.Get(waiter.Acquire(ctx, "missed"))(t)
		if n := noted.Count(lock.Woken, lock.ByTimeout) + noted.Count(lock.Woken, lock.ByPubSub); n > 0 {
			t.Errorf("%s slept %d times beside a free name", kind, n)
		}
		release(lease)
	}
}

const day = 24 * time.Hour

func expiryOf(t *testing.T, client redis.UniversalClient, key string) time.Duration {
	t.Helper()
	return must.Get(client.PTTL(t.Context(), key).Result())(t)
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
			must.Do(t, client.PExpire(t.Context(), counter, time.Hour).Err())
			hold()
			for _, lost := range []func() error{
				func() error { return client.Del(t.Context(), counter).Err() },
				func() error { return client.Set(t.Context(), counter, 7, 0).Err() },
			} {
				must.Do(t, lost())
				hold()
			}
			must.Do(t, l.(interface { //nolint:forcetypeassert // each of them can
				Reseed(ctx context.Context, name string) error
			}).Reseed(t.Context(), "expires-"+name))
			hold()
			const large = 1<<53 + 2 // the next one is none of Lua's numbers
			must.Do(t, client.Set(t.Context(), counter, large, 0).Err())
			hold()
			should.Be(t, last, large+1, "the token after", large)
		})
	}
}

// A counter that is lifted to the floor expires like any other.
func TestACounterThatIsLiftedExpires(t *testing.T) {
	server := lab.Redis(t)
	for _, name := range scripted() {
		client := clientAt(server, server.Address)
		entry := must.Get(registry.Find(name))(t)
		asked := 0
		floor := func(context.Context, string) (uint64, error) { asked++; return 1000, nil }
		l := entry.New(lock.Deps{Clients: &backend.Clients{Redis: client}, TTL: redisTTL, Retry: 10 * time.Millisecond, Floor: floor})
		must.Do(t, l.(interface { //nolint:forcetypeassert // each of them can
			Reseed(ctx context.Context, name string) error
		}).Reseed(t.Context(), "lifted-"+name))
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
		should.Be(t, labtest.Eventually(5*time.Second, func() bool { return expiryOf(t, client, what) >= 0 }), true, "… does not expire while a waiter is in it", what)
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
	must.Do(t, client.HSet(t.Context(), keyOf(name, kind), "owner", "another", "token", 1, "hold:1", 1).Err())
	ctx, cancel := context.WithCancel(lock.WithNotes(t.Context(), func(n lock.Note) {
		for _, note := range notes {
			note(n)
		}
	}))
	left := locktest.HoldLater(ctx, l, name)
	return func() {
		t.Helper()
		cancel()
		should.Fail(t, left.Fails(t), context.Canceled)
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
	labtest.Await(t, "a waiter in the queue", 5*time.Second, func() bool { _, until = first(alive); return until > 0 })
	who, place := first(queue)
	queued(t, client, "reports", "the next", 1000, time.UnixMilli(int64(until)+1e6))
	should.Be(t, labtest.Eventually(5*time.Second, func() bool { _, now := first(alive); return now > until && now < until+1e6 }), true, "it does not report that it is alive")
	if now, score := first(queue); now != who || score != place {
		t.Errorf("the first in the queue is %s with %v, want %s with %v", now, score, who, place)
	}
	leave()
}
