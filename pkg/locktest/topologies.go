package locktest

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// topology is a backend that is made of several servers.
type topology struct {
	of backend.Name
	// direct tells that its clients find the servers by themselves: what stands
	// between a client and one server, or kills all of them, is not tried.
	direct bool
	start  func(t *testing.T, lab *labtest.Lab) (site, crashable)
}

// topologies are those that a backend can grow to.
func topologies() map[string]topology {
	return map[string]topology{
		"zookeeper-ensemble": {of: backend.ZooKeeper, start: func(t *testing.T, lab *labtest.Lab) (site, crashable) {
			e := lab.OwnEnsemble(t)
			members := make([]string, len(e.Members))
			for i, member := range e.Members {
				members[i] = member.Address
			}
			return newZooKeeperBackend(t, members...), e
		}},
		"etcd-cluster": {of: backend.Etcd, start: func(t *testing.T, lab *labtest.Lab) (site, crashable) {
			c := lab.OwnEtcdCluster(t)
			members := make([]string, len(c.Members))
			for i, member := range c.Members {
				members[i] = member.Endpoint
			}
			return newEtcdBackend(t, members...), c
		}},
		"redis-cluster": {of: backend.Redis, direct: true, start: func(t *testing.T, lab *labtest.Lab) (site, crashable) {
			c := lab.OwnRedisCluster(t, servers.RedisClusterOptions{Masters: 3, Replicas: true})
			return newRedisBackend(t, addresses{Redis: addressesOf(c.Masters), Cluster: true, Password: c.Masters[0].Password, TTL: time.Second}), nil
		}},
		"redis-sentinels": {of: backend.Redis, direct: true, start: func(t *testing.T, lab *labtest.Lab) (site, crashable) {
			s := lab.OwnSentinels(t, nil)
			return newRedisBackend(t, addresses{
				Redis: addressesOf(s.Watchers), Master: servers.MasterName, Password: s.Master.Password,
				SentinelPassword: s.Watchers[0].Password, TTL: time.Second,
			}), nil
		}},
	}
}

func addressesOf(nodes []*servers.Redis) []string {
	list := make([]string, len(nodes))
	for i, node := range nodes {
		list[i] = node.Address
	}
	return list
}
