package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions say how to reach a Redis.
type RedisOptions struct {
	// Addresses are one server's, or those of a cluster, or of Sentinels.
	Addresses []string
	Username  string
	Password  string
	// SentinelUsername and SentinelPassword are for the Sentinels themselves.
	SentinelUsername string
	SentinelPassword string
	// TLS encrypts the connections to all of them; nil leaves them plain.
	TLS *tls.Config
	DB  int
	// Master is the name under which Sentinels know the master; the addresses
	// are theirs then.
	Master string
	// Cluster tells that the addresses are those of a cluster, also where there
	// is only one.
	Cluster bool
	// Replica is the name of this replica: CLIENT LIST shows its connections as stockd-NAME.
	Replica string
	// Timeout bounds the making of a connection, and each round trip.
	Timeout time.Duration
	// PoolSize is the most connections, a cluster's for each node.
	PoolSize int
}

// NewRedis makes a client; it does not wait for the server.
//
// It never repeats a command by itself: a script whose answer was lost may have
// run, and running it once more is not the library's to decide. (A cluster's
// client follows a redirection, which ran nothing, and asks again after a
// broken connection; that is why every script of ours may run twice.)
func NewRedis(o RedisOptions) redis.UniversalClient {
	universal := &redis.UniversalOptions{
		Addrs: o.Addresses, Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		DB: o.DB, MasterName: o.Master, IsClusterMode: o.Cluster, ClientName: clientName(o.Replica),
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
	}
	if o.Cluster {
		cluster := universal.Cluster()
		cluster.ClusterStateReloadInterval = clusterLook
		return redis.NewClusterClient(cluster)
	}
	client := redis.NewUniversalClient(universal)
	client.AddHook(dialHook{})
	return client
}

// clientName is the name of a replica's connections. Redis allows printable ASCII alone, and
// no blanks.
func clientName(replica string) string {
	if replica == "" {
		return program
	}
	return program + "-" + strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, replica)
}

// ErrNotConnected tells that no connection was made to a Redis that is no cluster:
// nothing was asked, and nothing has happened.
var ErrNotConnected = errors.New("no connection")

// dialHook marks what goes wrong before a connection stands: that nobody listens,
// that a certificate is not believed, that no Sentinel knows the master. By the
// errors themselves, the last two cannot be told from a connection that broke.
type dialHook struct{}

// DialHook marks the error.
func (dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
		}
		return conn, nil
	}
}

// ProcessHook lets every command pass.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook lets every pipeline pass.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

const (
	// clusterLook is how often a client that is used asks a cluster who serves what.
	// Of a master that was replaced nobody would tell it: the library's own minute
	// is how long its slots could not be sold from.
	clusterLook = time.Second
	// redisPoolTimeout is longer than any wait limit: who waits for a
	// connection waits as for the lock, until the context ends.
	redisPoolTimeout = time.Hour
	// redisProtocol is RESP2, which every Redis speaks.
	redisProtocol = 2
)

// RedisVersion is the version of a server.
func RedisVersion(ctx context.Context, client redis.UniversalClient) (string, error) {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, version, ok := strings.Cut(info, "redis_version:")
	if !ok {
		return "", errors.New("the server does not tell its version")
	}
	version, _, _ = strings.Cut(version, "\r")
	return version, nil
}
