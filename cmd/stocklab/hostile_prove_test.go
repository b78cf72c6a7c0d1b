//go:build prove

package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/hostile"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Ten minutes with every server there is, and a seed that was not picked. Shop, buyers
// and attacker share one machine: the attacker asks for less where the race detector
// makes the shop slow.
func TestProveAHostileTenMinutes(t *testing.T) {
	cmdtest.NeedLockServers(t)
	attacked(t, hostile.Plan{
		Servers: servers.Choice{Mode: servers.Local}, Timed: true,
		Seed: rand.Uint64N(1_000_000), Baseline: time.Minute, Duration: 10 * time.Minute, Rate: 400.0 / raceShadow, HonestRate: 30,
	})
}
