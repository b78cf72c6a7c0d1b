package servers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// A power cut takes what was not on the disk, and nothing else. Whether the write is there is
// up to Redis and the kernel: it is tried until it once is not.
func TestAPowerCutTakesWhatIsNotOnTheDisk(t *testing.T) {
	masters := lab.OwnRedlockWith(t, servers.RedlockOptions{EverySecond: true})
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
	masters := lab.OwnRedlockWith(t, servers.RedlockOptions{Durable: true})
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
	must(t, client.Set(ctx, "key", "value", 0).Err())
	lost, err := r.CutPower(ctx)
	must(t, err)
	must(t, r.Restart(ctx))
	client = open(t, r)
	err = client.Get(ctx, "key").Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	there = err == nil
	must(t, client.FlushAll(ctx).Err())
	return lost, there
}

func awaitOnDisk(ctx context.Context, t *testing.T, r *servers.Redis) {
	t.Helper()
	err := r.AwaitOnDisk(ctx)
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		labtest.Need(t, "a disk that tells what is on it", false, missing.How)
	}
	must(t, err)
}
