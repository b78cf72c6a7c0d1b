package servers

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
)

// Conn is how the clients of a replica reach servers without TLS, and all that another process needs to connect as this
// one does. What has no address is not there.
type Conn struct {
	// Redis is one server; or Sentinels, or the nodes of a cluster. Of Redlock each address is a master.
	Redis, Redlock backend.RedisOptions
	ZooKeeper      backend.ZooKeeperOptions
	Etcd           backend.EtcdOptions
	Database       Database
	// Prefix is that of the installation; empty is the default.
	Prefix string

	security *Security // of all but the database, which has its own
}

// Limits are those of the connections.
type Limits struct {
	// Session is for how long a ZooKeeper takes a silent client for alive, Timeout for how long a server may be silent,
	// and Pool how many connections there are to one.
	Session, Timeout time.Duration
	Pool             int
}

// Connect makes the clients, none of which waits for its server.
func (c Conn) Connect(l Limits) (*backend.Clients, error) {
	c.Redis.Timeout, c.Redis.PoolSize, c.Redlock.Timeout, c.Redlock.PoolSize = l.Timeout, l.Pool, l.Timeout, l.Pool
	c.ZooKeeper.SessionTimeout, c.ZooKeeper.DialTimeout, c.Etcd.DialTimeout = l.Session, l.Timeout, l.Timeout
	all, err := backend.Connect(backend.Options{
		Prefix: c.Prefix, Redis: c.Redis, Redlock: c.Redlock, ZooKeeper: c.ZooKeeper, Etcd: c.Etcd, SQL: c.Database.options(l.Pool, l.Timeout),
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return all, nil
}

// Env is the configuration of a replica of stockd that connects so, with TLS where there is security.
func (c Conn) Env() (env []string) {
	if c.Database.Driver != "" {
		env = c.Database.Env()
	}
	if o := c.Etcd; len(o.Endpoints) > 0 {
		env = append(env, "STOCKD_ETCD_ENDPOINTS="+strings.Join(o.Endpoints, ","), "STOCKD_ETCD_USERNAME="+o.Username, "STOCKD_ETCD_PASSWORD="+o.Password)
		env = append(env, c.security.env("etcd")...)
	}
	env = append(append(env, c.redisEnv("redis", c.Redis)...), c.redisEnv("redlock", c.Redlock)...)
	if o := c.ZooKeeper; len(o.Servers) > 0 {
		env = append(env, "STOCKD_ZOOKEEPER_ADDRESSES="+strings.Join(o.Servers, ","))
		env = append(env, c.security.env("zookeeper")...)
	}
	return env
}

func (c Conn) redisEnv(section string, o backend.RedisOptions) []string {
	if len(o.Addresses) == 0 {
		return nil
	}
	prefix := "STOCKD_" + strings.ToUpper(section) + "_"
	env := []string{prefix + "ADDRESSES=" + strings.Join(o.Addresses, ","), prefix + "USERNAME=" + o.Username, prefix + "PASSWORD=" + o.Password}
	if o.Cluster {
		env = append(env, prefix+"CLUSTER=true")
	}
	if o.Master != "" {
		env = append(env, prefix+"MASTER="+o.Master, prefix+"SENTINEL_USERNAME="+o.SentinelUsername, prefix+"SENTINEL_PASSWORD="+o.SentinelPassword)
	}
	return append(env, c.security.env(section)...)
}

// AsAdmin has the clients do everything in Redis and etcd, where a replica has the rights that the documents give it.
func (c Conn) AsAdmin() Conn {
	c.Redis.Username, c.Redlock.Username, c.Etcd.Username = "", "", EtcdRoot
	return c
}

// Through leads to each server by another address than its own.
func (c Conn) Through(instead func(address string) string) (Conn, error) {
	all := func(from []string) (to []string) {
		for _, address := range from {
			scheme, host, ok := strings.Cut(address, "://")
			if ok {
				to = append(to, scheme+"://"+instead(host))
			} else {
				to = append(to, instead(address))
			}
		}
		return to
	}
	c.Redis.Addresses, c.Redlock.Addresses = all(c.Redis.Addresses), all(c.Redlock.Addresses)
	c.ZooKeeper.Servers, c.Etcd.Endpoints = all(c.ZooKeeper.Servers), all(c.Etcd.Endpoints)
	if c.Database.Driver != repo.MySQL {
		return c, nil
	}
	d, err := c.Database.With(func(to *mysql.Config) { to.Addr = instead(to.Addr) })
	if err != nil {
		return c, err
	}
	c.Database = *d
	return c, nil
}

// Conn is how a backend is reached by its name, and the database by any other.
func (b *Backends) Conn(name string) Conn {
	if one, ok := b.running()[name]; ok {
		return one.Conn()
	}
	return Conn{Database: *b.Database}
}
