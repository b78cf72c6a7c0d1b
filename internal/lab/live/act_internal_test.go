package live

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// slowGround is a ground on which what is done to a machine takes as long as a test says.
type slowGround struct {
	ground

	begun, end chan struct{}
}

func (slowGround) check(Settings) error { return nil }

func (g slowGround) act(context.Context, string, string) error {
	g.begun <- struct{}{}
	<-g.end
	return nil
}

var errNoReplica = errors.New("no replica")

func (slowGround) prepare(context.Context, int64, Settings) error { return errNoReplica }

// A sale that began meanwhile would be judged as if nothing had been done to the machine.
func TestNoSaleBeginsWhileSomethingIsDoneToAMachine(t *testing.T) {
	g := slowGround{begun: make(chan struct{}), end: make(chan struct{})}
	s := &Session{hub: newHub(), ground: g, follow: &follower{}, sampler: &sampler{}, sale: Sale{Phase: Ended}, experiments: []experiments.Experiment{{Name: "one"}}}
	s.hub.look(func(state *State) { state.Strategies = described() })
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer s.stop()
	acted := make(chan error)
	go func() { acted <- s.Act("replica-2", Kill) }()
	<-g.begun
	for what, err := range map[string]error{"a sale": s.Start(defaults()), "an experiment": s.Play("one")} {
		if !errors.Is(err, errConflict) || !strings.Contains(err.Error(), "kill replica-2 is not done yet") {
			t.Errorf("%s begins with %v, want %v with what is not done", what, err, errConflict)
		}
	}
	g.end <- struct{}{}
	must.Do(t, <-acted)
	should.Fail(t, s.Start(defaults()), nil, "when it is done a sale begins with")
	s.jobs.Wait()
	should.Be(t, s.sale.Error, errNoReplica.Error(), "the sale ended with")
}

// A replica that is to stop in its next purchase may wait for it until the next sale, which has it go on.
func TestASaleBeginsThoughAReplicaStillStopsInItsPurchase(t *testing.T) {
	g := slowGround{begun: make(chan struct{}), end: make(chan struct{})}
	s := &Session{hub: newHub(), ground: g, sale: Sale{Phase: Ended}}
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer s.stop()
	acted := make(chan error)
	go func() { acted <- s.Act("replica-2", Trap) }()
	<-g.begun
	s.mu.Lock()
	err := s.ready()
	s.mu.Unlock()
	should.Fail(t, err, nil, "a sale begins with")
	g.end <- struct{}{}
	if err := <-acted; err != nil {
		t.Error(err)
	}
}

// What does nothing to a sale is no excuse for its requests that fail.
func TestAPurchaseWithoutAFailpointIsNotPaused(t *testing.T) {
	g := slowGround{begun: make(chan struct{}, 3), end: make(chan struct{})}
	close(g.end)
	s := &Session{ctx: t.Context(), hub: newHub(), ground: g, sale: Sale{Phase: Selling}}
	for _, name := range withoutFailpoint() {
		s.run = &run{modes: []Mode{{Strategy: "naive"}, {Strategy: name}}}
		if err := s.Act("replica-1", Trap); !errors.Is(err, errConflict) || !strings.Contains(err.Error(), name+" has no failpoint") || !strings.Contains(err.Error(), "kill or pause") {
			t.Errorf("%s: %v, want %v with what is allowed", name, err, errConflict)
		}
		if s.run.faults.Load() {
			t.Errorf("%s: requests that fail are excused", name)
		}
	}
	s.run = &run{modes: []Mode{{Strategy: "redis-stock"}, {Strategy: "naive"}}}
	if err := s.Act("replica-1", Trap); err != nil || !s.run.faults.Load() {
		t.Errorf("after a switch to naive: %v, and requests that fail are excused: %t", err, s.run.faults.Load())
	}
}

// What has failed can be tried again, and what it would have led to cannot be done.
func TestAClockThatCouldNotBeMovedIsNotSetRight(t *testing.T) {
	t.Chdir(t.TempDir()) // a clock without a file fails there
	s := &stage{
		hub: newHub(), machines: []Machine{{Name: "redlock-1", Can: []string{Ahead}}},
		shop: &shop.Shop{Servers: &servers.Backends{Redlock: &servers.Redlock{Nodes: []*servers.Redis{{Clock: new(servers.Clock)}}}}},
	}
	should.Fail(t, s.act(t.Context(), "redlock-1", Right), errConflict, "a clock that was not moved is set right")
	for range 2 {
		if err := s.act(t.Context(), "redlock-1", Ahead); err == nil || errors.Is(err, errConflict) || !slices.Equal(s.machines[0].Can, []string{Ahead}) {
			t.Errorf("it ends with %v, and then can be done: %q", err, s.machines[0].Can)
		}
	}
}
