package sourcelock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Scripts as the sources print them.
const (
	lockOfTheListing = `if redis.call('EXISTS', KEYS[1]) == 0 then
	redis.call('SET', KEYS[1], ARGV[1]) redis.call('EXPIRE', KEYS[1], ARGV[2]) return 1 else return 0 end`
	unlockOfTheListing = `if redis.call('get', KEYS[1], ARGV[1] == 1) then redis.call('del', KEYS[1]) return true else return false end`
	renewOfTheListing  = `if (redis.call('HEXISTS', KEYS[1], ARGV[1])) then return 0 else redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end`
)

// onKey is a Redis, and a key of this test in it, which a command has made.
func onKey(t *testing.T, command string, args ...any) (r *redis.Client, key string) {
	t.Helper()
	r, err := lab.Redis(t).Client()
	if err != nil {
		t.Fatal(err)
	}
	key = t.Name()
	t.Cleanup(func() {
		r.Del(context.WithoutCancel(t.Context()), key)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Do(t.Context(), append([]any{command, key}, args...)...).Err(); err != nil {
		t.Fatal(err)
	}
	return r, key
}

// 30,000 milliseconds are given to a command that counts seconds.
func TestTheLockOfTheListingLastsForHours(t *testing.T) {
	r, key := onKey(t, "DEL")
	won, err := r.Eval(t.Context(), lockOfTheListing, []string{key}, "uuid", 30000).Int()
	if ttl := r.TTL(t.Context(), key).Val(); err != nil || won != 1 || ttl < 8*time.Hour {
		t.Errorf("it answers %d (%v), and the key expires after %s", won, err, ttl)
	}
}

// Redis rejects the comparison that is an argument.
func TestTheUnlockOfTheListingReleasesNothing(t *testing.T) {
	r, key := onKey(t, "SET", "uuid")
	answer, err := r.Eval(t.Context(), unlockOfTheListing, []string{key}, "uuid").Result()
	if err == nil || !strings.Contains(err.Error(), "must be strings or integers") {
		t.Errorf("it answers %v, %v", answer, err)
	}
	if n := r.Exists(t.Context(), key).Val(); n != 1 {
		t.Error("the key is gone")
	}
}

// 0 is true in Lua, and the branches are the wrong way round.
func TestTheRenewalOfTheListingRenewsNothing(t *testing.T) {
	const ttl, more = time.Minute, time.Hour
	r, key := onKey(t, "HSET", "uuid", 1)
	if err := r.PExpire(t.Context(), key, ttl).Err(); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"uuid", "another"} {
		answer, err := r.Eval(t.Context(), renewOfTheListing, []string{key}, owner, more.Milliseconds()).Int()
		if left := r.PTTL(t.Context(), key).Val(); err != nil || answer != 0 || left > ttl {
			t.Errorf("for %s it answers %d (%v), and %s are left", owner, answer, err, left)
		}
	}
}

// The time at which the lock expires, in milliseconds, is given as the seconds that it lasts.
func TestTheExpiryOfTheImprovedListingIsTensOfThousandsOfYears(t *testing.T) {
	const year = 365 * 24 * 3600
	r, key := onKey(t, "SET", "time")
	if err := r.Do(t.Context(), "EXPIRE", key, time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	seconds, err := r.Do(t.Context(), "TTL", key).Int64()
	if err != nil || seconds < 50_000*year {
		t.Errorf("the key expires after %d years (%v)", seconds/year, err)
	}
}
