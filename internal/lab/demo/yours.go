package demo

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// showYours shows every strategy on servers that run already, on as many
// replicas as there are.
func (d *demo) showYours(ctx context.Context) error {
	c := d.plan.Yours
	d.plan.Progress.Say("asking " + c.URL + " for its replicas")
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return err
	}
	d.servers["replicas and servers"] = servers.Info{Name: c.URL, Started: servers.Yours}
	d.plan.Replicas = []int{len(replicas)}
	// Goods of your own have small numbers, and those of an earlier demo earlier
	// ones.
	d.goods = time.Now().UnixMilli()
	return d.showAll(ctx, c, len(replicas))
}
