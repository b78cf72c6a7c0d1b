package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// A handoff is the release by one holder and the grant to the next one: what a
// lock costs where all contenders want the same name. Waiters are spread over
// replicas, each of which has clients of its own, and hold the name for no
// longer than it takes to let go.
const (
	waiters     = 64
	replicas    = 3
	handoffName = "handoff"
	handoffTTL  = 10 * time.Second
	handoffWait = 30 * time.Second
	// warmUp is the part of a contest, 1 in so many, that is not counted: until
	// each contender has a connection and a position in the queue.
	warmUp = 4
)

// hold takes the name once and lets go, and tells how long it waited.
type hold func(ctx context.Context) (waited time.Duration, err error)

type contest struct {
	holds  func() ([]hold, error) // made when they are first asked for: until then, no session need be kept alive
	unfair float64                // the longest wait of the last one over the median
}

func (c *contest) measure(ctx context.Context, each time.Duration) (Sample, error) {
	holds, err := c.holds()
	if err != nil {
		return Sample{}, fmt.Errorf("prepare: %w", err)
	}
	start := time.Now()
	counted, end := start.Add(each/warmUp), start.Add(each)
	waits := make([][]time.Duration, len(holds))
	errs := make([]error, len(holds))
	var crowd sync.WaitGroup
	for i, hold := range holds {
		crowd.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil && errs[i] == nil {
				var waited time.Duration
				waited, errs[i] = hold(ctx)
				if errs[i] == nil && time.Now().After(counted) {
					waits[i] = append(waits[i], waited)
				}
			}
		})
	}
	crowd.Wait()
	if err := errors.Join(errs...); err != nil {
		return Sample{}, err
	}
	all := slices.Sorted(slices.Values(slices.Concat(waits...)))
	if len(all) == 0 {
		return Sample{}, fmt.Errorf("no contender held the lock within %s", each)
	}
	c.unfair = all[len(all)-1].Seconds() / max(all[len(all)/2].Seconds(), time.Microsecond.Seconds())
	return Sample{Value: float64(len(all)) / time.Since(counted).Seconds()}, nil
}

// locks are those by themselves, without a stockd around them: each lock that is made on a library's
// connection against the library's own, and how long the unluckiest waits for a lock that is fair. Beside
// them is the memory of a replica that has only its database: a shop that needs no lock.
func (s *stage) locks() Suite {
	suite := Suite{Subjects: []Subject{{
		Name: "resident memory of a replica under 512 connections", Unit: " MiB", AtMost: 64, Measure: s.memory,
	}}}
	contests := make(map[string]*contest) // by the library
	add := func(library, subject string) {
		contests[library] = &contest{holds: sync.OnceValues(func() ([]hold, error) { return s.holds(library) })}
		suite.Subjects = append(suite.Subjects, Subject{Name: holdsOf(subject), Unit: "/s", Measure: contests[library].measure})
	}
	for _, pair := range []struct {
		name, library, plain string
		atLeast              float64
	}{
		{"redsync", "redsync", "redsync's Mutex", 1},
		{"etcd", "etcd Mutex", "etcd's concurrency.Mutex", 2},
		{"zk-sequential", "zk Lock", "go-zookeeper's Lock", 1},
	} {
		add("stockd "+pair.name, pair.name)
		add(pair.library, pair.plain)
		suite.Ratios = append(suite.Ratios, Ratio{
			Name: pair.name + " / " + pair.plain + ", holds", Of: holdsOf(pair.name), By: holdsOf(pair.plain), AtLeast: pair.atLeast,
		})
	}
	for _, entry := range registry.Locks() {
		if !entry.Guarantees.Fair {
			continue
		}
		library := "stockd " + entry.Name
		if contests[library] == nil {
			add(library, entry.Name)
		}
		suite.Subjects = append(suite.Subjects, Subject{
			Name: "longest wait for " + entry.Name + " / median", Unit: "×", AtMost: unfairest,
			Measure: func(context.Context, time.Duration) (Sample, error) {
				return Sample{Value: contests[library].unfair}, nil
			},
		})
	}
	return suite
}

// unfairest bounds the longest wait for a fair lock, in medians.
const unfairest = 5

func holdsOf(name string) string {
	return fmt.Sprintf("holds of %s, %d waiters, %d replicas", name, waiters, replicas)
}

// holds are those of all waiters, each on the connections of one of the replicas.
func (s *stage) holds(library string) ([]hold, error) {
	l, err := trial.Find(library)
	if err != nil {
		return nil, err
	}
	to := trial.Connect(s.shop.Servers, l.Server, handoffTTL)
	var lockers [replicas]lock.Locker
	for r := range lockers {
		var closeAll func() error
		if lockers[r], closeAll, err = l.Open(to); err != nil {
			return nil, err
		}
		s.later(func(context.Context) error { return closeAll() })
	}
	holds := make([]hold, waiters)
	for w := range holds {
		holds[w] = func(ctx context.Context) (waited time.Duration, err error) {
			waiting, cancel := context.WithTimeout(ctx, handoffWait)
			defer cancel()
			asked := time.Now()
			lease, err := lockers[w%replicas].Acquire(waiting, handoffName)
			if err != nil {
				return 0, err
			}
			return time.Since(asked), lease.Release(ctx)
		}
	}
	return holds, nil
}
