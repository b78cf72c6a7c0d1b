//go:build prove

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Three replicas sell out on each topology, each time while a member of it dies: a
// master, or the leader. The sale goes on, and afterwards the ledger has every
// reported order, except where the topology may lose some.
func TestProveSalesOutliveAMember(t *testing.T) {
	const rounds = 3
	for name, start := range topologies() {
		t.Run(name, func(t *testing.T) {
			cmdtest.NeedLocal(t)
			top := start(t, labtest.StartSupervisor(t))
			l := startLabOf(t,
				servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
				cluster.Options{Replicas: 3, Env: append(top.env, "STOCKD_LOCK_TTL=3s")})
			store, err := l.database.Open(t.Context(), "test", 4)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close() //nolint:errcheck // the test is over
			for _, subject := range top.strategies {
				for round := range rounds {
					sale := &killedSale{lab: l, store: store, subject: subject, goods: l.goods.Add(1), units: 1500, reported: make(map[string]string)}
					if subject.locks() {
						sale.units = 400
					}
					t.Run(fmt.Sprintf("%s/%d", subject, round+1), func(t *testing.T) { sale.outlivesMember(t, top) })
				}
			}
		})
	}
}

// locks tells whether each sale takes a lock, which takes its time.
func (k killed) locks() bool {
	return k.strategy != "redis-stock" && k.strategy != "redis-decr" && k.strategy != "redis-list"
}

func (s *killedSale) outlivesMember(t *testing.T, top topology) {
	if err := s.lab.cluster.Client().CreateGoods(t.Context(), s.goods, s.units); err != nil {
		t.Fatal(err)
	}
	victim, err := top.victim(t.Context(), s.subject.strategy, s.goods)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	before := 0
	s.sell(t, func(ctx context.Context) error {
		err := victim.Kill(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		before = len(s.reported)
		return err
	})
	took := time.Since(begun)
	s.audit(t) // when it is done, nothing is pending
	s.buy(t, 24)
	audit, lost := s.audit(t), s.lost(t)
	t.Logf("%s with %s: sold %d of %d in %s, retried %d times; %d orders reported, of which the ledger lacks %d; oversold %d, lost %d",
		s.subject, top.name, audit.Sold, s.units, took.Round(10*time.Millisecond), s.again, len(s.reported), len(lost), audit.Oversold, audit.Lost)
	plain := s.subject.modifier == ""
	if mayDamage := plain && top.mayDamage[s.subject.strategy]; !audit.Clean && !mayDamage {
		t.Errorf("the audit is %+v", audit)
	}
	if mayLose := plain && top.mayLose[s.subject.strategy]; len(lost) > 0 && !mayLose {
		t.Errorf("the ledger lacks %d orders that were reported to buyers: %v", len(lost), lost)
	}
	if int64(before) == s.units {
		t.Error("the member died when all was sold")
	}
	if err := top.mend(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
}
