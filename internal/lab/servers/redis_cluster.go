package servers

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// RedisCluster is a number of masters that divide the slots. They keep nothing on
// disk.
type RedisCluster struct {
	redisGroup

	Masters []*Redis
	// Replicas are one for each master, or none.
	Replicas []*Redis
}

// RedisClusterOptions say how a cluster is to be.
type RedisClusterOptions struct {
	Masters int
	// Replicas gives each master one, which replaces it when it dies.
	Replicas bool
	// Security is what the nodes require of clients, and of each other; nil: a
	// password alone.
	Security *Security
}

// clusterTimeout is the silence in milliseconds after which a master counts as dead.
const clusterTimeout = 1000

// StartRedisCluster starts a cluster whose every slot is served before this returns.
func StartRedisCluster(ctx context.Context, k *Supervisor, o RedisClusterOptions) (_ *RedisCluster, err error) {
	count := o.Masters
	if o.Replicas {
		count *= 2
	}
	c, password := new(RedisCluster), rand.Text()
	defer closeAfter(ctx, c, &err)
	nodes, err := c.add(ctx, count, func(ctx context.Context) (*Redis, error) {
		bus, err := FreePort()
		if err != nil {
			return nil, err
		}
		config := keepsNothing + syncsAtOnce + fmt.Sprintf("cluster-enabled yes\ncluster-port %d\ncluster-node-timeout %d\nmasterauth %s\n",
			bus, clusterTimeout, password)
		if o.Security != nil {
			config += "tls-cluster yes\n"
		}
		return localRedis(ctx, k, redisSetup{password: password, config: config, security: o.Security})
	})
	if err != nil {
		return nil, err
	}
	c.Masters, c.Replicas = nodes[:o.Masters], nodes[o.Masters:]
	c.Name = fmt.Sprintf("cluster of %d × %s", len(nodes), c.Name)
	return c, c.form(ctx)
}

// form makes one cluster of nodes that do not know each other.
func (c *RedisCluster) form(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.all))
	for i, node := range c.all {
		client, err := node.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // what it was for has been answered
		clients[i] = client
	}
	for i, node := range c.all[1:] {
		if err := meet(ctx, clients[0], clients[i+1], node.Address); err != nil {
			return fmt.Errorf("introduce a node: %w", err)
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d", len(clients))
	if err := awaitCluster(ctx, clients, known); err != nil {
		return err
	}
	for i, master := range clients[:len(c.Masters)] {
		first, last := slots*i/len(c.Masters), slots*(i+1)/len(c.Masters)-1
		if err := master.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return fmt.Errorf("give a node its slots: %w", err)
		}
	}
	for i, replica := range clients[len(c.Masters):] {
		id, err := clients[i].ClusterMyID(ctx).Result()
		if err == nil {
			err = replica.ClusterReplicate(ctx, id).Err()
		}
		if err != nil {
			return fmt.Errorf("make a replica: %w", err)
		}
	}
	if err := awaitCluster(ctx, clients, "cluster_state:ok", known); err != nil {
		return err
	}
	for _, replica := range c.Replicas {
		if err := replica.AwaitReplica(ctx); err != nil {
			return err
		}
	}
	return nil
}

func meet(ctx context.Context, to, node *redis.Client, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	bus, err := node.ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return err
	}
	return to.Do(ctx, "CLUSTER", "MEET", host, port, bus["cluster-port"]).Err()
}

func awaitCluster(ctx context.Context, clients []*redis.Client, wanted ...string) error {
	for _, client := range clients {
		if err := awaitInfo(ctx, "the cluster", func(ctx context.Context) (string, error) { return client.ClusterInfo(ctx).Result() }, wanted...); err != nil {
			return err
		}
	}
	return nil
}

// MasterOf is the node that serves a key now, as a running node knows it.
func (c *RedisCluster) MasterOf(ctx context.Context, key string) (*Redis, error) {
	addresses := addressesOf(c.all)
	encryption, err := c.Masters[0].security.ClientConfig()
	if err != nil {
		return nil, err
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, Password: c.Masters[0].Password, TLSConfig: encryption})
	defer client.Close() //nolint:errcheck // what it was for has been answered
	serves, err := client.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("ask who serves %s: %w", key, err)
	}
	at := slices.Index(addresses, serves.Options().Addr)
	if at < 0 {
		return nil, fmt.Errorf("%s serves %s, and is no node of the cluster", serves.Options().Addr, key)
	}
	return c.all[at], nil
}

// Conn is how the cluster is reached.
func (c *RedisCluster) Conn() Conn {
	to := c.Masters[0].Conn()
	to.Redis.Cluster, to.Redis.Addresses = true, addressesOf(c.all)
	return to
}
