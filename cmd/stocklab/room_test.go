package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// Replicas are killed between joining and admission, between admission and purchase, and in mid-purchase; then Redis loses
// everything. The ticket of a purchase admits no second time, and all units are sold once.
func TestAWaitingRoomSurvivesKillsAndALossOfRedis(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	const units, buyers = 4, 6
	server := must.Get(servers.StartRedis(t.Context(), labtest.StartSupervisor(t), servers.Local))(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
		shop.Replicas{Count: 2, Env: append(server.Env(), "STOCKD_QUEUE_ITEMS=all", "STOCKD_QUEUE_ADMISSION=20s", "STOCKD_QUEUE_SECRET="+strings.Repeat("secret", 6))})
	goods := l.create(t, units)
	at := func(n int) client.Client { return l.cluster.ClientTo(l.cluster.Replicas[n%2]).Shop() }
	kill := func(n int) {
		t.Helper()
		must.Do(t, l.cluster.Replicas[n%2].Kill(t.Context()), l.cluster.Replicas[n%2].Restart(t.Context()))
	}
	purchase := func(n int) client.Purchase {
		return client.Purchase{GoodsID: goods, UserID: fmt.Sprint("buyer-", n), Strategy: "sql-conditional"}
	}
	await := func(state string, replica, n int) (place client.Ticket) {
		t.Helper()
		if !labtest.Eventually(30*time.Second, func() bool {
			var err error
			place, err = at(replica).Queue(t.Context(), purchase(n)) // again it keeps the place
			return err == nil && place.State == state
		}) {
			t.Fatalf("buyer %d is not %s: %+v", n, state, place)
		}
		return place
	}
	for n := range buyers {
		must.Get(at(0).Queue(t.Context(), purchase(n)))(t)
	}
	kill(0)
	first := await(client.Admitted, 1, 0)
	kill(1)
	bought := purchase(0)
	bought.RequestID = "in-mid-purchase"
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = at(0).Deduct(t.Context(), bought) // it may have been sold
	}()
	kill(0)
	<-done
	must.Get(at(1).Deduct(t.Context(), bought))(t)
	again := bought
	again.RequestID = "with-the-same-admission"
	should.Reject(at(0).Deduct(t.Context(), again))(t, client.ErrNotAdmitted)
	wiped := labtest.RedisClient(server)
	defer wiped.Close() //nolint:errcheck // the test is over
	must.Do(t, wiped.FlushAll(t.Context()).Err())
	should.Be(t, must.Get(at(1).Ticket(t.Context(), first.Ticket))(t).State, client.Ended, "the ticket that has bought")
	should.Reject(at(1).Deduct(t.Context(), again))(t, client.ErrNotAdmitted)
	for n := 1; n < units; n++ {
		await(client.Admitted, n, n)
		must.Get(at(n+1).Deduct(t.Context(), purchase(n)))(t)
	}
	for n := units; n < buyers; n++ {
		await(client.Closed, n, n)
		should.Reject(at(n).Deduct(t.Context(), purchase(n)))(t, client.ErrNotAdmitted)
	}
	audit := must.Get(l.cluster.Client().Owner().AuditInFull(t.Context(), goods))(t)
	if !audit.Clean || audit.Sold != units || audit.Orders != units {
		t.Errorf("the audit is %+v", audit)
	}
}
