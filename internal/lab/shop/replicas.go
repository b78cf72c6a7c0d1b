package shop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/nginx"
)

// Replicas say which replicas to start.
type Replicas struct {
	// Count is how many, at least 1.
	Count int
	// Command of the binary is run for each of them; replica where it is empty.
	Command string
	// Servers holds the variables that lead to the servers; nil: to all of the shop.
	Servers []string
	// Env holds the STOCKD_… variables that every replica gets, which win over those of the servers.
	Env []string
	// Own holds more of them for single replicas, by their number from 1.
	Own map[int][]string
	// Processors is how many each replica uses; 0: a fair share of the machine.
	Processors int
	// Balancer is where the balancer is to come from where the shop's choice does not say it, and Limits what it
	// allows one address; a balancer without nginx sets none.
	Balancer servers.Mode
	Limits   nginx.Limits
	// Lab turns on the failpoints of the replicas, and has each of them record its
	// leases.
	Lab bool
}

// Cluster is a number of replicas behind a balancer.
type Cluster struct {
	// URL is the balancer's.
	URL      string
	Balancer servers.Info
	Replicas []*Replica

	shop   *Shop
	asked  Replicas
	token  string
	last   int                         // the highest number of a replica so far
	folder string                      // of what the replicas write
	closer func(context.Context) error // closes the balancer
	// rebalance has the balancer know the replicas, one of whom may have joined or left.
	rebalance func(ctx context.Context, joined, left string) error
}

// Start starts replicas and their balancer, and returns when all of them answer. Other clusters go on.
func (s *Shop) Start(ctx context.Context, r Replicas) (*Cluster, error) {
	if r.Servers == nil {
		r.Servers = s.Servers.Env()
	}
	c := &Cluster{shop: s, asked: r, token: rand.Text()}
	var err error
	// Another cluster has another folder, although its replicas have the same names.
	if c.folder, err = os.MkdirTemp(s.Supervisor.Folder(), "cluster-"); err != nil {
		return nil, fmt.Errorf("make a folder for replicas: %w", err)
	}
	s.enter(c)
	for range r.Count {
		c.Replicas = append(c.Replicas, c.Another())
	}
	if err := c.startReplicas(ctx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	if err := c.startBalancer(ctx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Another is one more replica like the others. It is to be started, and then to join. No two have the same number.
func (c *Cluster) Another() *Replica {
	c.last++
	r := &Replica{Name: fmt.Sprintf("replica-%d", c.last), number: c.last, cluster: c}
	r.log = filepath.Join(c.folder, r.Name+".log")
	if c.asked.Lab {
		r.history = filepath.Join(c.folder, r.Name+".jsonl")
	}
	return r
}

// Join has the balancer send requests to a replica that answers.
func (c *Cluster) Join(ctx context.Context, r *Replica) error {
	c.Replicas = append(slices.Clone(c.Replicas), r)
	return c.rebalance(ctx, r.Name, "")
}

// Leave has the balancer send no more requests to a replica, which is then to be stopped. It
// is not the last one.
func (c *Cluster) Leave(ctx context.Context, r *Replica) error {
	c.Replicas = slices.DeleteFunc(slices.Clone(c.Replicas), func(other *Replica) bool { return other == r })
	return c.rebalance(ctx, "", r.Name)
}

// ClientTo uses one replica and its admin API.
func (c *Cluster) ClientTo(r *Replica) Client {
	return Client{URL: r.URL, AdminURL: r.AdminURL, Token: c.token}
}

// startReplicas starts one replica, which brings the schema up to date, and then
// the others together.
func (c *Cluster) startReplicas(ctx context.Context) error {
	if err := c.Replicas[0].Start(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range c.Replicas[1:] {
		group.Go(func() error { return r.Start(ctx) })
	}
	return group.Wait()
}

// Client uses the cluster through its balancer, and the admin API of its first
// replica.
func (c *Cluster) Client() Client {
	return Client{URL: c.URL, AdminURL: c.Replicas[0].AdminURL, Token: c.token}
}

// ClientOf uses one replica, counted from 0, and its admin API.
func (c *Cluster) ClientOf(i int) Client { return c.ClientTo(c.Replicas[i]) }

// Infos says what runs: the servers, and the balancer.
func (c *Cluster) Infos() map[string]servers.Info {
	infos := c.shop.Servers.Infos()
	infos["balancer"] = c.Balancer
	return infos
}

// Close stops the balancer and then the replicas.
func (c *Cluster) Close(ctx context.Context) error {
	if c.shop != nil {
		c.shop.leave(c)
	}
	var errs []error
	if c.closer != nil {
		errs = append(errs, c.closer(ctx))
	}
	for _, r := range c.Replicas {
		if r.Server != nil {
			errs = append(errs, r.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// processors is how many each replica uses: a fair share, because replicas,
// database, balancer and clients run on one machine.
//
// A replica never blocks on an embedded database. On one processor it would rarely
// be interrupted between its read and its write, and the races that a run is to show
// would not happen: it gets at least two.
func (r Replicas) processors(embedded bool) int {
	if r.Processors > 0 {
		return r.Processors
	}
	least := 1
	if embedded {
		least = 2
	}
	return max(least, runtime.NumCPU()/(r.Count+1))
}

// Replica is one stockd.
type Replica struct {
	*servers.Server // nil before the first start

	Name string
	// URL is of the public API, AdminURL of the admin API.
	URL, AdminURL string

	number  int
	cluster *Cluster
	history string
	log     string
}

// Start starts the replica, and returns when it answers. One that was killed may be
// started again: it takes the ports it had.
func (r *Replica) Start(ctx context.Context) (err error) {
	if r.Server != nil {
		return r.Restart(ctx)
	}
	r.Server, err = servers.Launch(ctx, r.cluster.shop.Supervisor, servers.Spec{
		Name: r.Name, Program: r.cluster.shop.Binary, Folder: filepath.Dir(r.log), Log: r.log, Stop: syscall.SIGTERM, Env: outside(),
		Ready: func(ctx context.Context, _ int) error { return Client{URL: r.URL}.Ready(ctx) },
		Configure: func(_ string, port int) (args, env []string, err error) {
			admin, err := servers.FreePort()
			if err != nil {
				return nil, nil, err
			}
			r.URL, r.AdminURL = "http://"+servers.Loopback(port), "http://"+servers.Loopback(admin)
			return []string{cmp.Or(r.cluster.asked.Command, "replica")}, r.env(), nil
		},
	})
	return err
}

// outside is the environment of this process without the configuration of a stockd.
func outside() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "STOCKD_") })
}

func (r *Replica) env() []string {
	var env []string
	if r.history != "" {
		env = []string{"STOCKD_LAB_ENABLED=true", "STOCKD_LAB_HISTORY=" + r.history}
	}
	asked := r.cluster.asked
	return append(slices.Concat(env, asked.Servers, asked.Env, asked.Own[r.number]),
		fmt.Sprintf("GOMAXPROCS=%d", asked.processors(r.cluster.shop.Embedded())),
		"STOCKD_REPLICA="+r.Name,
		"STOCKD_HTTP_LISTEN="+strings.TrimPrefix(r.URL, "http://"),
		"STOCKD_ADMIN_LISTEN="+strings.TrimPrefix(r.AdminURL, "http://"),
		"STOCKD_ADMIN_TOKEN="+r.cluster.token,
	)
}

// History is the file of the replica's leases and failpoints. A restart appends to
// it. It is empty outside of experiments.
func (r *Replica) History() string { return r.history }

// Log is the file of its output.
func (r *Replica) Log() string { return r.log }
