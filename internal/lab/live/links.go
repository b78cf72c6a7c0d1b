package live

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// What is done to the way from the replicas to a server.
const (
	// Slow has each request and each answer take linkDelay longer, and Fast ends that.
	Slow = "slow"
	Fast = "fast"
	// Cut ends all connections and rejects new ones, until Mend.
	Cut  = "cut"
	Mend = "mend"
	// Drop loses the answer to the next request about the item, after the server has acted.
	Drop = "drop"
)

// linkDelay is what a slow way adds in each direction.
const linkDelay = 50 * time.Millisecond

// The states of a way.
const (
	whole = "whole"
	slow  = "slow"
	cut   = "cut"
)

// relinking changes a way from one of several states to another.
type relinking struct {
	from []string
	to   string
	do   func(*servers.Proxy) error
}

func relinks() map[string]relinking {
	slower := func(by time.Duration) func(*servers.Proxy) error {
		return func(p *servers.Proxy) error { p.Slow(by); return nil }
	}
	return map[string]relinking{
		Slow: {[]string{whole}, slow, slower(linkDelay)},
		Fast: {[]string{slow}, whole, slower(0)},
		Cut:  {[]string{whole, slow}, cut, func(p *servers.Proxy) error { p.Cut(); return nil }},
		Mend: {[]string{cut}, whole, func(p *servers.Proxy) error { p.Slow(0); return p.Mend() }},
	}
}

// relink does something to the way to a server.
func (s *stage) relink(ctx context.Context, name, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	proxy := s.links[name]
	i := slices.IndexFunc(s.machines, func(m Machine) bool { return m.Name == name })
	if proxy == nil || i < 0 {
		return fmt.Errorf("%w: %s %s: start with --proxies", errConflict, what, name)
	}
	if what == Drop {
		s.drop(ctx, name, proxy)
		return nil
	}
	m, change := &s.machines[i], relinks()[what]
	if !slices.Contains(change.from, m.Link) {
		return fmt.Errorf("%w: %s %s", errConflict, what, name)
	}
	if err := change.do(proxy); err != nil {
		return err
	}
	m.Link = change.to
	s.publishLocked()
	s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: what})
	return nil
}

// drop loses the next answer about the item; the caller holds mu. A mark is there when it is lost.
func (s *stage) drop(ctx context.Context, name string, proxy *servers.Proxy) {
	trigger := proxy.Arm(servers.Rule{Sent: about(name, s.work.GoodsID), Do: servers.LoseReply})
	s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: Drop})
	go func() {
		ctx, cancel := context.WithTimeout(ctx, longest) // no sale is longer
		defer cancel()
		if trigger.Wait(ctx) == nil {
			s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: "dropped"})
		}
		trigger.Disarm()
	}()
}

// about are bytes of the requests about an item: a commit of the database, the names of keys
// and nodes of the others.
func about(server string, item int64) string {
	switch {
	case server == "database":
		return "COMMIT"
	case strings.HasPrefix(server, "red"):
		return strconv.FormatInt(item, 10) + "}"
	default:
		return url.PathEscape(lockName(item))
	}
}
