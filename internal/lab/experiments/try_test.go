package experiments

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
)

// What a try has begun ends in the reverse order, all of it, and then its replicas where they cannot serve
// another try.
func TestATryEndsWhatItHasBegunTheLastOneFirst(t *testing.T) {
	for _, spoilt := range []bool{false, true} {
		p := &provisioner{cluster: &shop.Cluster{}}
		s := &Try{spoilt: spoilt}
		var order []string
		first, second := errors.New("first"), errors.New("second")
		for _, err := range []error{first, second} {
			s.Later(func() error {
				if p.cluster != nil {
					order = append(order, err.Error())
				}
				return err
			})
		}
		if err := p.tearDown(t.Context(), s); !errors.Is(err, first) || !errors.Is(err, second) || !slices.Equal(order, []string{"second", "first"}) {
			t.Errorf("the order is %q, and the error %v", order, err)
		}
		if (p.cluster == nil) != spoilt {
			t.Errorf("spoilt %t: the replicas were ended: %t", spoilt, p.cluster == nil)
		}
	}
}

// A step that fails may have left a replica paused, or with a failpoint: no other try gets it.
func TestTheReplicasOfATryThatFailsServeNoOther(t *testing.T) {
	for _, failure := range []error{nil, errors.New("half done")} {
		p := &provisioner{plan: Plan{Progress: silent{}}, shop: &shop.Shop{Servers: new(servers.Backends)}, cluster: &shop.Cluster{}, stage: Stage{Replicas: 1}}
		step := func(x *Try) { x.Must(failure) }
		if err := p.execute(t.Context(), Part{Stage: p.stage, Do: step}, filepath.Join(t.TempDir(), "history")); !errors.Is(err, failure) {
			t.Errorf("%v, want %v", err, failure)
		}
		if (p.cluster == nil) != (failure != nil) {
			t.Errorf("with the error %v the replicas were ended: %t", failure, p.cluster == nil)
		}
	}
}

// The replicas take turns with the nodes that the stage uses, and each keeps what it has of its own.
func TestEachReplicaWritesToItsNode(t *testing.T) {
	p := &provisioner{galera: &servers.Nodes{Nodes: []*servers.Database{{DSN: "a"}, {DSN: "b"}, {DSN: "c"}}}}
	s := new(Try)
	must.Do(t, p.writeToNodes(t.Context(), s, Stage{Replicas: 3, Nodes: 2, Own: map[int][]string{2: {"A=1"}}}))
	for replica, dsn := range map[int]string{1: "a", 2: "b", 3: "a"} {
		if !slices.Contains(s.Own[replica], "STOCKD_DATABASE_DSN="+dsn) || slices.Contains(s.Own[replica], "A=1") != (replica == 2) {
			t.Errorf("replica %d gets %q, want the node %s", replica, s.Own[replica], dsn)
		}
	}
}

// A contender has its own connections until the try ends. What warms them up is not recorded.
func TestAContenderRecordsItsLeasesAndEndsWithItsTry(t *testing.T) {
	server, err := servers.StartRedis(t.Context(), nil, servers.Embedded)
	must.Do(t, err)
	defer server.Close(t.Context()) //nolint:errcheck // the test is over
	file := filepath.Join(t.TempDir(), "history.jsonl")
	writer, err := history.Create(file)
	must.Do(t, err)
	s := &Try{Backends: &servers.Backends{Redis: server}, History: writer}
	var c *contender
	if err := s.do(t.Context(), func(x *Try) {
		c = x.contend("one", Redis)
		c.ttl, c.retry = time.Hour, time.Millisecond
		c.warm("redis-lua")
		_, err := c.locker("redis-lua").Acquire(x, "name")
		x.Must(err)
	}); err != nil {
		t.Fatal(err)
	}
	if left := c.clients.Redis.PTTL(t.Context(), "stockd:{name}:redis-lua").Val(); left < time.Minute || left > time.Hour {
		t.Errorf("the lease lasts for %s, want an hour", left)
	}
	if err := s.do(t.Context(), func(*Try) { c.locker("hope") }); err == nil {
		t.Error("hope is a lock")
	}
	must.Do(t, errors.Join((&provisioner{}).tearDown(t.Context(), s), writer.Close()))
	if err := c.clients.Redis.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("after the try its connection is answered with %v", err)
	}
	h, err := history.Read(file)
	if err != nil || len(h.Leases) != 1 || h.Leases[0].Holder != "one" || h.Leases[0].Lock != "redis-lua" || h.Leases[0].Name != "name" {
		t.Errorf("the leases are %+v (%v), want that of name alone", h.Leases, err)
	}
}
