package sourcelock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
)

func quorums() []string {
	return []string{sourcelock.QuorumInTime, sourcelock.QuorumUntimed, sourcelock.QuorumAcknowledged}
}

// values are those of a key on each master.
func values(t *testing.T, masters []redis.UniversalClient, key string) (all []string) {
	t.Helper()
	for _, master := range masters {
		value, err := master.Get(context.WithoutCancel(t.Context()), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}

// block has another hold a key on some masters, until the test ends.
func block(t *testing.T, masters []redis.UniversalClient, key string) {
	t.Helper()
	for _, master := range masters {
		must.Do(t, master.Set(t.Context(), key, "another's", time.Minute).Err())
		t.Cleanup(func() { master.Del(context.WithoutCancel(t.Context()), key) })
	}
}

// More than half of the masters grant a name, each with the same owner and the TTL; what fewer
// have granted is given back, and so is everything with the release, but nothing of another's.
func TestAMajorityOfTheMastersGrantsAName(t *testing.T) {
	for _, kind := range quorums() {
		l, name := contend(t, kind), "majority-"+kind
		key, majority := keyOf(kind, name), len(l.Redlock)/2+1
		var votes []lock.Note
		ctx := lock.WithNotes(t.Context(), func(n lock.Note) { votes = append(votes, n) })
		block(t, l.Redlock[majority:], key)
		lease, err := l.Acquire(ctx, name)
		if err != nil {
			t.Fatalf("%s: a majority is free: %v", kind, err)
		}
		held := values(t, l.Redlock, key)
		owners := slices.Compact(slices.Clone(held[:majority]))
		if len(owners) != 1 || owners[0] == "" || owners[0] == "another's" {
			t.Errorf("%s: the masters have %q, want one owner on the first %d", kind, held, majority)
		}
		if left := l.Redlock[0].PTTL(t.Context(), key).Val(); left > lasting || left < lasting/2 {
			t.Errorf("%s: a key expires in %s, want %s", kind, left, lasting)
		}
		for i, n := range votes[:min(len(votes), len(l.Redlock))] {
			if want := map[bool]lock.NoteKind{true: lock.VotedFor, false: lock.VotedAgainst}[i < majority]; n.What != want || n.By != string(rune('1'+i)) {
				t.Errorf("%s: vote %d is %+v, want %s", kind, i+1, n, want)
			}
		}
		if len(votes) != len(l.Redlock) {
			t.Errorf("%s: %d votes of %d masters are told", kind, len(votes), len(l.Redlock))
		}
		locktest.Release(t, lease)
		if held = values(t, l.Redlock, key); !slices.Equal(held[:majority], make([]string, majority)) || slices.Contains(held[majority:], "") {
			t.Errorf("%s: after the release the masters have %q, want what is another's", kind, held)
		}
		block(t, l.Redlock[majority-1:majority], key)
		leave, cancel := context.WithCancel(t.Context()) // with the last vote: one that is cut off may be a grant
		last := lock.WithNotes(leave, func(n lock.Note) {
			if n.By == strconv.Itoa(len(l.Redlock)) {
				cancel()
			}
		})
		assertNotGrantedUnder(last, t, l, name)
		if held = values(t, l.Redlock, key); !slices.Equal(held[:majority-1], make([]string, majority-1)) {
			t.Errorf("%s: of a try that failed the masters keep %q", kind, held)
		}
	}
}

// A lease ends one TTL after it was asked for: it is not renewed.
func TestALeaseOfAMajorityEndsAfterItsTTL(t *testing.T) {
	together(t, quorums(), func(t *testing.T, kind string) {
		l := contend(t, kind, lastingFor(150*time.Millisecond))
		start := time.Now()
		lease := locktest.Hold(t, l, "ends-"+kind)
		labtest.AwaitLoss(t, lease, 5*time.Second)
		if took := time.Since(start); took < 100*time.Millisecond { // a part is left for clocks that differ
			t.Errorf("%s: the lease ended after %s", kind, took)
		}
	})
}
