package step

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
)

// WakeUps counts how many watches ZooKeeper fires, or how many events etcd sends to watches,
// while the step is done, and divides them by the number of releases.
func WakeUps(by scenario.Need, releases int) func(scenario.Step) scenario.Step {
	fired := map[scenario.Need]func(context.Context, *scenario.Environment) (float64, error){
		scenario.ZooKeeper: firedByZooKeeper, scenario.Etcd: sentByEtcd,
	}[by]
	return func(do scenario.Step) scenario.Step {
		return func(ctx context.Context, s *scenario.Environment) error {
			before, err := fired(ctx, s)
			if err != nil {
				return err
			}
			if err := do(ctx, s); err != nil {
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
}

// firedByZooKeeper asks the server how many watches on nodes that went, and on the
// children of nodes, it has fired.
func firedByZooKeeper(ctx context.Context, s *scenario.Environment) (sum float64, err error) {
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

// sentByEtcd is how many events etcd has sent to watches when no more come: a watch that
// lags is served from a loop of 100 ms.
func sentByEtcd(ctx context.Context, s *scenario.Environment) (sent float64, err error) {
	for last := -1.0; sent != last; {
		last = sent
		if err := pause.For(ctx, 3*etcdLoop); err != nil {
			return 0, err
		}
		if sent, err = eventsOf(ctx, s); err != nil {
			return 0, fmt.Errorf("count wake-ups: %w", err)
		}
	}
	return sent, nil
}

const etcdLoop = 100 * time.Millisecond

func eventsOf(ctx context.Context, s *scenario.Environment) (sent float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Backends.Etcd.Endpoint+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	const counter = "etcd_debugging_mvcc_events_total "
	for line := range strings.Lines(string(said)) {
		if value, found := strings.CutPrefix(line, counter); found {
			_, err := fmt.Sscan(value, &sent)
			return sent, err
		}
	}
	return 0, fmt.Errorf("the server has no counter %s", counter)
}
