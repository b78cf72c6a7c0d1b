package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/pkg/client"
)

// away is how long a buyer that has left is still counted, and how long an admission lasts: as short as can be, so that it shows.
const away = 10 * time.Second

// roomEnv gives every item of the replicas a waiting room, where they are to have one.
func (l layout) roomEnv() []string {
	if l.room == 0 {
		return nil
	}
	return []string{
		"STOCKD_QUEUE_ITEMS=all", fmt.Sprintf("STOCKD_QUEUE_RATE=%g", l.room), "STOCKD_QUEUE_AWAY=" + away.String(), "STOCKD_QUEUE_ADMISSION=" + away.String(),
		"STOCKD_QUEUE_SECRET=" + rand.Text() + rand.Text(),
	}
}

// leavers is how many buyers come for each one that leaves before it is admitted.
const leavers = 4

// waitingRoom has the clients wait in the line as one buyer after the other. The next request is that of a buyer who was
// admitted.
func (r *run) waitingRoom() (wait func(context.Context) bool, user func() string) {
	admitted, crowd := make(chan string, r.settings.Clients+1), rand.Text()[:6]
	var buyers atomic.Int64
	shop := client.Client{URL: r.url}
	wait = func(ctx context.Context) bool {
		n := buyers.Add(1)
		if n%leavers == 0 { // it never asks again; where it cannot join, it has not come
			_, _ = shop.Queue(ctx, client.Purchase{GoodsID: r.item, UserID: fmt.Sprintf("leaver-%s-%d", crowd, n)})
		}
		name := fmt.Sprintf("buyer-%s-%d", crowd, n)
		if !r.stand(ctx, shop, name) {
			return false
		}
		admitted <- name
		return true
	}
	return wait, func() string { return <-admitted }
}

// stand waits in the line until a buyer is admitted. false: nothing is left, or ctx has ended.
func (r *run) stand(ctx context.Context, shop client.Client, name string) bool {
	for {
		place, err := shop.Queue(ctx, client.Purchase{GoodsID: r.item, UserID: name}) // again it is a look, also after the line was lost
		switch {
		case ctx.Err() != nil || err == nil && place.State == client.Closed:
			return false
		case err == nil && place.State == client.Admitted:
			return true
		}
		if pause.For(ctx, max(time.Second, min(place.AskAfter, away/4))) != nil {
			return false
		}
	}
}

// queue counts the line of an item.
func (s *Session) queue(ctx context.Context, item int64) (client.LineCount, error) {
	c, err := s.ground.client()
	if err != nil {
		return client.LineCount{}, err
	}
	return c.Shop().CountLine(ctx, item)
}
