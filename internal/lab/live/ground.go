package live

import (
	"context"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/scenario"
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
