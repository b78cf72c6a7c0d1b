package step

import (
	"context"
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// OnMasters gives a stage five masters of its own. The first replica of the
// service reaches them through links of its own, which can be cut.
func OnMasters(o servers.RedlockOptions) func(context.Context, *scenario.Environment) ([]string, error) {
	return func(ctx context.Context, s *scenario.Environment) (env []string, err error) {
		if s.Masters, err = servers.StartRedlockWith(ctx, s.Keeper, o); err != nil {
			return nil, err
		}
		s.Later(func() error { return s.Masters.Close(context.WithoutCancel(ctx)) })
		if s.Links, err = links(s, s.Masters); err != nil {
			return nil, err
		}
		s.Own = map[int][]string{1: {"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses(s.Links), ",")}}
		return s.Masters.Env(), nil
	}
}

// links puts a proxy before each master.
func links(s *scenario.Environment, masters *servers.Redlock) ([]*servers.Proxy, error) {
	list := make([]*servers.Proxy, len(masters.Nodes))
	for i, node := range masters.Nodes {
		link, err := servers.NewProxy(node.Address)
		if err != nil {
			return nil, err
		}
		s.Later(func() error { link.Close(); return nil })
		list[i] = link
	}
	return list, nil
}

func addresses(links []*servers.Proxy) []string {
	list := make([]string, len(links))
	for i, link := range links {
		list[i] = link.Address
	}
	return list
}

// CutOff keeps the first replica from masters, by their number from 1.
func CutOff(masters ...int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		for _, m := range masters {
			s.Links[m-1].Cut()
		}
		return s.Mark("", fmt.Sprintf("masters %v are out of reach for replica 1", masters))
	}
}

// KillMaster ends a master without a warning.
func KillMaster(master int) scenario.Step {
	return onMaster(master, "is killed", (*servers.Redis).Kill)
}

// StartMaster starts a master again, with what it has on its disk.
func StartMaster(master int) scenario.Step {
	return onMaster(master, "is started again", (*servers.Redis).Restart)
}

func onMaster(master int, what string, do func(*servers.Redis, context.Context) error) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := do(s.Masters.Nodes[master-1], ctx); err != nil {
			return err
		}
		return s.Mark(fmt.Sprintf("master %d", master), what)
	}
}
