package main

import (
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/hot"
)

// lockDeps is what the locks of a replica are made of. Nothing is waited for: a
// server that is down now is found when it is up.
func lockDeps(c config.Config, heard observation) (lock.Deps, error) {
	clients, err := lockClients(c, heard.storeOptions(c))
	if err != nil {
		return lock.Deps{}, err
	}
	heard.follow(clients)
	return bend(lock.Deps{
		Clients: clients, TTL: c.Lock.TTL, Retry: c.Lock.Retry,
		Issue: lock.NewTokens(clients.DB, clients.Dialect).Issue,
	}, c.Lab), nil
}

// hotOptions is how redis-stock sells.
func hotOptions(c config.Config, log *slog.Logger, heard hot.Observer) hot.Options {
	r := c.RedisStock
	return hot.Options{
		Prefix: r.Prefix, Partitions: r.Partitions, Batch: r.Batch, Linger: r.Linger, ClaimAfter: r.ClaimAfter,
		Remember: max(r.Remember, 2*c.Deduct.Timeout), Reconcile: r.Reconcile, PerUser: int64(r.PerUser), Observer: heard, Log: log,
	}
}

// lockSlice is how long a lock in SQL waits inside of the database at a time:
// in between it looks whether anybody still wants it.
const lockSlice = time.Second

func lockClients(c config.Config, o repo.Options) (*lock.Clients, error) {
	o.MaxOpen, o.LockWait = c.Lock.Connections, lockSlice
	pool, dialect, err := repo.OpenPool(o)
	if err != nil {
		return nil, err
	}
	clients := &lock.Clients{DB: pool, Dialect: dialect}
	if len(c.Redis.Addresses) > 0 {
		clients.RedisOptions = lock.RedisOptions{
			Addresses: c.Redis.Addresses, Username: c.Redis.Username, Password: c.Redis.Password.Reveal(),
			SentinelPassword: c.Redis.SentinelPassword.Reveal(), DB: c.Redis.DB,
			Master: c.Redis.Master, Cluster: c.Redis.Cluster, Timeout: c.Redis.Timeout, PoolSize: c.Redis.MaxOpen,
		}
		clients.Redis = lock.NewRedisClient(clients.RedisOptions)
	}
	for _, address := range c.Redlock.Addresses {
		clients.Redlock = append(clients.Redlock, lock.NewRedisClient(lock.RedisOptions{
			Addresses: []string{address}, Username: c.Redlock.Username, Password: c.Redlock.Password.Reveal(),
			Timeout: c.Redis.Timeout, PoolSize: c.Redis.MaxOpen,
		}))
	}
	if len(c.ZooKeeper.Addresses) > 0 {
		clients.ZooKeeper = lock.NewZooKeeperClient(lock.ZooKeeperOptions{
			Servers: c.ZooKeeper.Addresses, SessionTimeout: c.Lock.TTL, DialTimeout: time.Second, Auth: c.ZooKeeper.Auth.Reveal(),
		})
	}
	if len(c.Etcd.Endpoints) > 0 {
		clients.Etcd, err = lock.NewEtcdClient(lock.EtcdOptions{
			Endpoints: c.Etcd.Endpoints, Username: c.Etcd.Username, Password: c.Etcd.Password.Reveal(), DialTimeout: time.Second,
		})
	}
	return clients, err
}
