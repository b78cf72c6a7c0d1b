package scenario

import (
	"time"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Environment is what the steps of one try of a part act on.
type Environment struct {
	Keeper   *servers.Supervisor
	Backends *servers.Backends
	// Cluster is nil where the stage has no replicas.
	Cluster *cluster.Cluster
	// Item is used by this try alone, as are its locks.
	Item int64
	// Start is when the first step began.
	Start time.Time
	// History takes what happens.
	History *history.Writer

	// Proxy is what stands before a server, and Point the rule that was armed
	// there last; both are nil until a step or the stage made them.
	Proxy *servers.Proxy
	Point *servers.Trigger

	// Pair is a Redis with a replica, Masters are those of Redlock, and Links stand
	// before them for the first replica of the service alone. They are nil until the
	// stage made them.
	Pair    *servers.RedisPair
	Masters *servers.Redlock
	Links   []*servers.Proxy
	// Own are variables of single replicas, by their number from 1, beside those of
	// the stage.
	Own map[int][]string

	file    string // of the history
	spoilt  bool
	closers []func() error
}

// Client speaks to the replicas through their balancer.
func (s *Environment) Client() client.Client { return s.Cluster.Client() }

// URL is where a buyer goes: to one of the replicas, from 1, or with 0 to the
// balancer.
func (s *Environment) URL(replica int) string {
	if replica == 0 {
		return s.Cluster.URL
	}
	return s.Cluster.Replicas[replica-1].URL
}

// Mark writes down that something was done, now.
func (s *Environment) Mark(who, what string) error {
	return s.History.Add(history.Line{Mark: &history.Mark{At: time.Now(), Who: who, What: what}})
}

// Figure writes down a number.
func (s *Environment) Figure(name string, value float64) error {
	return s.History.Add(history.Line{Figure: &history.Figure{Name: name, Value: value}})
}

// Spoil tells that the replicas cannot serve another try: one was killed, or its
// servers are not what they were.
func (s *Environment) Spoil() { s.spoilt = true }

// Later has something done at the end of the try, whatever comes of it, the last
// one first.
func (s *Environment) Later(do func() error) { s.closers = append(s.closers, do) }
