package servers

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// EtcdCluster is three etcds, which go on as long as two of them run. Each keeps
// its data over a restart.
type EtcdCluster struct {
	Info
	Members []*Etcd
}

// StartEtcdCluster starts the members, of which one leads before this returns.
// They are real servers.
func StartEtcdCluster(ctx context.Context, k *Supervisor) (*EtcdCluster, error) {
	program, err := findEtcd()
	if err != nil {
		return nil, err
	}
	c := &EtcdCluster{Members: make([]*Etcd, members)}
	for i := range c.Members {
		folder, err := os.MkdirTemp(k.Folder(), "etcd-")
		if err != nil {
			return nil, err
		}
		c.Members[i] = newEtcd(folder)
		c.Members[i].Started = Local
	}
	err = onFreePort(func(int) error {
		if err := c.configure(k, program); err != nil {
			return err
		}
		return restartAll(ctx, c.Members)
	})
	if err != nil {
		return nil, err
	}
	c.Info = c.Members[0].Info
	c.Name = fmt.Sprintf("%d × %s", len(c.Members), c.Name)
	return c, nil
}

// configure gives the members their places.
func (c *EtcdCluster) configure(k *Supervisor, program string) error {
	list := make([]string, len(c.Members))
	for i, member := range c.Members {
		port, err := FreePort()
		if err != nil {
			return err
		}
		if err := member.place(port); err != nil {
			return err
		}
		list[i] = member.itself()
	}
	for _, member := range c.Members {
		member.cluster = strings.Join(list, ",")
		member.runner = newChild(k, "etcd", member.command(program), member.readVersion)
	}
	return nil
}

// AwaitLeader waits until a member leads, and tells which.
func (c *EtcdCluster) AwaitLeader(ctx context.Context) (*Etcd, error) {
	return awaitLeader(ctx, c.Members, func(ctx context.Context, member *Etcd) bool {
		client, err := member.Open()
		if err != nil {
			return false
		}
		defer client.Close() //nolint:errcheck // what it was for has been answered
		status, err := client.Status(ctx, member.Endpoint)
		return err == nil && status.Leader == status.Header.GetMemberId()
	})
}

// Kill ends all members without a warning.
func (c *EtcdCluster) Kill(ctx context.Context) error { return c.Close(ctx) }

// Restart starts all members again.
func (c *EtcdCluster) Restart(ctx context.Context) error { return restartAll(ctx, c.Members) }

// Close ends all members.
func (c *EtcdCluster) Close(ctx context.Context) error { return closeAll(ctx, c.Members) }

// Env is what a replica has to be told to use the cluster.
func (c *EtcdCluster) Env() []string {
	endpoints := make([]string, len(c.Members))
	for i, member := range c.Members {
		endpoints[i] = member.Endpoint
	}
	return []string{"STOCKD_ETCD_ENDPOINTS=" + strings.Join(endpoints, ",")}
}
