package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/stock"
)

// guest is replicas that others run: there are no processes here, no recorded leases and no
// connection to the servers.
type guest struct {
	to shop.Client

	mu       sync.Mutex
	replicas []string // that answer, in order
	reached  []string // by the last question
}

// recount asks which replicas answer now, and returns what has changed: "came" or "went" by the name of
// a replica. One is gone when two questions in a row have not reached it, because a balancer may choose
// at random. Where nothing answers, the replicas stay as they were.
func (g *guest) recount(ctx context.Context) (changes map[string]string, err error) {
	reached, err := g.to.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	changes = make(map[string]string)
	for _, name := range reached {
		if !slices.Contains(g.replicas, name) {
			changes[name] = "came"
		}
	}
	answer := func(name string) bool { return slices.Contains(reached, name) || slices.Contains(g.reached, name) }
	for _, name := range g.replicas {
		if !answer(name) {
			changes[name] = "went"
		}
	}
	g.replicas = slices.DeleteFunc(slices.Concat(g.replicas, reached), func(name string) bool { return !answer(name) })
	slices.Sort(g.replicas)
	g.replicas, g.reached = slices.Compact(g.replicas), reached
	return changes, nil
}

// machines are the replicas, to which nothing can be done here.
func (g *guest) machines() machines {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make(machines, len(g.replicas))
	for i, name := range g.replicas {
		list[i] = Machine{Name: name, Kind: "replica", Title: "stockd", Status: running, Why: "guest"}
	}
	return list
}

func (g *guest) check(s Settings) error {
	n := len(g.machines())
	switch {
	case s.Replicas != n:
		return fmt.Errorf("%w: replicas: %d answer at %s, and their number is not ours to change", errInput, n, g.to.URL)
	case s.Room != 0:
		return fmt.Errorf("%w: room: others configure these replicas, so that it can be 0 alone", errInput)
	case s.WorkMillis != 0:
		return fmt.Errorf("%w: work_ms: these replicas have no failpoint, so that it can be 0 alone", errInput)
	default:
		return nil
	}
}

func (*guest) prepare(context.Context, int64, Settings) error { return nil }

func (g *guest) client() (shop.Client, error) { return g.to, nil }

func (g *guest) audit(ctx context.Context, item int64) (stock.Audit, error) {
	return g.to.Owner().AuditNow(ctx, item)
}

func (*guest) correct(context.Context, int64) (int64, error) {
	return 0, fmt.Errorf("%w: the database is that of others", errConflict)
}

// act does nothing: there are no processes.
func (*guest) act(_ context.Context, name, what string) error {
	return fmt.Errorf("%w: %s %s: others run it", errConflict, what, name)
}

// lenses has what a replica tells: the row of the item, and which of its servers answer.
func (g *guest) lenses() (map[string]*lens, error) {
	return map[string]*lens{"stockd": {look: g.look}}, nil
}

func (g *guest) look(ctx context.Context, item int64) (View, error) {
	states, err := g.to.Backends(ctx)
	if err != nil {
		return View{}, err
	}
	backends := Table{Title: "backends", Head: []string{"server", "status", "why"}}
	for _, s := range states {
		backends.Rows = append(backends.Rows, []string{s.Name, s.Status, s.Note})
	}
	view := View{Tables: []Table{backends}, Notes: []string{"guest"}}
	if item == 0 {
		return view, nil
	}
	goods, err := g.to.Owner().Goods(ctx, item)
	if err != nil {
		return View{}, err
	}
	row := Table{Title: "row", Head: []string{"stock", "version", "fence"}, Rows: [][]string{{
		fmt.Sprint(goods.Stock), fmt.Sprint(goods.Version), fmt.Sprint(goods.Goods.Fence),
	}}}
	view.Tables = append([]Table{row}, view.Tables...)
	return view, nil
}

func (g *guest) show(state *State) {
	state.Servers = map[string]servers.Info{"stockd": {Name: g.to.URL, Started: servers.External}}
	state.Machines, state.Guest = g.machines(), true
}

func (*guest) quit(context.Context) error { return nil }

func (*guest) close(context.Context) error { return nil }

func (*guest) experiment(context.Context, experiments.Plan) error {
	return fmt.Errorf("%w: experiments need servers and replicas of their own, and others run these", errConflict)
}

// recountEvery is how often it is asked which replicas answer, by some twenty small requests.
const (
	recountEvery  = 2 * time.Second
	recountWithin = 10 * time.Second
)

func (s *Session) recount(g *guest) {
	ctx, cancel := context.WithTimeout(s.ctx, recountWithin)
	defer cancel()
	changes, err := g.recount(ctx)
	if err != nil {
		return // the panel of the replicas says it
	}
	if len(changes) > 0 {
		s.hub.publish(g.machines())
		s.mu.Lock()
		s.disturb()
		s.mu.Unlock()
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: changes[name]})
	}
	s.resized()
}
