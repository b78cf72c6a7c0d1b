// Package cluster runs replicas of stockd as processes of their own behind a
// balancer, as a deployment has them.
package cluster

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

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/nginx"
)

// Options say what to run.
type Options struct {
	// Binary is a stocklab.
	Binary string
	// Command of it is run for each replica; replica where it is empty.
	Command string
	// Replicas is how many, at least 1.
	Replicas int
	// Env holds the STOCKD_… variables that every replica gets.
	Env []string
	// Own holds more of them for single replicas, by their number from 1.
	Own map[int][]string
	// Embedded says that the database runs in the replicas.
	Embedded bool
	// Processors is how many each replica uses; 0: a fair share of the machine.
	Processors int
	// Balancer is where the balancer is to come from, and Limits what it allows one
	// address; a balancer without nginx sets none.
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

	token  string
	last   int                         // the highest number of a replica so far
	folder string                      // of what the replicas write
	closer func(context.Context) error // closes the balancer
	// rebalance has the balancer know the replicas, one of whom may have joined or left.
	rebalance func(ctx context.Context, joined, left string) error
}

// Start starts replicas and balancer, and returns when all of them answer.
func Start(ctx context.Context, k *servers.Supervisor, o Options) (*Cluster, error) {
	c := &Cluster{token: rand.Text()}
	var err error
	// Another cluster of the same supervisor has another folder, although its replicas have
	// the same names.
	if c.folder, err = os.MkdirTemp(k.Folder(), "cluster-"); err != nil {
		return nil, fmt.Errorf("make a folder for replicas: %w", err)
	}
	for range o.Replicas {
		c.Replicas = append(c.Replicas, c.make(k, o))
	}
	if err := c.startReplicas(ctx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	if err := c.startBalancer(ctx, k, o); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// make is a replica that is not started. No two have the same number.
func (c *Cluster) make(k *servers.Supervisor, o Options) *Replica {
	c.last++
	r := &Replica{Name: fmt.Sprintf("replica-%d", c.last), number: c.last, supervisor: k, options: o, token: c.token}
	r.log = filepath.Join(c.folder, r.Name+".log")
	if o.Lab {
		r.history = filepath.Join(c.folder, r.Name+".jsonl")
	}
	return r
}

// Another is one more replica like the others. It is to be started, and then to join.
func (c *Cluster) Another() *Replica {
	return c.make(c.Replicas[0].supervisor, c.Replicas[0].options)
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
func (c *Cluster) ClientTo(r *Replica) client.Client {
	return client.Client{URL: r.URL, AdminURL: r.AdminURL, Token: c.token}
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
func (c *Cluster) Client() client.Client {
	return client.Client{URL: c.URL, AdminURL: c.Replicas[0].AdminURL, Token: c.token}
}

// ClientOf uses one replica, counted from 0, and its admin API.
func (c *Cluster) ClientOf(i int) client.Client { return c.ClientTo(c.Replicas[i]) }

// Close stops the balancer and then the replicas.
func (c *Cluster) Close(ctx context.Context) error {
	var errs []error
	if c.closer != nil {
		errs = append(errs, c.closer(ctx))
	}
	for _, r := range c.Replicas {
		if r.server != nil {
			errs = append(errs, r.server.Close(ctx))
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
func (o Options) processors() int {
	if o.Processors > 0 {
		return o.Processors
	}
	least := 1
	if o.Embedded {
		least = 2
	}
	return max(least, runtime.NumCPU()/(o.Replicas+1))
}

// Replica is one stockd.
type Replica struct {
	Name string
	// URL is of the public API, AdminURL of the admin API.
	URL, AdminURL string

	number     int
	supervisor *servers.Supervisor
	options    Options
	token      string
	history    string
	log        string
	server     *servers.Server // nil before the first start
}

// Start starts the replica, and returns when it answers. One that was killed may be
// started again: it takes the ports it had.
func (r *Replica) Start(ctx context.Context) (err error) {
	if r.server != nil {
		return r.server.Restart(ctx)
	}
	r.server, err = servers.Launch(ctx, r.supervisor, servers.Spec{
		Name: r.Name, Program: r.options.Binary, Folder: filepath.Dir(r.log), Log: r.log, Stop: syscall.SIGTERM, Env: outside(),
		Ready: func(ctx context.Context, _ int) error { return client.Client{URL: r.URL}.Ready(ctx) },
		Configure: func(_ string, port int) (args, env []string, err error) {
			admin, err := servers.FreePort()
			if err != nil {
				return nil, nil, err
			}
			r.URL, r.AdminURL = "http://"+servers.Loopback(port), "http://"+servers.Loopback(admin)
			return []string{cmp.Or(r.options.Command, "replica")}, r.env(), nil
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
	return append(slices.Concat(env, r.options.Env, r.options.Own[r.number]),
		fmt.Sprintf("GOMAXPROCS=%d", r.options.processors()),
		"STOCKD_REPLICA="+r.Name,
		"STOCKD_HTTP_LISTEN="+strings.TrimPrefix(r.URL, "http://"),
		"STOCKD_ADMIN_LISTEN="+strings.TrimPrefix(r.AdminURL, "http://"),
		"STOCKD_ADMIN_TOKEN="+r.token,
	)
}

// Stop ends the replica as a deployment does: it answers what it has begun.
func (r *Replica) Stop(ctx context.Context) error { return r.server.Close(ctx) }

// Kill ends the replica without a warning, and returns when it has ended.
func (r *Replica) Kill(ctx context.Context) error { return r.server.Kill(ctx) }

// Pid is the replica's process id.
func (r *Replica) Pid() int { return r.server.Process().Pid() }

// History is the file of the replica's leases and failpoints. A restart appends to
// it. It is empty outside of experiments.
func (r *Replica) History() string { return r.history }

// Log is the file of its output.
func (r *Replica) Log() string { return r.log }

// Done is closed when the replica's process has ended.
func (r *Replica) Done() <-chan struct{} { return r.server.Process().Done() }

// Signal sends its process a signal.
func (r *Replica) Signal(ctx context.Context, signal syscall.Signal) error {
	return r.server.Process().Signal(ctx, signal)
}
