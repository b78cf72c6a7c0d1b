//go:build prove

package strategy_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/strategytest"
)

// The suite again on backends of several servers: what sells from Redis, and a lock
// of each.
func TestProveStrategiesOnSeveralServers(t *testing.T) {
	const within = time.Second
	hot := []string{"redis-stock", "redis-decr", "redis-list", "redis-reentrant"}
	for _, place := range []struct {
		name  string
		only  []string
		start func(t *testing.T) func(t *testing.T, c *backend.Clients)
	}{
		{"redis-cluster", hot, func(t *testing.T) func(*testing.T, *backend.Clients) {
			c := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 3, Replicas: true})
			return redisOf(backend.RedisOptions{Cluster: true, Password: c.Masters[0].Password, Timeout: within, PoolSize: 8}, c.Masters)
		}},
		{"redis-sentinels", hot, func(t *testing.T) func(*testing.T, *backend.Clients) {
			s := labtest.Own(t, lab.Supervisor(), "redis", servers.StartSentinels, nil)
			return redisOf(backend.RedisOptions{
				Master: servers.MasterName, Password: s.Master.Password, SentinelPassword: s.Watchers[0].Password, Timeout: within, PoolSize: 8,
			}, s.Watchers)
		}},
		{"zookeeper-ensemble", []string{"zk-sequential"}, func(t *testing.T) func(*testing.T, *backend.Clients) {
			e := labtest.Own(t, lab.Supervisor(), "zookeeper", servers.StartZooKeeperEnsemble, 3)
			return func(_ *testing.T, c *backend.Clients) {
				o := backend.ZooKeeperOptions{SessionTimeout: labtest.ZooKeeperSession, DialTimeout: within}
				for _, member := range e.Members {
					o.Servers = append(o.Servers, member.Address)
				}
				c.ZooKeeper = backend.NewZooKeeper(o)
			}
		}},
		{"etcd-cluster", []string{"etcd"}, func(t *testing.T) func(*testing.T, *backend.Clients) {
			e := labtest.Own(t, lab.Supervisor(), "etcd", servers.StartEtcdCluster, 3)
			return func(t *testing.T, c *backend.Clients) {
				o := backend.EtcdOptions{Username: servers.EtcdUser, Password: e.Members[0].Password, DialTimeout: within}
				for _, member := range e.Members {
					o.Endpoints = append(o.Endpoints, member.Endpoint)
				}
				var err error
				if c.Etcd, err = backend.NewEtcd(o); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(place.name, func(t *testing.T) {
			connect, d := place.start(t), lab.Database(t, servers.MariaDB)
			strategytest.Run(t, strategytest.Bench{
				Only: place.only,
				Open: func(t *testing.T, replica string) *repo.Store { return labtest.Open(t, d, replica) },
				Locks: func(t *testing.T, _ []backend.Name) lock.Deps {
					deps := lab.Locks(t, d)
					connect(t, deps.Clients)
					return deps
				},
			})
		})
	}
}

// TestConformance has a part of them on SQLite, and of most locks what is their own.
func TestProveEveryStrategyInFull(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) { strategytest.Run(t, benchOn(d)) })
}

// All that are available on the shards of Vitess.
func TestProveEveryStrategyOnVitess(t *testing.T) {
	bench := benchOn(lab.Vitess(t).Database)
	for _, e := range strategy.Registry() {
		if e.NotOnShards == "" {
			bench.Only = append(bench.Only, e.Name)
		}
	}
	strategytest.Run(t, bench)
}

// redisOf connects to the nodes, as one replica does.
func redisOf(o backend.RedisOptions, nodes []*servers.Redis) func(*testing.T, *backend.Clients) {
	for _, node := range nodes {
		o.Addresses = append(o.Addresses, node.Address)
	}
	return func(_ *testing.T, c *backend.Clients) {
		c.RedisOptions = o
		c.Redis = backend.NewRedis(o)
	}
}
