package locktest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/should"
)

// crowding is how long a crowd is sent through the gate.
const crowding = 400 * time.Millisecond

// exclusion proves the guarantee, or shows the damage where there is none.
func exclusion(t *testing.T, s *subject, replicas, each int) {
	damage := crowd(t, s, replicas, each)
	if guaranteed := s.lock.Guarantees.Exclusive(replicas); guaranteed != (damage == "") {
		t.Errorf("guarantees exclusion: %v; found: %q", guaranteed, damage)
	}
}

// crowd sends goroutines of some replicas through one gate, and describes the
// damage.
func crowd(t *testing.T, s *subject, replicas, each int) string {
	t.Helper()
	name := unique()
	var g gate
	var holders sync.WaitGroup
	end := time.Now().Add(crowding)
	within := patience + time.Duration(replicas*each)*s.site.at.TTL // a lock may leave the name taken until it expires: redis-getset
	for range replicas {
		l := s.replica(t)
		for range each {
			holders.Go(func() {
				for first := true; first || time.Now().Before(end); first = false {
					passOnce(t, l, name, &g, within)
				}
			})
		}
	}
	holders.Wait()
	if g.disordered.Load() {
		t.Error("a token of a crowd did not grow from holder to holder")
	}
	s.assertClean(t, name)
	return g.damage()
}

func passOnce(t *testing.T, l *replica, name string, g *gate, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Errorf("in a crowd: %v", err)
		return
	}
	g.pass(lease.Token())
	should.Be(t, lease.Release(ctx), nil, "release in a crowd")
}

// keepsNamesApart takes names at the same time that a backend might mix up, or reject.
func keepsNamesApart(t *testing.T, s *subject) {
	at := s.site.at
	at.TTL *= 10 // all names are held at once, and not every lock is renewed
	l, base := s.replicaAt(t, at, nil).connected(t), unique()
	for _, name := range []string{
		base, base + "a", base + "A", base + " ", base + "/a", base + "/", base + "{a}", base + ":token", base + "库存",
		base + long + "1", base + long + "2",
	} {
		lease := Hold(t, l, name)
		defer Release(t, lease)
	}
}

// keepsInstallationsApart has two shops on one server hold one name: each has a prefix of its own.
func keepsInstallationsApart(t *testing.T, s *subject) {
	at, name := s.site.at, unique()
	at.TTL *= 10 // not every lock is renewed
	ours := Hold(t, s.replicaAt(t, at, nil).connected(t), name)
	defer Release(t, ours)
	at.Prefix, at.Etcd.Username = "another-shop", servers.EtcdRoot // the role of the other has the prefix of one shop
	theirs := Hold(t, s.replicaAt(t, at, nil).connected(t), name)
	Release(t, theirs)
	if err := context.Cause(ours.Context()); err != nil || len(s.traces(t, name)) == 0 {
		t.Errorf("another shop took the name along (%v)", err)
	}
}

// long is longer than what MySQL takes for the name of a lock.
const long = "-a-name-that-is-longer-than-the-sixty-four-characters-that-some-backends-take"

// gate is what a lock protects here: a counter that loses updates when two holders overlap.
type gate struct {
	holders, count, passed atomic.Int64
	overlapped, disordered atomic.Bool
	last                   atomic.Uint64
}

// pass goes through the gate as a holder, with the token of the lease.
func (g *gate) pass(token uint64) {
	if last := g.last.Swap(token); token != 0 && token <= last {
		g.disordered.Store(true)
	}
	if g.holders.Add(1) > 1 {
		g.overlapped.Store(true)
	}
	before := g.count.Load()
	time.Sleep(100 * time.Microsecond)
	g.count.Store(before + 1)
	g.passed.Add(1)
	g.holders.Add(-1)
}

// damage describes what went wrong, or is empty.
func (g *gate) damage() string {
	lost := g.passed.Load() - g.count.Load()
	if lost == 0 && !g.overlapped.Load() {
		return ""
	}
	return fmt.Sprintf("of %d updates %d were lost; two holders overlapped: %v", g.passed.Load(), lost, g.overlapped.Load())
}
