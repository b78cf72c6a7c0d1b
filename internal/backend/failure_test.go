package backend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// rejects requires that a backend says why it rejects writes, once it has been brought to do that. Its servers
// go on answering.
func rejects(t *testing.T, c *backend.Clients, b backend.Name, why stock.Rejection) {
	t.Helper()
	var err error
	labtest.Eventually(answerWithin, func() bool { err = ping(t, c, b); return err != nil })
	assertNames(t, err, b)
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Rejects != why || !errors.Is(err, stock.ErrWritesRejected) {
		t.Errorf("%v, want a server that rejects writes, since %s", err, why)
	}
}

// redisClient is one of an administrator.
func redisClient(r *servers.Redis) redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{Addresses: []string{r.Address}, Password: r.Password, Timeout: answerWithin, PoolSize: 2})
}

// A Redis that answers reads alone is no Redis for locks.
func TestARedisThatRejectsWritesSaysWhy(t *testing.T) {
	server := lab.OwnRedis(t)
	client := redisClient(server)
	c := &backend.Clients{Redis: client, Redlock: []redis.UniversalClient{client}}
	t.Cleanup(func() { _ = client.Close() })
	awaitPing(t, c, backend.Redis)
	for name, state := range map[string]struct {
		enter, leave []any
		why          stock.Rejection
	}{
		"full":              {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, stock.OutOfMemory},
		"a replica":         {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, stock.ReadOnly},
		"without a replica": {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, stock.TooFewReplicas},
		"without the right": {[]any{"ACL", "SETUSER", "default", "-set", "-eval"}, []any{"ACL", "SETUSER", "default", "+@all"}, stock.NotPermitted},
	} {
		t.Run(name, func(t *testing.T) {
			must.Do(t, client.Do(t.Context(), state.enter...).Err())
			rejects(t, c, backend.Redis, state.why)
			rejects(t, c, backend.Redlock, state.why)
			err := client.Eval(t.Context(), `return redis.call("set", KEYS[1], 1)`, []string{"stockd:lock"}).Err()
			should.Be(t, backend.Rejects(err), state.why, "the script of a lock is answered …, because", err)
			must.Do(t, client.Do(t.Context(), state.leave...).Err())
			must.Do(t, ping(t, c, backend.Redis))
		})
	}
	should.Be(t, client.DBSize(t.Context()).Val(), 0, "the pings have left … keys")
}

// A Redis whose last save has failed takes no writes either.
func TestARedisThatCannotSaveSaysSo(t *testing.T) {
	client := redisClient(lab.OwnRedis(t))
	t.Cleanup(func() { _ = client.Close() })
	folder := client.ConfigGet(t.Context(), "dir").Val()["dir"]
	must.Do(t, os.Mkdir(filepath.Join(folder, "dump.rdb"), 0o700)) // in the way of the file
	must.Do(t, client.ConfigSet(t.Context(), "save", "3600 1").Err())
	must.Do(t, client.Set(t.Context(), "k", "v", 0).Err())
	must.Do(t, client.BgSave(t.Context()).Err())
	rejects(t, &backend.Clients{Redis: client}, backend.Redis, stock.NotSaved)
}

// A cluster without a node for the slots does not take writes, and answers.
func TestARedisClusterThatIsDownSaysSo(t *testing.T) {
	server := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 1}).Masters[0]
	o := labtest.RedisOptions(server)
	o.Cluster, o.Timeout, o.PoolSize = true, answerWithin, 2
	client, one := backend.NewRedis(o), redisClient(server)
	t.Cleanup(func() { _, _ = client.Close(), one.Close() })
	c := &backend.Clients{Redis: client}
	awaitPing(t, c, backend.Redis)
	must.Do(t, one.Do(t.Context(), "CLUSTER", "DELSLOTSRANGE", 0, 16383).Err())
	rejects(t, c, backend.Redis, stock.NoQuorum)
}

// An etcd with an alarm reads on.
func TestAnEtcdThatRejectsWritesSaysWhy(t *testing.T) {
	server := lab.OwnEtcd(t)
	client := must.Get(backend.NewEtcd(server.Conn().Etcd))(t)
	c := &backend.Clients{Etcd: client}
	t.Cleanup(func() { _ = c.Close() })
	awaitPing(t, c, backend.Etcd)
	answer := must.Get(client.Get(t.Context(), "stockd/k"))(t)
	maintenance := etcdserverpb.NewMaintenanceClient(client.ActiveConnection())
	for alarm, why := range map[etcdserverpb.AlarmType]stock.Rejection{
		etcdserverpb.AlarmType_NOSPACE: stock.OutOfSpace, etcdserverpb.AlarmType_CORRUPT: stock.ReadOnly,
	} {
		ring := func(action etcdserverpb.AlarmRequest_AlarmAction) {
			must.Get(maintenance.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: action, Alarm: alarm, MemberID: answer.Header.MemberId}))(t)
		}
		ring(etcdserverpb.AlarmRequest_ACTIVATE)
		rejects(t, c, backend.Etcd, why)
		ring(etcdserverpb.AlarmRequest_DEACTIVATE)
		must.Do(t, ping(t, c, backend.Etcd))
	}
	should.Be(t, len(must.Get(client.Get(t.Context(), "stockd/", clientv3.WithPrefix()))(t).Kvs), 0, "the pings have left")
}

// A root that belongs to others shows before the first lock does.
func TestAZooKeeperThatRejectsWritesSaysWhy(t *testing.T) {
	server := lab.OwnZooKeeper(t)
	c := &backend.Clients{ZooKeeper: backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{server.Address}})}
	t.Cleanup(func() { _ = c.Close() })
	awaitPing(t, c, backend.ZooKeeper)
	link := must.Get(c.ZooKeeper.Connected(t.Context()))(t)
	must.Do(t, backend.ZKDo(t.Context(), link, func(conn *zk.Conn) error {
		if _, _, err := conn.Get("/stockd"); !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("the ping has left its node (%w)", err)
		}
		_, err := conn.Create("/stockd", nil, 0, zk.WorldACL(zk.PermRead|zk.PermAdmin))
		return err
	}))
	rejects(t, c, backend.ZooKeeper, stock.NotPermitted)
	must.Do(t, backend.ZKDo(t.Context(), link, func(conn *zk.Conn) error {
		_, err := conn.SetACL("/stockd", zk.WorldACL(zk.PermAll), -1)
		return err
	}))
	must.Do(t, ping(t, c, backend.ZooKeeper))
	const quota = "/zookeeper/quota/stockd"
	for _, node := range [][2]string{{quota}, {quota + "/zookeeper_limits", "count=1,bytes=-1,byteHardLimit=-1;countHardLimit=1"}, {quota + "/zookeeper_stats", "count=1,bytes=0"}} {
		must.Do(t, backend.ZKDo(t.Context(), link, func(conn *zk.Conn) error {
			_, err := conn.Create(node[0], []byte(node[1]), 0, zk.WorldACL(zk.PermAll))
			return err
		}))
	}
	rejects(t, c, backend.ZooKeeper, stock.LimitReached)
}
