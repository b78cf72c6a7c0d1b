//go:build prove

package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
)

// The same as TestAHungBackendHoldsUpNeitherRequestsNorTheExit for every strategy,
// with the link frozen and not the server: what was sent arrives later; or with the
// replies alone: the server has acted on what looks lost.
func TestProveAFrozenLinkHoldsUpNeitherRequestsNorTheExit(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	backends := must.Get(servers.StartBackends(t.Context(), labtest.StartSupervisor(t), servers.Choice{Mode: servers.Local, Database: servers.MariaDB}, func(string) {}))(t)
	dsn := must.Get(mysql.ParseDSN(backends.Database.DSN))(t)
	database, redis := labtest.NewProxy(t, dsn.Addr), labtest.NewProxy(t, backends.Redis.Address)
	etcd := labtest.NewProxy(t, strings.TrimPrefix(backends.Etcd.Endpoint, "http://"))
	zookeeper := labtest.NewProxy(t, backends.ZooKeeper.Address)
	dsn.Addr = database.Address
	env := []string{
		"STOCKD_DATABASE_DSN=" + dsn.FormatDSN(), "STOCKD_REDIS_ADDRESSES=" + redis.Address,
		"STOCKD_ZOOKEEPER_ADDRESSES=" + zookeeper.Address, "STOCKD_ETCD_ENDPOINTS=http://" + etcd.Address,
	}
	links := []frozen{
		frozenLink(database, true, "naive", "mutex", "channel", "sql-conditional", "sql-procedure", "sql-for-update", "sql-optimistic", "sql-bucket", "sql-unit",
			"sql-insert-lock", "sql-version-lock", "sql-row-lock", "sql-named-lock", "redis-decr", "redis-lua", "zk-sequential", "etcd", "redlock"),
		frozenLink(redis, false, "redis-setnx-owner", "redis-getset", "redis-lua", "redis-reentrant", "redis-fair", "redsync", "redis-decr",
			"redis-list", "redis-stock"),
		frozenLink(zookeeper, false, "zk-ephemeral", "zk-herd", "zk-sequential"),
		frozenLink(etcd, false, "etcd"),
	}
	for i, f := range links {
		name := []string{"database", "redis", "zookeeper", "etcd"}[i]
		t.Run(name, func(t *testing.T) { f.test(t, slices.Concat(backends.Env(), env), int64(i+1)*100) })
		f.pause = does([]*servers.Proxy{database, redis, zookeeper, etcd}[i].FreezeReplies)
		t.Run(name+", replies alone", func(t *testing.T) { f.test(t, slices.Concat(backends.Env(), env), int64(i+11)*100) })
	}
}

func frozenLink(p *servers.Proxy, reads bool, strategies ...string) frozen {
	return frozen{pause: does(p.Freeze), resume: does(p.Thaw), strategies: strategies, reads: reads}
}

func does(do func()) func(context.Context) error {
	return func(context.Context) error {
		do()
		return nil
	}
}

func TestProveFiveThousandIdleConnections(t *testing.T) {
	r := startReplica(t, "--http-read-timeout=10s", "--http-idle-timeout=10s")
	r.holdsOff(t, 5000, 128<<20)
}
