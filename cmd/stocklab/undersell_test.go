//go:build prove

package main

import (
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/stock"
)

// A replica that is killed takes the units with it that it had reserved in Redis
// and not yet sold: every request is rejected while the ledger still has them. A
// restock has them counted anew.
func TestProveAReplicaThatDiesTakesItsUnits(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local}, cluster.Options{Replicas: 3})
	goods := int64(0)
	for _, strategy := range []string{"redis-decr", "redis-list"} {
		t.Run(strategy, func(t *testing.T) {
			const runs, units = 10, 600
			for range runs {
				goods++
				gone := sellAndKill(t, l, strategy, goods, units)
				if gone == 0 {
					continue
				}
				t.Logf("%d units are gone with the replica", gone)
				if err := l.cluster.Client().Restock(t.Context(), goods, 1); err != nil {
					t.Fatal(err)
				}
				if a, _ := sell(t, l, strategy, goods, nil); a.Sold != units+1 {
					t.Errorf("%d were sold after a restock, want all of %d", a.Sold, units+1)
				}
				return
			}
			t.Errorf("no unit was gone in %d runs", runs)
		})
	}
}

// forgiven is how long nginx leaves a replica alone that it could not reach.
const forgiven = 1100 * time.Millisecond

// sellAndKill sells until every request is rejected, kills a replica meanwhile, and
// returns how many units were rejected that the ledger still had.
func sellAndKill(t *testing.T, l testLab, strategy string, goods, units int64) (gone int64) {
	t.Helper()
	if err := l.cluster.Client().CreateGoods(t.Context(), goods, units); err != nil {
		t.Fatal(err)
	}
	victim := l.cluster.Replicas[goods%3]
	audit, rejected := sell(t, l, strategy, goods, killOnce(t, victim, 100))
	if !audit.Clean {
		t.Errorf("never oversells, it says: %+v", audit)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(forgiven)
	return audit.Undersold(rejected)
}

func sell(t *testing.T, l testLab, strategy string, goods int64, progress func(int)) (audit stock.Audit, rejected int64) {
	t.Helper()
	result, err := load.Run(t.Context(), load.Plan{
		URL: l.cluster.URL, Strategy: strategy, GoodsID: goods, Clients: 30, Requests: 1500, Timeout: time.Minute, Progress: progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	audit, err = l.cluster.Client().Audit(t.Context(), goods)
	if err != nil {
		t.Fatal(err)
	}
	return audit, int64(result.Rejected)
}
