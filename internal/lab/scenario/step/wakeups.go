package step

import (
	"context"
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// WakeUps counts how many watches ZooKeeper fires while the steps are done, and
// divides them by the number of releases.
func WakeUps(releases int, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		before, err := fired(ctx, s)
		if err != nil {
			return err
		}
		if err := InOrder(steps...)(ctx, s); err != nil {
			return err
		}
		after, err := fired(ctx, s)
		if err != nil {
			return err
		}
		if err := s.Figure("watches_fired", after-before); err != nil {
			return err
		}
		return s.Figure("wakeups_per_release", (after-before)/float64(releases))
	}
}

// fired asks the server how many watches on nodes that went, and on the children
// of nodes, it has fired.
func fired(ctx context.Context, s *scenario.Environment) (sum float64, err error) {
	said, err := ask(ctx, s, "mntr")
	if err != nil {
		return 0, err
	}
	found := 0
	for line := range strings.Lines(said) {
		name, value, _ := strings.Cut(line, "\t")
		if name != "zk_sum_node_deleted_watch_count" && name != "zk_sum_node_children_watch_count" {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(value, &n); err != nil {
			return 0, fmt.Errorf("count wake-ups: %s is %q: %w", name, value, err)
		}
		sum, found = sum+n, found+1
	}
	if found != 2 {
		return 0, fmt.Errorf("count wake-ups: the server has %d of 2 counters", found)
	}
	return sum, nil
}
