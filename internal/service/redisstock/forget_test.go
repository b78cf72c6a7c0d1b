package redisstock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func TestAScriptFlushLosesNothing(t *testing.T) {
	server := lab.OwnRedis(t)
	s := open(t, server, 600)
	a, b := s.replica(t, "a"), s.replica(t, "b")
	ended := inTheMiddle(t, func() {
		should.Do(t, s.client.ScriptFlush(t.Context()).Err())
	})
	reported := crowd(t, a, b)
	ended()
	s.assertExact(t, a, reported)
	should.Be(t, len(reported), 600, "of 600 were sold")
}

// inTheMiddle does something five times during a sale.
func inTheMiddle(t *testing.T, do func()) (ended func()) {
	t.Helper()
	var group sync.WaitGroup
	group.Go(func() {
		for range 5 {
			time.Sleep(20 * time.Millisecond)
			do()
		}
	})
	return group.Wait
}

// Redis loses all that it knows, again and again: what only it knew is lost, and
// never is more sold than there was.
func TestARedisThatForgetsNeverOversells(t *testing.T) {
	for _, c := range []struct {
		name   string
		forget func(t *testing.T, s *shop) error
	}{
		{"flushed", func(t *testing.T, s *shop) error { return s.client.FlushAll(t.Context()).Err() }},
		{"restarted", func(t *testing.T, s *shop) error { return s.redis.Restart(t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, lab.OwnRedis(t), 2000)
			a, b := s.replica(t, "a"), s.replica(t, "b")
			ended := inTheMiddle(t, func() {
				should.Do(t, c.forget(t, s))
			})
			reported := crowd(t, a, b)
			ended()
			// What was kept back for orders that the ledger had comes back as they are
			// settled.
			for end := time.Now().Add(10 * time.Second); s.audit(t).Sold < 2000 && time.Now().Before(end); {
				reported = append(reported, crowd(t, a, b)...)
				settle(t, a)
			}
			audit := s.audit(t)
			if !audit.Clean || audit.Sold != 2000 {
				t.Errorf("%d purchases were accepted, the audit is %+v", len(reported), audit)
			}
			t.Logf("%d purchases were accepted, %d orders were lost with the memory", len(reported), int64(len(reported))-audit.Orders)
		})
	}
}

// A Redis that was restarted with an old copy of its data has units that were sold
// since: the history of its data is another one, and the counter is not believed.
func TestARedisThatGoesBackInTimeIsRecognized(t *testing.T) {
	s, a, reported := openSold(t, lab.OwnRedis(t), 10, "a")
	must.Do(t, s.client.Save(t.Context()).Err())
	reported = append(reported, sell(t, a, buy(5)))
	settle(t, a)
	must.Do(t, s.redis.Restart(t.Context()))
	must.Be(t, s.client.HGet(t.Context(), s.key("goods:1"), "units").Val(), "9", "the units of the old copy, once it was loaded")
	s.assertNotSoldAgain(t, a, reported)
}

// assertNotSoldAgain sells the 4 units that the ledger leaves of 10, and not a fifth one.
func (s *shop) assertNotSoldAgain(t *testing.T, r *redisstock.Stock, reported []stock.Order) {
	t.Helper()
	rejects(t, r, buy(5), stock.ErrInsufficientStock)
	s.assertExact(t, r, append(reported, sell(t, r, buy(4))))
}

// A master is demoted, gets an older state from another master, and is promoted again. It
// still knows the script, and its data is not what it was.
func TestARedisThatWasDemotedAndPromotedIsRecognized(t *testing.T) {
	s, old := open(t, lab.OwnRedis(t), 10), lab.OwnRedis(t)
	a := s.replica(t, "a")
	reported := begin(t, a)
	other := labtest.RedisClient(old)
	t.Cleanup(func() { other.Close() }) //nolint:errcheck // the test is over
	follow(t, other, s.redis)
	lead(t, other)
	reported = append(reported, sell(t, a, buy(5)))
	settle(t, a)
	follow(t, s.client, old)
	lead(t, s.client)
	must.Be(t, s.client.HGet(t.Context(), s.key("goods:1"), "units").Val(), "9", "the units that were taken over from the other master")
	s.assertNotSoldAgain(t, a, reported)
}

// follow makes a server the replica of another until it has all of its data.
func follow(t *testing.T, client redis.UniversalClient, master *servers.Redis) {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Address)
	must.Do(t, err)
	primary := labtest.RedisClient(master)
	defer primary.Close() //nolint:errcheck // it has answered
	for _, err := range []error{
		primary.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err(),
		client.ConfigSet(t.Context(), "masterauth", master.Password).Err(),
		client.SlaveOf(t.Context(), host, port).Err(),
	} {
		must.Do(t, err)
	}
	await(t, "the resynchronization", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

func lead(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	must.Do(t, client.SlaveOf(t.Context(), "NO", "ONE").Err())
}

// A master dies before its replica and the ledger have an order that its
// buyer got: that one is lost, and nothing else. Its units are sold to others,
// and each unit once.
func TestAFailoverLosesWhatOnlyTheMasterKnewAndNothingElse(t *testing.T) {
	pair := labtest.Own(t, lab.Supervisor(), "redis", labtest.Plain(servers.StartRedisPair), nil)
	s := open(t, pair.Primary, 10)
	s.address = pair.Front.Address
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	reported = append(reported, sell(t, a, buy(2)))
	must.Do(t, pair.AwaitSync(t.Context()))
	pair.Link.Cut()
	lost := buy(3)
	sell(t, a, lost)
	must.Do(t, pair.Promote(t.Context()))
	b := s.replica(t, "b")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Await(ctx, reported[1]); err != nil { // the new master knew it
		t.Fatal(err)
	}
	reported = append(reported, crowd(t, b)...)
	s.assertExact(t, b, reported)
	should.Be(t, s.audit(t).Sold, 10, "sold in the end")
	lost.Keyed = true
	rejects(t, b, lost, stock.ErrInsufficientStock)
}
