package live

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// ground is what a sale takes place on: servers and replicas of our own, or replicas that
// others run.
type ground interface {
	// check names the first setting that is not possible here.
	check(s Settings) error
	// prepare has replicas as the settings say for the sale of an item, and every purchase of
	// it take time between its read and its write.
	prepare(ctx context.Context, item int64, s Settings) error
	// client reaches the replicas through their balancer.
	client() (client.Client, error)
	// audit compares row and ledger of an item, without waiting for what is pending.
	audit(ctx context.Context, item int64) (stock.Audit, error)
	// act does something to a machine, and returns when it is done.
	act(ctx context.Context, name, what string) error
	// experiment makes experiments of the lab on the servers.
	experiment(ctx context.Context, plan scenario.Plan) error
	// lenses are the ways to look at the servers, by their names.
	lenses() map[string]*lens
	// show says where the sale takes place.
	show(state *State)
	// quit ends the replicas of our own, and with them the requests.
	quit(ctx context.Context) error
	// close ends what is left.
	close(ctx context.Context) error
}

// guest is replicas that others run: there are no processes here, no recorded leases and no
// connection to the servers.
type guest struct {
	to       client.Client
	replicas []string
}

func openGuest(ctx context.Context, o Options) (*guest, error) {
	o.Progress("asking " + o.External.URL + " for its replicas")
	names, err := o.External.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return &guest{to: o.External, replicas: names}, nil
}

func (g *guest) check(s Settings) error {
	switch {
	case s.Replicas != len(g.replicas):
		return fmt.Errorf("%w: replicas: %d answer at %s, and their number is not ours to change", errInput, len(g.replicas), g.to.URL)
	case s.WorkMillis != 0:
		return fmt.Errorf("%w: work_ms: these replicas have no failpoint, so that it can be 0 alone", errInput)
	default:
		return nil
	}
}

func (*guest) prepare(context.Context, int64, Settings) error { return nil }

func (g *guest) client() (client.Client, error) { return g.to, nil }

// owner reads on the admin API, which conceals nothing.
func (g *guest) owner() client.Client {
	c := g.to
	c.URL = c.AdminURL
	return c
}

func (g *guest) audit(ctx context.Context, item int64) (stock.Audit, error) {
	return g.owner().AuditNow(ctx, item)
}

// act does nothing: there are no processes.
func (*guest) act(_ context.Context, name, what string) error {
	return fmt.Errorf("%w: %s %s: others run it", errConflict, what, name)
}

// lenses has what a replica tells: the row of the item, and which of its servers answer.
func (g *guest) lenses() map[string]*lens {
	return map[string]*lens{"stockd": {look: g.look, close: func() error { return nil }}}
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
	goods, err := g.owner().Goods(ctx, item)
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
	state.Servers = map[string]servers.Info{strings.Join(g.replicas, ", "): {Name: g.to.URL, Started: servers.External}}
	state.Missing, state.Guest = map[string]string{}, true
}

func (*guest) quit(context.Context) error { return nil }

func (*guest) close(context.Context) error { return nil }
