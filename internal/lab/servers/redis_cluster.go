package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
)

// slots is how many a cluster divides its keys into.
const slots = 16384

// RedisCluster is a number of masters that have the slots between them. They keep
// nothing on disk.
type RedisCluster struct {
	Info
	Masters []*Redis
	// Replicas are one for each master, or none.
	Replicas []*Redis
}

// RedisClusterOptions say how a cluster is to be.
type RedisClusterOptions struct {
	Masters int
	// Replicas gives each master one, which takes its place when it dies.
	Replicas bool
	// Security is what the nodes ask of clients, and of each other; nil: a password
	// alone.
	Security *Security
}

// clusterTimeout is after how many milliseconds of silence a master counts as dead.
const clusterTimeout = 1000

// StartRedisCluster starts a cluster whose every slot is served before this returns.
func StartRedisCluster(ctx context.Context, k *Supervisor, o RedisClusterOptions) (*RedisCluster, error) {
	count := o.Masters
	if o.Replicas {
		count *= 2
	}
	password := rand.Text()
	nodes, err := startAll(ctx, count, func(ctx context.Context) (*Redis, error) {
		bus, err := FreePort()
		if err != nil {
			return nil, err
		}
		config := keepsNothing + fmt.Sprintf("cluster-enabled yes\ncluster-port %d\ncluster-node-timeout %d\nmasterauth %s\n"+
			"repl-diskless-sync-delay 0\n", bus, clusterTimeout, password)
		if o.Security != nil {
			config += "tls-cluster yes\n"
		}
		return localRedis(ctx, k, redisSetup{password: password, config: config, security: o.Security})
	})
	if err != nil {
		return nil, err
	}
	c := &RedisCluster{Info: nodes[0].Info, Masters: nodes[:o.Masters], Replicas: nodes[o.Masters:]}
	c.Name = fmt.Sprintf("cluster of %d × %s", len(nodes), c.Name)
	if err := c.form(ctx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// nodes are all of them.
func (c *RedisCluster) nodes() []*Redis {
	return append(append([]*Redis(nil), c.Masters...), c.Replicas...)
}

// form makes one cluster of nodes that do not know each other.
func (c *RedisCluster) form(ctx context.Context) error {
	clients := make([]*redis.Client, 0, len(c.nodes()))
	for _, node := range c.nodes() {
		client, err := node.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // what it was for has been answered
		clients = append(clients, client)
	}
	if err := c.meet(ctx, clients); err != nil {
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
		if err != nil {
			return fmt.Errorf("ask a master for its name: %w", err)
		}
		if err := replica.ClusterReplicate(ctx, id).Err(); err != nil {
			return fmt.Errorf("make a replica: %w", err)
		}
	}
	for _, client := range clients {
		want := []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", len(clients))}
		if err := awaitSaid(ctx, func() (string, error) { return client.ClusterInfo(ctx).Result() }, want...); err != nil {
			return fmt.Errorf("wait for the cluster: %w", err)
		}
	}
	for _, replica := range c.Replicas {
		if err := replica.AwaitReplica(ctx); err != nil {
			return fmt.Errorf("wait for a replica: %w", err)
		}
	}
	return nil
}

// AwaitReplica waits until a node follows another one, and has all of it.
func (r *Redis) AwaitReplica(ctx context.Context) error {
	client, err := r.Client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	return awaitSaid(ctx, func() (string, error) { return client.Info(ctx, "replication").Result() }, "role:slave", "master_link_status:up")
}

// meet introduces the nodes to each other, and waits until all have heard of all.
func (c *RedisCluster) meet(ctx context.Context, clients []*redis.Client) error {
	for i, node := range c.nodes()[1:] {
		host, port, err := net.SplitHostPort(node.Address)
		if err != nil {
			return err
		}
		bus, err := clients[i+1].ConfigGet(ctx, "cluster-port").Result()
		if err != nil {
			return fmt.Errorf("ask a node for its port: %w", err)
		}
		if err := clients[0].Do(ctx, "CLUSTER", "MEET", host, port, bus["cluster-port"]).Err(); err != nil {
			return fmt.Errorf("introduce a node: %w", err)
		}
	}
	for _, client := range clients {
		want := fmt.Sprintf("cluster_known_nodes:%d", len(clients))
		if err := awaitSaid(ctx, func() (string, error) { return client.ClusterInfo(ctx).Result() }, want); err != nil {
			return fmt.Errorf("wait until the nodes know each other: %w", err)
		}
	}
	return nil
}

// awaitSaid asks until the answer has all that is wanted in it. A server that takes
// on another role hangs up on its clients: it is asked again.
func awaitSaid(ctx context.Context, ask func() (string, error), wanted ...string) error {
	limited, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		said, err := ask()
		lacking := ""
		for _, want := range wanted {
			if !strings.Contains(said, want+"\r\n") {
				lacking = want
			}
		}
		if lacking == "" {
			return nil
		}
		if late := pause.For(limited, leaderPoll); late != nil {
			return errors.Join(fmt.Errorf("%w: %s was never said; the last answer was\n%s", late, lacking, said), err)
		}
	}
}

// MasterOf is the node that serves a key now, as a node says that runs.
func (c *RedisCluster) MasterOf(ctx context.Context, key string) (*Redis, error) {
	addresses := make([]string, len(c.nodes()))
	for i, node := range c.nodes() {
		addresses[i] = node.Address
	}
	encryption, err := c.Masters[0].security.config()
	if err != nil {
		return nil, err
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, Password: c.Masters[0].Password, TLSConfig: encryption})
	defer client.Close() //nolint:errcheck // what it was for has been answered
	serves, err := client.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("ask who serves %s: %w", key, err)
	}
	for _, node := range c.nodes() {
		if node.Address == serves.Options().Addr {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%s serves %s, and is no node of the cluster", serves.Options().Addr, key)
}

// Close ends all nodes.
func (c *RedisCluster) Close(ctx context.Context) error { return closeAll(ctx, c.nodes()) }

// Env is what a replica of stockd has to be told to use the cluster.
func (c *RedisCluster) Env() []string {
	addresses := make([]string, len(c.nodes()))
	for i, node := range c.nodes() {
		addresses[i] = node.Address
	}
	return append([]string{
		"STOCKD_REDIS_CLUSTER=true", "STOCKD_REDIS_ADDRESSES=" + strings.Join(addresses, ","),
		"STOCKD_REDIS_PASSWORD=" + c.Masters[0].Password,
	}, c.Masters[0].security.env("redis")...)
}
