// Package check verifies that servers are as stockd needs them: it tries what a replica does with the rights
// that a replica has, and takes back what it wrote.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// State is how a finding compares with what is wanted.
type State string

// The states.
const (
	OK      State = "ok"
	Warning State = "warning" // it sells, and there is a risk
	Problem State = "problem" // something will fail
)

// Finding is what a check has found, and what to do about it where it is not OK.
type Finding struct {
	What   string `json:"what"`
	State  State  `json:"state"`
	Found  string `json:"found"`
	Wanted string `json:"wanted,omitempty"`
	Do     string `json:"do,omitempty"`
}

// Check verifies one thing.
type Check struct {
	What string
	// Tries: it writes, and takes that back. The others read, and each replica makes them at its start.
	Tries bool
	// Connects: where it finds a problem, those after it would, too, and are left out.
	Connects bool
	Run      func(ctx context.Context) Finding
}

// Group is the checks of one server, which are made one after the other.
type Group []Check

// Reading are those that only read.
func (g Group) Reading() Group {
	return slices.DeleteFunc(slices.Clone(g), func(c Check) bool { return c.Tries })
}

// Run makes the checks of all groups at once, and returns what they found in their order. One that is not
// answered before ctx ends is a problem.
func Run(ctx context.Context, groups []Group) []Finding {
	found := make([][]Finding, len(groups))
	var running sync.WaitGroup
	for i, group := range groups {
		running.Go(func() { found[i] = group.run(ctx) })
	}
	running.Wait()
	return slices.Concat(found...)
}

func (g Group) run(ctx context.Context) (found []Finding) {
	for _, c := range g {
		f := c.run(ctx)
		found = append(found, f)
		if c.Connects && f.State == Problem {
			break
		}
	}
	return found
}

// answerWithin is longer than a server that works takes, and a connection to it.
const answerWithin = 5 * time.Second

// run does not wait for a library that does not heed its context.
func (c Check) run(ctx context.Context) (f Finding) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer := make(chan Finding, 1)
	go func() { answer <- c.Run(ctx) }()
	select {
	case f = <-answer:
	case <-ctx.Done():
		f = Finding{State: Problem, Found: "no answer in time", Do: "see whether the server hangs, or give --timeout more"}
	}
	f.What = c.What
	return f
}

// Judge is OK, or the other state with what to do.
func Judge(ok bool, otherwise State, found, wanted, do string) Finding {
	if ok {
		return Finding{State: OK, Found: found, Wanted: wanted}
	}
	return Finding{State: otherwise, Found: found, Wanted: wanted, Do: do}
}

// Tried is OK with what was done, or a problem with the error. do is for errors whose kind does not say what to do.
func Tried(err error, done, wanted, do string) Finding {
	if err == nil {
		return Finding{State: OK, Found: done, Wanted: wanted}
	}
	return Finding{State: Problem, Found: strings.Join(strings.Fields(err.Error()), " "), Wanted: wanted, Do: remedy(err, do)}
}

func remedy(err error, otherwise string) string {
	switch backend.Rejects(err) {
	case stock.ReadOnly:
		return "give the address of the server that takes writes, or have this one take them"
	case stock.NotPermitted:
		return "correct the user and the password, and give it the rights of docs/production.md and docs/tls.md"
	case stock.OutOfSpace:
		return "make room on its disk, or raise its quota; etcd: compact, defragment, then etcdctl alarm disarm"
	case stock.OutOfMemory:
		return "raise its limit of memory, or free some"
	case stock.NotSaved:
		return "make room on its disk, where it cannot save"
	case stock.TooFewReplicas, stock.NoQuorum:
		return "bring its other servers back"
	case stock.LimitReached:
		return "raise its limit of connections, or its quota"
	case stock.WrongSettings:
		return "change the setting that it names"
	case stock.NotReady:
		return "wait until it has started"
	default:
		return otherwise
	}
}

// clockLimit is how far clocks may be apart: tokens, certificates and reservations that one machine begins
// end by the clock of another one.
const clockLimit = time.Second

// Clocks are how far those of servers are ahead of ours.
type Clocks struct {
	mu    sync.Mutex
	ahead map[string]time.Duration
}

// Read is the check of one clock.
func (c *Clocks) Read(server string, now func(ctx context.Context) (time.Time, error)) Check {
	return Check{What: server + " clock", Run: func(ctx context.Context) Finding {
		asked := time.Now()
		at, err := now(ctx)
		if err != nil {
			return Tried(err, "", "its time", "see the server's log")
		}
		return c.compare(server, at, asked, time.Now())
	}}
}

// compare notes a clock that was read between two moments of ours.
func (c *Clocks) compare(server string, at, asked, answered time.Time) Finding {
	took := answered.Sub(asked)
	ahead := at.Sub(asked.Add(took / 2))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == nil {
		c.ahead = make(map[string]time.Duration)
	}
	c.ahead[server] = ahead
	return Judge(ahead.Abs() <= clockLimit+took/2, Warning, fmt.Sprintf("%+.3f s", ahead.Seconds()), "ours, within "+clockLimit.String(), "run NTP there, and here")
}

// Spread compares the clocks that were read with each other.
func (c *Clocks) Spread() Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first, last time.Duration
	for _, ahead := range c.ahead { // and ours
		first, last = min(first, ahead), max(last, ahead)
	}
	f := Judge(last-first <= clockLimit, Warning, fmt.Sprintf("%.3f s apart", (last-first).Seconds()), "within "+clockLimit.String(), "run NTP on all machines")
	f.What = "all clocks"
	return f
}
