package servers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// eachRedis runs a test on a Redis of its own, local and embedded.
func eachRedis(t *testing.T, test func(t *testing.T, r *servers.Redis)) {
	t.Helper()
	t.Run("local", func(t *testing.T) { test(t, lab.OwnRedis(t)) })
	t.Run("embedded", func(t *testing.T) {
		r := must.Get(servers.StartRedis(t.Context(), lab.Supervisor(), servers.Embedded))(t)
		t.Cleanup(func() { closed(t, r) })
		test(t, r)
	})
}

type closer interface {
	Close(ctx context.Context) error
}

func closed(t *testing.T, s closer) {
	t.Helper()
	should.Do(t, s.Close(context.Background()))
}

func TestRedisIsEmptyAfterARestart(t *testing.T) {
	eachRedis(t, func(t *testing.T, r *servers.Redis) {
		// A test's program does not know the versions that are linked to it.
		if r.Name == "" || r.Version == "" && r.Started == servers.Local {
			t.Errorf("it is %+v", r.Info)
		}
		client, address := open(t, r), r.Address
		must.Do(t, client.Set(t.Context(), "key", "value", 0).Err())
		must.Do(t, r.Kill(t.Context()))
		if err := client.Ping(t.Context()).Err(); err == nil {
			t.Error("a killed server answers")
		}
		must.Do(t, r.Restart(t.Context()))
		should.Be(t, r.Address, address, "where it is, and was before")
		// A client of before; a connection that it still had may be broken.
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Log(err)
		}
		should.Fail(t, client.Get(t.Context(), "key").Err(), redis.Nil, "the key of before the kill")
		must.Do(t, r.Restart(t.Context())) // which kills it first
	})
}

func TestARedisLetsNobodyInWithoutThePassword(t *testing.T) {
	eachRedis(t, func(t *testing.T, r *servers.Redis) {
		for _, password := range []string{"", "guess"} {
			stranger := *r
			stranger.Password = password
			err := open(t, &stranger).Set(t.Context(), "key", "value", 0).Err()
			if err == nil || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("with the password %q: %v", password, err)
			}
		}
	})
}

// A key goes by itself, to the clients that ask for it and to the scripts.
func TestARedisHasAClock(t *testing.T) {
	const ttl = 300 * time.Millisecond
	now := redis.NewScript(`local t = redis.call('TIME'); return t[1] * 1000000 + t[2]`)
	exists := redis.NewScript(`return redis.call('EXISTS', KEYS[1])`)
	eachRedis(t, func(t *testing.T, r *servers.Redis) {
		client := open(t, r)
		ask := func(s *redis.Script) int {
			t.Helper()
			n := must.Get(s.Run(t.Context(), client, []string{"key"}).Int())(t)
			return n
		}
		// Each of its answers is between two looks at our clock.
		asked := time.Now()
		before, from := ask(now), time.Now()
		if drift := time.Since(time.UnixMicro(int64(before))); drift.Abs() > time.Second {
			t.Errorf("its clock is off by %s", drift)
		}
		must.Do(t, client.Set(t.Context(), "key", "value", ttl).Err())
		if left := client.PTTL(t.Context(), "key").Val(); left <= 0 || left > ttl {
			t.Errorf("the key has %s left of %s", left, ttl)
		}
		for ask(exists) == 1 && time.Since(from) < 10*ttl {
			time.Sleep(time.Millisecond)
		}
		lived := time.Since(from)
		if lived < ttl-time.Millisecond || lived > 10*ttl { // it counts whole milliseconds
			t.Errorf("the key lived %s, want %s", lived, ttl)
		}
		should.Fail(t, client.Get(t.Context(), "key").Err(), redis.Nil, "the key that went")
		passed := time.Duration(ask(now)-before) * time.Microsecond
		if most := time.Since(asked); passed < lived-time.Millisecond || passed > most+time.Millisecond {
			t.Errorf("its clock went on by %s, ours by %s to %s", passed, lived, most)
		}
	})
}

// A paused server must not keep the lab from ending.
func TestAPausedServerIsClosed(t *testing.T) {
	r := lab.OwnRedis(t)
	must.Do(t, r.Pause(t.Context()))
	closed(t, r)
	closed(t, r)
}

func TestAnEmbeddedServerSaysThatItCannotBePaused(t *testing.T) {
	r := must.Get(servers.StartRedis(t.Context(), lab.Supervisor(), servers.Embedded))(t)
	defer closed(t, r)
	if err := errors.Join(r.Pause(t.Context()), r.Resume(t.Context())); err == nil || !strings.Contains(err.Error(), "pause miniredis") || !strings.Contains(err.Error(), "resume miniredis") {
		t.Errorf("the error is %v", err)
	}
}

// Two that start at the same time may be given the same free port: which has it is not
// taken for the other.
func TestARedisOfAnotherProcessIsNotTakenForOurs(t *testing.T) {
	if err := lab.OwnRedis(t).AsksFor(t.Context(), os.Getpid()); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("it is taken for this process: %v", err)
	}
}

func TestRedlockIsFiveMastersOfOnePassword(t *testing.T) {
	local := func(t *testing.T) *servers.Redlock { return lab.OwnRedlock(t) }
	embedded := func(t *testing.T) *servers.Redlock {
		r := must.Get(servers.StartRedlock(t.Context(), lab.Supervisor(), servers.Embedded))(t)
		t.Cleanup(func() { closed(t, r) })
		return r
	}
	for name, start := range map[string]func(*testing.T) *servers.Redlock{"local": local, "embedded": embedded} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			if !strings.HasPrefix(r.String(), "5 × ") || len(r.Nodes) != 5 {
				t.Errorf("it is %s of %d nodes", r, len(r.Nodes))
			}
			password := r.Nodes[0].Password
			addresses := make([]string, len(r.Nodes))
			for i, node := range r.Nodes {
				addresses[i] = node.Address
				same := *node
				same.Password = password
				client := open(t, &same)
				// What one stores, the others do not know.
				if n, err := client.Incr(t.Context(), "key").Result(); err != nil || n != 1 {
					t.Errorf("%s counts %d: %v", node.Address, n, err)
				}
			}
			want := []string{"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses, ","), "STOCKD_REDLOCK_USERNAME=stockd", "STOCKD_REDLOCK_PASSWORD=" + password}
			should.Equal(t, r.Conn().Env(), want, "a replica gets")
			must.Do(t, r.Nodes[2].Kill(t.Context()))
			for i, node := range r.Nodes {
				if err := open(t, node).Ping(t.Context()).Err(); (err == nil) == (i == 2) {
					t.Errorf("node %d: %v", i, err)
				}
			}
		})
	}
}

// A power cut takes what was not on the disk, and nothing else. Whether the write is there is
// up to Redis and the kernel: it is tried until it once is not.
func TestAPowerCutTakesWhatIsNotOnTheDisk(t *testing.T) {
	masters := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedlockWith, servers.RedlockOptions{EverySecond: true})
	for range 10 {
		if lost, there := cutAfterSet(t, masters.Nodes[0]); there != (lost == 0) {
			t.Fatalf("%d bytes were lost, and the key is there: %t", lost, there)
		} else if lost > 0 {
			return
		}
	}
	t.Error("nothing was ever lost")
}

func TestAPowerCutTakesNothingWhereEachCommandIsOnTheDisk(t *testing.T) {
	masters := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedlockWith, servers.RedlockOptions{Durable: true})
	if lost, there := cutAfterSet(t, masters.Nodes[0]); lost != 0 || !there {
		t.Errorf("%d bytes were lost, and the key is there: %t", lost, there)
	}
}

// cutAfterSet sets a key, cuts the power, and tells what was lost and whether the key is there.
func cutAfterSet(t *testing.T, r *servers.Redis) (lost int64, there bool) {
	t.Helper()
	ctx := within(t, limit)
	awaitOnDisk(ctx, t, r)
	client := open(t, r)
	must.Do(t, client.Set(ctx, "key", "value", 0).Err())
	lost = must.Get(r.CutPower(ctx))(t)
	must.Do(t, r.Restart(ctx))
	client = open(t, r)
	err := client.Get(ctx, "key").Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	there = err == nil
	must.Do(t, client.FlushAll(ctx).Err())
	return lost, there
}

func awaitOnDisk(ctx context.Context, t *testing.T, r *servers.Redis) {
	t.Helper()
	err := r.AwaitOnDisk(ctx)
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		labtest.Need(t, "a disk that tells what is on it", false, missing.How)
	}
	must.Do(t, err)
}
