package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
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

// turn is what a worker does again and again, and how long the part of it took that is measured.
type turn func(x *flow.Flow) (took time.Duration)

// loop has workers take turns until a time is over, and each of them one at least. It returns what the turns after the warm-up
// took, the shortest first, and how many of them there were a second.
func loop(x *flow.Flow, each, warmUp time.Duration, workers []turn) (took []time.Duration, rate float64) {
	start := time.Now()
	counted, end := start.Add(warmUp), start.Add(each)
	all := make([][]time.Duration, len(workers))
	x.Each(len(workers), func(i int) {
		for first := true; x.Err() == nil && (first || time.Now().Before(end)); first = false {
			if one := workers[i](x); time.Now().After(counted) {
				all[i] = append(all[i], one)
			}
		}
	})
	took = slices.Sorted(slices.Values(slices.Concat(all...)))
	return took, float64(len(took)) / time.Since(counted).Seconds()
}

type contest struct {
	holds  []turn  // made when they are first measured: until then, no session need be kept alive
	unfair float64 // the longest wait of the last one over the median
}

func (c *contest) measure(x *flow.Flow, each time.Duration) Sample {
	waits, rate := loop(x, each, each/warmUp, c.holds)
	if len(waits) == 0 {
		x.Must(fmt.Errorf("no contender held the lock within %s", each))
	}
	c.unfair = waits[len(waits)-1].Seconds() / max(waits[len(waits)/2].Seconds(), time.Microsecond.Seconds())
	return Sample{Value: rate}
}

// locks are those by themselves, without a stockd around them: each lock that is made on a library's
// connection against the library's own, and how long the unluckiest waits for a lock that is fair. Beside
// them is the memory of a replica that has only its database: a shop that needs no lock.
func (s *stage) locks() Suite {
	suite := Suite{Subjects: []Subject{{
		Name: "resident memory of a replica under 512 connections", Unit: " MiB", AtMost: 64, Measure: measuring(s.memory),
	}}}
	contests := make(map[string]*contest) // by the library
	add := func(library, subject string) {
		c := &contest{}
		contests[library] = c
		suite.Subjects = append(suite.Subjects, Subject{Name: holdsOf(subject), Unit: "/s", Measure: measuring(func(x *flow.Flow, each time.Duration) Sample {
			if c.holds == nil {
				c.holds = s.holds(x, library)
			}
			return c.measure(x, each)
		})})
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
func (s *stage) holds(x *flow.Flow, library string) []turn {
	l := flow.Get(trial.Find(library))(x)
	to := trial.Connect(s.shop.Servers, l.Server, handoffTTL)
	var lockers [replicas]lock.Locker
	for r := range lockers {
		locker, closeAll, err := l.Open(to)
		x.Must(err)
		lockers[r] = locker
		s.later(func(context.Context) error { return closeAll() })
	}
	holds := make([]turn, waiters)
	for w := range holds {
		holds[w] = func(x *flow.Flow) (waited time.Duration) {
			waiting, cancel := context.WithTimeout(x, handoffWait)
			defer cancel()
			asked := time.Now()
			lease := flow.Get(lockers[w%replicas].Acquire(waiting, handoffName))(x)
			waited = time.Since(asked)
			x.Must(lease.Release(x))
			return waited
		}
	}
	return holds
}
