package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
)

// RedisOptions say what is wanted of a Redis.
type RedisOptions struct {
	Name   string // in the findings
	Client redis.UniversalClient
	Prefix string // of every key and channel
	// Streams: redis-stock may sell from it.
	Streams bool
	// Connections are those of all replicas together.
	Connections int
	Clocks      *Clocks
}

// redisServer is one server, or the masters of a cluster.
type redisServer struct {
	RedisOptions
	mu   sync.Mutex
	info map[string][]string // the distinct values of each field of INFO
}

// Redis are the checks of one server, or of the masters of a cluster.
func Redis(o RedisOptions) Group {
	s := &redisServer{RedisOptions: o, info: make(map[string][]string)}
	g := Group{
		{What: o.Name, Connects: true, Run: s.connect},
		s.says("role", Problem, "master", "give the address of the master, or of Sentinels with redis.master", isEqual("master")),
		s.says("maxmemory_policy", Problem, "noeviction", "set it: a lock that is evicted has two holders, and a counter is lost", isEqual("noeviction")),
		s.says("aof_enabled", Warning, "1", "appendonly yes and appendfsync always: a restart loses locks, and orders of redis-stock that are pending", isEqual("1")),
		s.says("maxclients", Problem, fmt.Sprintf("at least %d", o.Connections), "raise it, and its limit of open files", func(value string) bool {
			n, err := strconv.Atoi(value)
			return err == nil && n >= o.Connections
		}),
		o.Clocks.Read(o.Name, s.time),
		{What: o.Name + " script", Tries: true, Run: s.write},
	}
	if o.Streams {
		g = append(g, Check{What: o.Name + " SUBSCRIBE", Tries: true, Run: s.subscribe}, Check{What: o.Name + " streams", Tries: true, Run: s.streams})
	}
	return g
}

func isEqual(wanted string) func(string) bool {
	return func(value string) bool { return value == wanted }
}

// says compares a field of INFO on every server; older ones have no maxclients.
func (s *redisServer) says(field string, otherwise State, wanted, do string, ok func(string) bool) Check {
	return Check{What: s.Name + " " + field, Run: func(context.Context) Finding {
		bad := slices.ContainsFunc(s.info[field], func(value string) bool { return !ok(value) })
		return Judge(!bad, otherwise, cmp.Or(strings.Join(s.info[field], ", "), "not told"), wanted, do)
	}}
}

func (s *redisServer) tried(err error, wanted string) Finding {
	return Tried(err, "done", wanted, "see whether it runs, and the addresses and tls of "+s.Name)
}

func (s *redisServer) nodes(ctx context.Context, do func(ctx context.Context, node redis.UniversalClient) error) error {
	if cluster, ok := s.Client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
	}
	return do(ctx, s.Client)
}

func (s *redisServer) connect(ctx context.Context) Finding {
	const wanted = "Redis 7.0, or 6.2 without redis-stock"
	err := s.nodes(ctx, func(ctx context.Context, node redis.UniversalClient) error {
		said, err := node.Info(ctx).Result()
		s.mu.Lock()
		defer s.mu.Unlock()
		for line := range strings.Lines(said) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if !slices.Contains(s.info[field], value) {
				s.info[field] = append(s.info[field], value)
			}
		}
		return err
	})
	if err != nil {
		return s.tried(err, wanted)
	}
	found := "Redis " + strings.Join(s.info["redis_version"], ", ")
	if valkey := s.info["valkey_version"]; valkey != nil {
		found = "Valkey " + strings.Join(valkey, ", ")
	}
	return Judge(s.since("6.2"), Problem, found, wanted, "upgrade it")
}

// since reports whether every server has this version, or a later one.
func (s *redisServer) since(least string) bool {
	return !slices.ContainsFunc(s.info["redis_version"], func(version string) bool { return !backend.IsSince(version, least) })
}

// time is that of the clock that is furthest from ours.
func (s *redisServer) time(ctx context.Context) (furthest time.Time, err error) {
	err = s.nodes(ctx, func(ctx context.Context, node redis.UniversalClient) error {
		at, err := node.Time(ctx).Result()
		s.mu.Lock()
		defer s.mu.Unlock()
		if furthest.IsZero() || time.Since(at).Abs() > time.Since(furthest).Abs() {
			furthest = at
		}
		return err
	})
	return furthest, err
}

// keys begins those of a check, in one slot of a cluster.
func (s *redisServer) keys() string { return s.Prefix + ":{check-" + rand.Text() + "}:" }

// keyLife bounds what is left of a check that is killed.
const keyLife = 10 * time.Second

// tryWrites does what the scripts of locks and of redis-stock do, each kind of command once.
const tryWrites = `
redis.call('PUBLISH', ARGV[2], '')
redis.call('SET', KEYS[1], redis.call('TIME')[1], 'PX', ARGV[1])
redis.call('INCR', KEYS[1])
redis.call('HSET', KEYS[2], 'field', 1)
redis.call('ZADD', KEYS[3], 1, 'member')
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
return redis.call('DEL', unpack(KEYS))`

func (s *redisServer) write(ctx context.Context) Finding {
	key := s.keys()
	err := redis.NewScript(tryWrites).Run(ctx, s.Client, []string{key + "a", key + "b", key + "c"}, keyLife.Milliseconds(), key+"free").Err()
	return s.tried(err, "a script that writes, publishes, and removes what it wrote")
}

func (s *redisServer) subscribe(ctx context.Context) Finding {
	sub := s.Client.Subscribe(ctx, s.keys()+"free")
	defer sub.Close() //nolint:errcheck // nothing is lost with it
	_, err := sub.Receive(ctx)
	return s.tried(err, "a subscription below the prefix: without, waiting requests poll")
}

func (s *redisServer) streams(ctx context.Context) Finding {
	const wanted, name, id = "streams, on Redis 7.0: redis-stock needs them", "check", "1-1"
	stream := s.keys() + "orders"
	_, err := s.Client.Pipelined(ctx, func(tx redis.Pipeliner) error {
		tx.XGroupCreateMkStream(ctx, stream, name, "0")
		tx.PExpire(ctx, stream, keyLife)
		tx.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: id, Values: []string{"order", "1"}})
		tx.XReadGroup(ctx, &redis.XReadGroupArgs{Group: name, Consumer: name, Streams: []string{stream, ">"}, Count: 1, Block: -1})
		tx.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: stream, Group: name, Consumer: name, Start: "0", Count: 1})
		tx.XPending(ctx, stream, name)
		// By a script, as redis-stock does it: the client of a cluster does not know the key of XINFO.
		tx.Eval(ctx, `return redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])`, []string{stream}, name)
		tx.XRangeN(ctx, stream, "-", "+", 1)
		tx.XAck(ctx, stream, name, id)
		tx.XDel(ctx, stream, id)
		tx.XGroupDelConsumer(ctx, stream, name, name)
		tx.Del(ctx, stream)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return s.tried(err, wanted)
	}
	return Judge(s.since("7.0"), Warning, "done", wanted, "upgrade it for redis-stock")
}
