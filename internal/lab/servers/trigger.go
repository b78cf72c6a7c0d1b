package servers

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Action is what a proxy does to a request.
type Action string

// The actions.
const (
	// Lose has the request be lost, and its connection end.
	Lose Action = "lose"
	// LoseReply has the server get the request and act, and its reply be lost: the
	// connection ends. Where the server is silent for a second, it ends, too.
	LoseReply Action = "lose reply"
	// HangReply is the same, but the connection stays, and hangs.
	HangReply Action = "hang reply"
	// Hold has the request wait before the server gets it. It gets it even where
	// the client has hung up meanwhile.
	Hold Action = "hold"
	// HoldReply has the reply wait after the server has acted.
	HoldReply Action = "hold reply"
	// Count changes nothing: Seen is how often the bytes came, also several times in
	// one request.
	Count Action = "count"
)

// Rule says at which request what is to be done, once.
type Rule struct {
	// Sent are the bytes by which the request is known, at most longest. They are
	// found also where they come in several pieces.
	Sent string
	// Nth is at which request with these bytes since the rule was armed, on
	// whichever connection; 0 is 1. However often they are in it, a request is one.
	Nth int
	Do  Action
	// For is how long Hold and HoldReply wait; where it is 0, until Pass.
	For time.Duration
}

// longest is how many bytes a rule may look for.
const longest = 1 << 10

// Trigger is a rule that was armed.
type Trigger struct {
	Rule

	proxy   *Proxy
	seen    int  // with the proxy's mutex
	met     bool // the same
	reached chan struct{}
	passed  chan struct{}
	reach   func() // closes reached, once
	pass    func() // closes passed, once
}

// Arm lays a rule down. Several rules may wait at once; of those that one
// request meets, the oldest acts.
func (p *Proxy) Arm(r Rule) *Trigger {
	r.Nth = max(1, r.Nth)
	trigger := &Trigger{Rule: r, proxy: p, reached: make(chan struct{}), passed: make(chan struct{})}
	trigger.reach = sync.OnceFunc(func() { close(trigger.reached) })
	trigger.pass = sync.OnceFunc(func() { close(trigger.passed) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.triggers = append(p.triggers, trigger)
	return trigger
}

// Reached is closed when it has come to it: when the request to hold or to lose
// is here, or when the reply to hold or to lose is, so that the server has acted.
func (t *Trigger) Reached() <-chan struct{} { return t.reached }

// Wait waits until it is reached.
func (t *Trigger) Wait(ctx context.Context) error {
	select {
	case <-t.reached:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %q to %s: %w", t.Sent, t.Do, context.Cause(ctx))
	}
}

// Pass lets go what is held, and what is to be held.
func (t *Trigger) Pass() { t.pass() }

// Seen is how many requests had the bytes until the rule acted or was disarmed.
func (t *Trigger) Seen() int {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.seen
}

// Disarm takes a rule back, lets go what it holds, and reports whether a request
// has met it.
func (t *Trigger) Disarm() (met bool) {
	t.pass()
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	t.proxy.remove(t)
	return t.met
}

// remove needs the mutex.
func (p *Proxy) remove(t *Trigger) {
	p.triggers = slices.DeleteFunc(p.triggers, func(one *Trigger) bool { return one == t })
}

// meet looks for the triggers that what was sent on a link has reached, and
// returns the one that is to act, or nil.
func (p *Proxy) meet(l *link, sent []byte) (act *Trigger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Concat(l.before, l.prepared.request(sent))
	for _, trigger := range p.triggers {
		// Of what was there before, as much as cannot have been counted yet.
		from := max(0, len(l.before)-len(trigger.Sent)+1)
		n := bytes.Count(all[from:], []byte(trigger.Sent))
		if trigger.Do != Count {
			n = min(n, 1)
		}
		trigger.seen += n
		if n > 0 && act == nil && trigger.seen >= trigger.Nth && trigger.Do != Count {
			act = trigger
		}
	}
	l.before = all[max(0, len(all)-longest):]
	if act != nil {
		act.met = true
		p.remove(act)
	}
	return act
}

// hold waits for Pass on a link, and reports whether the link is still there.
func (t *Trigger) hold(l *link) bool {
	t.reach()
	var over <-chan time.Time
	if t.For > 0 {
		over = time.After(t.For)
	}
	select {
	case <-t.passed:
	case <-over:
	case <-l.ended:
		return false
	}
	return true
}
