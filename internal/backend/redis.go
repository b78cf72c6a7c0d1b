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
	TLS *tls.Config `json:"-"`
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

// RedisRights are the rules of the user of Redis that an installation needs, as ACL SETUSER and redis.conf take them.
// Redis compares the pattern of a PSUBSCRIBE literally with these: only single channels below the prefix may be
// subscribed to.
func RedisRights(prefix string) string {
	return "~" + prefix + ":* &" + prefix + ":* +@all -@dangerous +info +cluster"
}

// NewRedis makes a client; it does not wait for the server.
//
// It never repeats a command by itself: a script whose answer was lost may have run. (A cluster's
// client follows a redirection, which ran nothing, and retries after a broken connection; that is
// why every script may run twice.)
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

// dialHook marks failures before a connection is made: no listener, a certificate that is not
// trusted, no Sentinel that knows the master, no answer to what the library itself asks first. Their errors
// may not differ from those of a connection that broke.
type dialHook struct{}

func (dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		return conn, notConnected(err)
	}
}

// ProcessHook marks the error of HELLO, with which the library begins a connection.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hello" {
			return notConnected(err)
		}
		return err
	}
}

// ProcessPipelineHook marks the error of what follows HELLO.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if name := cmds[0].Name(); name == "select" || name == "client" {
			return notConnected(err)
		}
		return err
	}
}

// notConnected marks an error that no server has answered with.
func notConnected(err error) error {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotConnected, err)
}

const (
	// clusterLook is how often a client that is used reads the topology of a cluster. A failover
	// is not announced: with the library's minute its slots would fail for so long.
	clusterLook = time.Second
	// redisPoolTimeout is longer than any wait limit: a request waits for a connection as it
	// waits for the lock, until its context ends.
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
