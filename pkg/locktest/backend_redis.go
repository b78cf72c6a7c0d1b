package locktest

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
)

// redisBackend is one Redis.
type redisBackend struct {
	at    addresses
	admin redis.UniversalClient
}

// redisAt is where one server is.
func redisAt(server *servers.Redis) addresses {
	return addresses{Redis: []string{server.Address}, Password: server.Password, TTL: time.Second}
}

func newRedisBackend(t *testing.T, at addresses) *redisBackend {
	t.Helper()
	admin := at.redis(at.Redis...)
	t.Cleanup(func() { closed(t, admin) })
	return &redisBackend{at: at, admin: admin}
}

// redis makes a client of one server, or of those that Sentinels or a cluster tell.
func (a addresses) redis(of ...string) redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{
		Addresses: of, Password: a.Password, Cluster: a.Cluster, Master: a.Master, SentinelPassword: a.SentinelPassword,
		Timeout: answerWithin, PoolSize: connections,
	})
}

func (b *redisBackend) addresses() addresses { return b.at }
func (b *redisBackend) ttl() time.Duration   { return b.at.TTL }
func (b *redisBackend) named() backend.Name  { return backend.Redis }
func (b *redisBackend) requests() []string   { return []string{""} }

func (b *redisBackend) drop(t *testing.T, name string) {
	t.Helper()
	dropKeys(t, b.admin, name)
}

func (b *redisBackend) litter(t *testing.T, name string) []string {
	t.Helper()
	return tracesIn(t, b.admin, name)
}

func (b *redisBackend) forget(t *testing.T) {
	t.Helper()
	forgetIn(t, b.admin)
}

// beforeDelete steps in before the next DEL of a replica.
func (b *redisBackend) beforeDelete(r *replica, do func()) {
	r.clients.Redis.AddHook(&deleteHook{do: do})
}

// deleteHook calls do once, before the first DEL.
type deleteHook struct {
	once sync.Once
	do   func()
}

// ProcessHook sees every command.
func (h *deleteHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "del" {
			h.once.Do(h.do)
		}
		return next(ctx, cmd)
	}
}

// DialHook lets every connection pass.
func (h *deleteHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

// ProcessPipelineHook lets every pipeline pass.
func (h *deleteHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// keysOf are the keys that Redis has of a name, but for the counter of its
// tokens, which is there to stay.
func keysOf(t *testing.T, admin redis.UniversalClient, name string) (keys []string) {
	t.Helper()
	prefix := "stockd:{" + url.PathEscape(name) + "}:"
	node := admin
	if cluster, is := admin.(*redis.ClusterClient); is {
		// A node knows of its own keys alone; those of a name are all on one.
		serves, err := cluster.MasterForKey(background(t), prefix)
		if err != nil {
			t.Fatalf("look for keys: %v", err)
		}
		node = serves
	}
	all := node.Scan(background(t), 0, prefix+"*", 10_000).Iterator()
	for all.Next(background(t)) {
		if !strings.HasSuffix(all.Val(), ":token") {
			keys = append(keys, all.Val())
		}
	}
	if err := all.Err(); err != nil {
		t.Fatalf("look for keys: %v", err)
	}
	return keys
}

// tracesIn lists the keys of a name, and a queue by those who stand in it.
func tracesIn(t *testing.T, admin redis.UniversalClient, name string) (traces []string) {
	t.Helper()
	for _, key := range keysOf(t, admin, name) {
		kind, err := admin.Type(background(t), key).Result()
		if err != nil {
			t.Fatalf("look at a key: %v", err)
		}
		if kind != "zset" {
			traces = append(traces, key)
			continue
		}
		members, err := admin.ZRange(background(t), key, 0, -1).Result()
		if err != nil {
			t.Fatalf("look at a queue: %v", err)
		}
		for _, member := range members {
			traces = append(traces, key+" "+member)
		}
	}
	return traces
}

func dropKeys(t *testing.T, admin redis.UniversalClient, name string) {
	t.Helper()
	for _, key := range keysOf(t, admin, name) {
		if err := admin.Del(background(t), key).Err(); err != nil {
			t.Fatalf("drop %s: %v", name, err)
		}
	}
}

func forgetIn(t *testing.T, admin redis.UniversalClient) {
	t.Helper()
	for _, failed := range []error{admin.FlushAll(background(t)).Err(), admin.ScriptFlush(background(t)).Err()} {
		if failed != nil {
			t.Fatalf("make Redis forget: %v", failed)
		}
	}
}
