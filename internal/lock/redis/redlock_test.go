package redis_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// redlock is the lock, and clients of its masters, of which some are away.
func redlock(t *testing.T, away ...int) (lock.Entry, *backend.Clients) {
	t.Helper()
	entry := must.Get(registry.Find("redlock"))(t)
	clients := new(backend.Clients)
	for i, master := range lab.Redlock(t).Nodes {
		client := clientAt(master, master.Address)
		if slices.Contains(away, i) {
			_ = client.Close() // it is away
		} else {
			t.Cleanup(func() { _ = client.Close() }) // the test is over
		}
		clients.Redlock = append(clients.Redlock, client)
	}
	return entry, clients
}

// The vote of each master is noted. Two of five may be away: the name is granted by the others.
func TestRedlockTellsTheVoteOfEachMaster(t *testing.T) {
	entry, clients := redlock(t, 1, 4)
	inVain := 0
	l := entry.New(lock.Deps{Clients: clients, TTL: time.Hour, Retry: 10 * time.Millisecond, TriedInVain: func() { inVain++ }})
	name := "votes/" + lock.NewOwner()
	votesOf := func(limit time.Duration) (votes map[string]lock.NoteKind, lease lock.Lease, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var mu sync.Mutex
		votes = make(map[string]lock.NoteKind)
		lease, err = l.Acquire(lock.WithNotes(ctx, func(n lock.Note) {
			mu.Lock()
			defer mu.Unlock()
			votes[n.By+n.Key] = n.What
		}), name)
		return votes, lease, err
	}
	away := map[string]lock.NoteKind{"2": lock.NoVote, "5": lock.NoVote}
	for _, c := range []struct {
		others lock.NoteKind
		limit  time.Duration
	}{{lock.VotedFor, 30 * time.Second}, {lock.VotedAgainst, 200 * time.Millisecond}} {
		want := maps.Clone(away)
		for _, master := range []string{"1", "3", "4"} {
			want[master] = c.others
		}
		votes, lease, err := votesOf(c.limit)
		if c.others == lock.VotedFor {
			want["stockd:{"+url.PathEscape(name)+"}:redlock"] = lock.Placed
			must.Do(t, err)
			t.Cleanup(func() { _ = lease.Release(context.Background()) }) // or it ends with its masters
		} else if !errors.Is(err, context.DeadlineExceeded) || inVain == 0 {
			t.Errorf("a name that is held is answered with %v after %d tries in vain", err, inVain)
		}
		if !maps.Equal(votes, want) {
			t.Errorf("the votes are told as %v, want %v", votes, want)
		}
	}
}

// redlock asks all masters at once: none of them answers before each has been asked, and the
// name can be granted all the same. One after the other, each would be waited for in vain. A
// busy machine may need longer than the half second that a master has, so that it is tried
// a few times.
func TestRedlockAsksAllMastersAtOnce(t *testing.T) {
	const tries = 5
	masters := lab.Redlock(t)
	for range tries {
		if isGrantedWhereAllAreAskedFirst(t, masters) {
			return
		}
	}
	t.Errorf("in none of %d tries were all masters asked before the first was given up", tries)
}

func isGrantedWhereAllAreAskedFirst(t *testing.T, masters *servers.Redlock) bool {
	t.Helper()
	entry := must.Get(registry.Find("redlock"))(t)
	clients := new(backend.Clients)
	asked := make([]*servers.Trigger, len(masters.Nodes))
	for i, master := range masters.Nodes {
		way := labtest.NewProxy(t, master.Address)
		client := clientAt(master, way.Address)
		t.Cleanup(func() { _ = client.Close() }) // the test is over
		must.Do(t, client.Ping(t.Context()).Err())
		asked[i] = way.Arm(servers.Rule{Sent: "\r\nset\r\n", Do: servers.Hold})
		clients.Redlock = append(clients.Redlock, client)
	}
	const ttl = 30 * time.Second // of which a master may take half a second to answer
	locker := entry.New(lock.Deps{Clients: clients, TTL: ttl, Retry: 10 * time.Millisecond})
	granted := make(chan lock.Lease)
	go func() {
		lease, err := locker.Acquire(t.Context(), "at-once/"+lock.NewOwner())
		if err != nil {
			t.Logf("not granted: %v", err)
		}
		granted <- lease
	}()
	within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, master := range asked {
		_ = master.Wait(within) // where it is not asked, the name is not granted
	}
	for _, master := range asked {
		master.Pass()
	}
	lease := <-granted
	if lease == nil {
		return false
	}
	must.Do(t, lease.Release(t.Context()))
	return true
}

// A name whose token cannot be issued, or comes too late, is not granted, and the next one need not wait for
// its lease.
func TestANameWithoutItsTokenIsGivenBack(t *testing.T) {
	entry, clients := redlock(t)
	broken := errors.New("no token can be issued")
	deps := lock.Deps{Clients: clients, TTL: time.Hour, Retry: 10 * time.Millisecond}
	deps.Issue = func(context.Context, string) (uint64, error) { return 0, broken }
	name := "no-token/" + lock.NewOwner()
	if lease, err := entry.New(deps).Acquire(t.Context(), name); lease != nil || !errors.Is(err, broken) {
		t.Fatalf("without a token it is answered with %v, %v", lease, err)
	} else if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(backend.Database) {
		t.Errorf("%v does not blame the database", err)
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	leaving, leave := context.WithCancel(within)
	deps.Issue = func(context.Context, string) (uint64, error) { leave(); return 6, nil }
	if lease, err := entry.New(deps).Acquire(leaving, name); lease != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a request that ends before its token comes is answered with %v, %v", lease, err)
	}
	deps.Issue = func(context.Context, string) (uint64, error) { return 7, nil }
	lease, err := entry.New(deps).Acquire(within, name)
	if err != nil {
		t.Fatalf("the next one is not granted: %v", err)
	}
	must.Do(t, lease.Release(t.Context()))
	should.Be(t, lease.Token(), 7, "its token")
}

// Of those that wait in one replica one asks the masters: a crowd would slow them down, and they would count
// as away.
func TestOneWaiterOfAReplicaAsksTheMasters(t *testing.T) {
	entry, clients := redlock(t)
	deps, name := lock.Deps{Clients: clients, TTL: time.Hour, Retry: time.Millisecond}, "one-asks/"+lock.NewOwner()
	l := entry.New(deps)
	lease := must.Get(entry.New(deps).Acquire(t.Context(), name))(t) // it is held in another replica
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var first, second locktest.Notes
	gone := make(chan error, 2)
	wait := func(told *locktest.Notes) {
		_, err := l.Acquire(lock.WithNotes(ctx, told.Take), name)
		gone <- err
	}
	asked := func(times int) {
		should.Be(t, labtest.Eventually(10*time.Second, func() bool { return first.Count(lock.VotedAgainst, "1") >= times }), true, "the first waiter did not ask … times", times)
	}
	go wait(&first)
	asked(1)
	go wait(&second)
	asked(first.Count(lock.VotedAgainst, "1") + 5)
	if n := second.Count(lock.VotedAgainst, "1"); n > 0 {
		t.Errorf("the second waiter has asked as well, %d times", n)
	}
	leave()
	for range 2 {
		should.Fail(t, <-gone, context.Canceled)
	}
	must.Do(t, lease.Release(t.Context()))
}

// The token of a lease may take long: it was counted from its votes by then.
func TestARedlockLeaseIsCountedFromItsVotes(t *testing.T) {
	entry, clients := redlock(t)
	var voted time.Time
	issue := func(context.Context, string) (uint64, error) {
		voted = time.Now()
		return 1, nil
	}
	lease := locktest.Hold(t, entry.New(lock.Deps{Clients: clients, TTL: time.Hour, Retry: 10 * time.Millisecond, Issue: issue}), "counted/"+lock.NewOwner())
	told := false
	lease.(*lock.Held).Follow(func(n lock.Note) { //nolint:forcetypeassert // it is one
		if told = true; !n.At.Before(voted) {
			t.Errorf("it is counted from %s, and its token was asked for at %s", n.At, voted)
		}
	})
	must.Do(t, lease.Release(t.Context()))
	should.Be(t, told, true, "its expiry was told")
}

// A majority frees the name, and redsync says no more. A master that did not get the release would keep the name for a TTL.
func TestAMasterThatLosesAReleaseIsAskedAgain(t *testing.T) {
	entry, clients := redlock(t, 0)
	masters, name := lab.Redlock(t).Nodes, "minority/"+lock.NewOwner()
	cut := labtest.NewProxy(t, masters[0].Address)
	clients.Redlock[0] = clientAt(masters[0], cut.Address)
	t.Cleanup(func() { _ = clients.Redlock[0].Close() }) // the test is over
	releases := lock.NewReleases()
	t.Cleanup(releases.Close)
	deps := lock.Deps{Clients: clients, TTL: time.Hour, Retry: 10 * time.Millisecond, Releases: releases}
	deps.Issue = func(context.Context, string) (uint64, error) { return 1, nil }
	lease := locktest.Hold(t, entry.New(deps), name)
	direct := labtest.RedisClient(masters[0])
	t.Cleanup(func() { _ = direct.Close() }) // the same
	key := "stockd:{" + url.PathEscape(name) + "}:redlock"
	labtest.Await(t, "the vote of the first master", 10*time.Second, func() bool { return direct.Exists(t.Context(), key).Val() == 1 })
	lost := labtest.Lose(cut, "evalsha", false)
	must.Do(t, lease.Release(t.Context()))
	labtest.AwaitReached(t, lost)
	should.Be(t, labtest.Eventually(10*time.Second, func() bool { return direct.Exists(t.Context(), key).Val() == 0 }), true, "the master keeps the name")
}
