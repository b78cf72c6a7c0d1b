// Package shop starts what a run needs, in one way: the servers, replicas of stockd as processes of their own
// behind a balancer, as a deployment has them, and the clients that use them.
package shop

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/stockd/stockd/internal/lab/servers"
)

// Options say what to open.
type Options struct {
	// Binary is a stocklab, which the replicas run.
	Binary string
	// Servers is where the servers, and the balancers, are to come from.
	Servers servers.Choice
	// Progress is notified of what takes a moment; it may be nil.
	Progress func(words string)
}

// Shop is servers, and the clusters of replicas that use them. What it has ends with the process at the latest.
type Shop struct {
	Supervisor *servers.Supervisor
	Servers    *servers.Backends

	options  Options
	mu       sync.Mutex
	clusters []*Cluster // that are not closed
}

// Open starts the servers. Where it fails, nothing is left of them.
func Open(ctx context.Context, o Options) (s *Shop, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s = &Shop{options: o}
	if s.Supervisor, err = servers.StartSupervisor(); err != nil {
		return nil, err
	}
	if s.Servers, err = servers.StartBackends(ctx, s.Supervisor, o.Servers, o.Progress); err != nil {
		return nil, errors.Join(err, s.Supervisor.Close())
	}
	return s, nil
}

// Embedded reports whether the database runs in the replicas.
func (s *Shop) Embedded() bool { return s.Servers.Database.Started == servers.Embedded }

// Close ends clusters and servers, also where some do not end as they should, or ctx has ended.
func (s *Shop) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, c := range s.open() {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(append(errs, s.Servers.Close(ctx), s.Supervisor.Close())...)
}

func (s *Shop) open() []*Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clusters)
}

func (s *Shop) enter(c *Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters = append(s.clusters, c)
}

func (s *Shop) leave(c *Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters = slices.DeleteFunc(s.clusters, func(other *Cluster) bool { return other == c })
}
