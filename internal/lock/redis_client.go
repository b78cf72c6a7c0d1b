package lock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions say how to reach a Redis.
type RedisOptions struct {
	// Addresses are one server's, or those of a cluster, or of Sentinels.
	Addresses []string
	Username  string
	Password  string
	// SentinelPassword is for the Sentinels themselves.
	SentinelPassword string
	DB               int
	// Master is the name under which Sentinels know the master; the addresses
	// are theirs then.
	Master string
	// Cluster tells that the addresses are those of a cluster, also where there
	// is only one.
	Cluster bool
	// Timeout bounds the making of a connection, and each round trip.
	Timeout time.Duration
	// PoolSize is the most connections, a cluster's for each node.
	PoolSize int
}

// NewRedisClient makes a client; it does not wait for the server.
//
// It never repeats a command by itself: a script whose answer was lost may have
// run, and running it once more is not the library's to decide. (A cluster's
// client follows a redirection, which ran nothing, and asks again after a
// broken connection; that is why every script of ours may run twice.)
func NewRedisClient(o RedisOptions) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addresses, Username: o.Username, Password: o.Password, SentinelPassword: o.SentinelPassword,
		DB: o.DB, MasterName: o.Master, IsClusterMode: o.Cluster,
		MaxRetries:            -1,
		DialTimeout:           o.Timeout,
		DialerRetries:         1,
		ReadTimeout:           o.Timeout,
		WriteTimeout:          o.Timeout,
		ContextTimeoutEnabled: true,
		PoolSize:              o.PoolSize,
		PoolTimeout:           redisPoolTimeout,
		// Nothing is asked of the server that a lock does not need.
		DisableIdentity: true,
		Protocol:        redisProtocol,
	})
}

const (
	// redisPoolTimeout is longer than any wait limit: who waits for a
	// connection waits as for the lock, until the context ends.
	redisPoolTimeout = time.Hour
	// redisProtocol is RESP2, which every Redis speaks.
	redisProtocol = 2
)
