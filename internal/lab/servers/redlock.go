package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/keeper"
)

// redlockNodes are as many as the description of Redlock has.
const redlockNodes = 5

// Redlock is a number of Redis masters that know nothing of each other. They
// have one password.
type Redlock struct {
	Info
	Nodes []*Redis
}

// StartRedlock starts the masters.
func StartRedlock(ctx context.Context, k *keeper.Keeper, mode Mode) (*Redlock, error) {
	r := &Redlock{Nodes: make([]*Redis, redlockNodes)}
	password := rand.Text()
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range r.Nodes {
		group.Go(func() (err error) {
			r.Nodes[i], err = startRedis(groupCtx, k, mode, password)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, r.Close(context.WithoutCancel(ctx)))
	}
	r.Info = r.Nodes[0].Info
	r.Name = fmt.Sprintf("%d × %s", len(r.Nodes), r.Name)
	return r, nil
}

// Close ends all masters.
func (r *Redlock) Close(ctx context.Context) error {
	var errs []error
	for _, node := range r.Nodes {
		if node != nil {
			errs = append(errs, node.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// Env is what a replica has to be told to use the masters.
func (r *Redlock) Env() []string {
	addresses := make([]string, len(r.Nodes))
	for i, node := range r.Nodes {
		addresses[i] = node.Address
	}
	return []string{"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses, ","), "STOCKD_REDLOCK_PASSWORD=" + r.Nodes[0].Password}
}
