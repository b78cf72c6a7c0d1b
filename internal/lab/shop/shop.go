// Package shop starts what a run needs, in one way: the servers, replicas of stockd as processes of their own
// behind a balancer, as a deployment has them, and the clients that use them.
package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/stockd/stockd/internal/lab/servers"
)

// Options say what to open.
type Options struct {
	// Servers is where the servers, and the balancers, are to come from.
	Servers servers.Choice
	// Progress is notified of what takes a moment; it may be nil.
	Progress func(words string)
}

// Shop is servers, and the clusters of replicas that use them. What it has ends with the process at the latest.
type Shop struct {
	Supervisor *servers.Supervisor
	Servers    *servers.Backends
	// Binary is this program, which the replicas run.
	Binary string

	options  Options
	mu       sync.Mutex
	clusters []*Cluster // that are not closed
	links    []*servers.Proxy
}

// Open starts the servers. Where it fails, nothing is left of them.
func Open(ctx context.Context, o Options) (s *Shop, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s = &Shop{options: o}
	if s.Binary, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
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
	s.mu.Lock()
	open := slices.Clone(s.clusters) // each leaves as it closes
	s.mu.Unlock()
	var errs []error
	for _, c := range open {
		errs = append(errs, c.Close(ctx))
	}
	for _, link := range s.links {
		link.Close()
	}
	return errors.Join(append(errs, s.Servers.Close(ctx), s.Supervisor.Close())...)
}

var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Links puts a proxy before each server that has an address. It returns them by the server's name, with the
// variables that lead a replica through them.
func (s *Shop) Links() (links map[string]*servers.Proxy, env []string, err error) {
	members, err := s.Servers.Members()
	if err != nil {
		return nil, nil, err
	}
	links, env = make(map[string]*servers.Proxy), s.Servers.Env()
	front := make(map[string]string)
	for _, member := range members {
		if member.Address == "" {
			continue
		}
		if links[member.Name], err = servers.NewProxy(member.Address); err != nil {
			return nil, nil, err
		}
		s.links = append(s.links, links[member.Name])
		front[member.Address] = links[member.Name].Address
	}
	for i := range env {
		env[i] = loopback.ReplaceAllStringFunc(env[i], func(address string) string { return cmp.Or(front[address], address) })
	}
	return links, env, nil
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
