//go:build prove

package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// walkFor names the variable that says how long to walk on each database, such as 4h.
const walkFor = "STOCKD_WALK_FOR"

// Walks with one new seed after the other, for ten minutes on each database or as long as
// the environment says. The seeds of the environment are walked once.
func TestProveRandomWalks(t *testing.T) {
	long := 10 * time.Minute
	if text := os.Getenv(walkFor); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", walkFor, err)
		}
	}
	for _, database := range []string{servers.MariaDB, servers.MySQL, servers.SQLite} {
		t.Run(database, func(t *testing.T) {
			s := startWalks(t, database)
			walk := func(seed uint64) {
				s.shrinking = 0
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					s.mixed(t, seed)
					s.throughEach(t, exclusiveStrategies(database), seed)
				})
			}
			given := seedsOr(t)
			for _, seed := range given {
				walk(seed)
			}
			for end := time.Now().Add(long); len(given) == 0 && time.Now().Before(end); {
				walk(rand.Uint64N(1_000_000))
			}
		})
	}
}
