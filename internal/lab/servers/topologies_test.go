package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// front is a client of the server behind the front of a pair.
func front(t *testing.T, p *servers.RedisPair) *redis.Client {
	t.Helper()
	at := *p.Primary
	at.Address = p.Front.Address
	return open(t, &at)
}

func TestAReplicaHasWhatThePrimaryHas(t *testing.T) {
	p := labtest.Own(t, lab.Supervisor(), "redis", labtest.Plain(servers.StartRedisPair), nil)
	primary, replica := open(t, p.Primary), open(t, p.Replica)
	for i := range 20 {
		must.Do(t, primary.Set(t.Context(), "n", i, 0).Err())
		must.Do(t, p.AwaitSync(t.Context()))
		if n, err := replica.Get(t.Context(), "n").Int(); err != nil || n != i {
			t.Fatalf("the replica has %d, want %d: %v", n, i, err)
		}
	}
	if err := replica.Set(t.Context(), "n", 0, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a replica is written to: %v", err)
	}
	if env := p.Conn().Env(); len(env) != 3 || env[0] != "STOCKD_REDIS_ADDRESSES="+p.Front.Address {
		t.Errorf("a replica gets %q", env)
	}
}

// What the primary has granted, the new one has not received.
func TestAKeyThatWasNotReplicatedIsGoneAfterAFailOver(t *testing.T) {
	p := labtest.Own(t, lab.Supervisor(), "redis", labtest.Plain(servers.StartRedisPair), nil)
	client := front(t, p)
	must.Do(t, client.Set(t.Context(), "before", "", 0).Err())
	must.Do(t, p.AwaitSync(t.Context()))
	p.Link.Freeze()
	must.Do(t, client.SetNX(t.Context(), "lock", "one", time.Minute).Err())
	must.Do(t, p.Primary.Kill(t.Context()))
	must.Do(t, p.Promote(t.Context()))
	_ = client.Ping(t.Context()) // a connection of before is gone
	if taken, err := client.SetNX(t.Context(), "lock", "other", time.Minute).Result(); err != nil || !taken {
		t.Errorf("the other takes the lock: %t, %v", taken, err)
	}
	should.Be(t, client.Exists(t.Context(), "before").Val(), 1, "what was replicated is gone, too")
	// It is a primary also after a restart.
	must.Do(t, p.Replica.Kill(t.Context()))
	must.Do(t, p.Replica.Restart(t.Context()))
	_ = client.Ping(t.Context())
	must.Do(t, client.Set(t.Context(), "after", "", 0).Err())
}

// When the clock of a master jumps, its keys go early, and those of the others
// do not. What measures how long something takes goes on as before.
func TestAKeyExpiresEarlyWhereTheClockJumps(t *testing.T) {
	r := labtest.Own(t, lab.Supervisor(), "faketime", servers.StartRedlockWith, servers.RedlockOptions{Clocks: true})
	const ttl = time.Minute
	for _, node := range r.Nodes {
		must.Do(t, open(t, node).Set(t.Context(), "lock", "one", ttl).Err())
	}
	jumped, right := open(t, r.Nodes[0]), open(t, r.Nodes[1])
	if left := jumped.PTTL(t.Context(), "lock").Val(); left < ttl-10*time.Second || left > ttl {
		t.Fatalf("before the jump, the key has %s left", left)
	}
	must.Do(t, r.Nodes[0].Clock.Set(ttl-10*time.Second))
	if left := jumped.PTTL(t.Context(), "lock").Val(); left > 10*time.Second || left <= 0 {
		t.Errorf("the key has %s left after most of its time", left)
	}
	must.Do(t, r.Nodes[0].Clock.Set(ttl+time.Second))
	if taken, err := jumped.SetNX(t.Context(), "lock", "other", ttl).Result(); err != nil || !taken {
		t.Errorf("the other takes the key of the one: %t, %v", taken, err)
	}
	if taken, err := right.SetNX(t.Context(), "lock", "other", ttl).Result(); err != nil || taken {
		t.Errorf("the other takes the key of the one where no clock has jumped: %t, %v", taken, err)
	}
	must.Do(t, r.Nodes[0].Clock.Set(0))
	if off := time.Since(jumped.Time(t.Context()).Val()).Abs(); off > time.Second {
		t.Errorf("a clock that was set right is off by %s", off)
	}
	if left := jumped.PTTL(t.Context(), "lock").Val(); left <= ttl {
		t.Errorf("a key of the wrong time has %s left, want more than its TTL", left)
	}
	must.Do(t, r.Nodes[0].Clock.Set(-time.Hour))
	if behind := time.Since(jumped.Time(t.Context()).Val()); (behind - time.Hour).Abs() > time.Second {
		t.Errorf("a clock that was set back by an hour is %s behind", behind)
	}
	must.Do(t, r.Nodes[0].Clock.Run(1e6))
	first := jumped.Time(t.Context()).Val()
	if second := jumped.Time(t.Context()).Val(); time.Since(first) > -time.Second || second.Sub(first) < time.Second {
		t.Errorf("a clock that runs a million times as fast says %s, and then %s", first, second)
	}
}

func ensemble(t *testing.T, e *servers.ZooKeeperEnsemble) *zk.Conn {
	t.Helper()
	list, _ := strings.CutPrefix(e.Conn().Env()[0], "STOCKD_ZOOKEEPER_ADDRESSES=")
	conn, _, err := zk.Connect(strings.Split(list, ","), 5*time.Second, zk.WithLogger(silent{}))
	must.Do(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func TestAnEnsembleOutlivesItsLeader(t *testing.T) {
	e := labtest.Own(t, lab.Supervisor(), "zookeeper", servers.StartZooKeeperEnsemble, 3)
	if !strings.HasPrefix(e.String(), "3 × ZooKeeper 3.") {
		t.Errorf("it is %s", e)
	}
	leader := must.Get(e.AwaitLeader(within(t, 20*time.Second)))(t)
	conn := ensemble(t, e)
	must.Get(conn.Create("/kept", []byte("value"), 0, zk.WorldACL(zk.PermAll)))(t)
	must.Do(t, leader.Kill(t.Context()))
	next := must.Get(e.AwaitLeader(within(t, 20*time.Second)))(t)
	if next == leader {
		t.Error("a member leads that was killed")
	}
	eventually(t, "the ensemble takes writes", func() bool {
		_, err := conn.Set("/kept", []byte("changed"), -1)
		return err == nil
	})
	must.Do(t, leader.Restart(t.Context()))
	back := connect(t, leader)
	must.Get(back.Sync("/kept"))(t)
	if value, _, err := back.Get("/kept"); err != nil || string(value) != "changed" {
		t.Errorf("the old leader has %q: %v", value, err)
	}
}

func TestAnEtcdClusterOutlivesItsLeader(t *testing.T) {
	c := labtest.Own(t, lab.Supervisor(), "etcd", servers.StartEtcdCluster, 3)
	if !strings.HasPrefix(c.String(), "3 × etcd 3.") {
		t.Errorf("it is %s", c)
	}
	leader := must.Get(c.AwaitLeader(within(t, 20*time.Second)))(t)
	list, _ := strings.CutPrefix(c.Conn().Env()[0], "STOCKD_ETCD_ENDPOINTS=")
	client := must.Get(clientv3.New(clientv3.Config{Endpoints: strings.Split(list, ","), Username: servers.EtcdRoot, Password: leader.Password, Logger: zap.NewNop()}))(t)
	defer client.Close() //nolint:errcheck // it says that its context has ended
	must.Get(client.Put(within(t, 5*time.Second), "kept", "value"))(t)
	must.Do(t, leader.Kill(t.Context()))
	next := must.Get(c.AwaitLeader(within(t, 20*time.Second)))(t)
	if next == leader {
		t.Error("a member leads that was killed")
	}
	eventually(t, "the cluster takes writes", func() bool {
		_, err := client.Put(within(t, time.Second), "kept", "changed")
		return err == nil
	})
	must.Do(t, leader.Restart(t.Context()))
	if kept, err := etcdClient(t, leader).Get(within(t, 5*time.Second), "kept"); err != nil || kept.Count != 1 || string(kept.Kvs[0].Value) != "changed" {
		t.Errorf("the old leader has %v: %v", kept, err)
	}
}

// A leader that is paused leads no more, although it does not know it.
func TestAPausedLeaderIsReplaced(t *testing.T) {
	c := labtest.Own(t, lab.Supervisor(), "etcd", servers.StartEtcdCluster, 3)
	leader := must.Get(c.AwaitLeader(within(t, 20*time.Second)))(t)
	must.Do(t, leader.Pause(t.Context()))
	next := must.Get(c.AwaitLeader(within(t, 20*time.Second)))(t)
	if next == leader {
		t.Error("a paused member leads")
	}
	must.Do(t, leader.Resume(t.Context()))
}

func TestANodeOfGaleraGetsWhatItMissed(t *testing.T) {
	nodes := lab.OwnNodes(t, "galera", servers.StartGalera)
	first, last := nodes[0], nodes[2]
	store := labtest.Open(t, first, "first")
	must.Do(t, last.Kill(t.Context()))
	eventually(t, "the others take writes", func() bool {
		return store.CreateGoods(within(t, 10*time.Second), 1, 5, "missed") == nil
	})
	must.Do(t, last.Restart(t.Context()))
	restarted := must.Get(last.Open(t.Context(), "last", 2))(t)
	defer restarted.Close() //nolint:errcheck // the test is over
	if goods, err := restarted.Goods(t.Context(), 1); err != nil || goods.Stock != 5 || restarted.Cluster() != "Galera" {
		t.Errorf("a node of %q has %+v (%v)", restarted.Cluster(), goods, err)
	}
}
