// Package locktest holds every lock of the registry to the contract of
// lock.Locker and lock.Lease and to its own claims, on real servers. What a lock
// claims is proved; where it claims nothing, the failure is shown: a lock that is
// supposed to fail and does not is a broken demonstration.
package locktest

import (
	"context"
	"runtime/pprof"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// atOnce is how many locks are tried at the same time. Most of them wait most of
// the time; go test itself would let no more than two at it on two cores.
const atOnce = 6

// Run runs the suite over the registry, each lock on each backend of the lab
// that it can be kept in.
func Run(t *testing.T, lab *labtest.Lab) {
	t.Helper()
	const holds = 200
	runOf(t, lab, contents(), holds)
}

// ProveTokens takes each name so often to see its tokens grow.
func ProveTokens(t *testing.T, lab *labtest.Lab, holds int) {
	t.Helper()
	runOf(t, lab, []topic{{"Fences", fences, nil}}, holds)
}

// ProveOn runs the suite over the locks of one backend, on a topology of several
// servers.
func ProveOn(t *testing.T, lab *labtest.Lab, name string) {
	t.Helper()
	const holds = 200
	where := topologies()[name]
	r := &run{lab: lab, topics: contents(), holds: holds, where: &where}
	r.run(t)
}

func runOf(t *testing.T, lab *labtest.Lab, topics []topic, holds int) {
	t.Helper()
	r := &run{lab: lab, topics: topics, holds: holds}
	r.run(t)
}

func (r *run) run(t *testing.T) {
	t.Helper()
	r.places = make(chan struct{}, atOnce)
	r.privates = &privates{t: t, lab: r.lab, where: r.where, all: make(map[string]*private)}
	var entries sync.WaitGroup
	for _, entry := range registry.Locks() {
		entries.Go(func() {
			t.Run(entry.Name, func(t *testing.T) { r.entry(t, entry) })
		})
	}
	entries.Wait()
}

// run is what the subjects of one run share.
type run struct {
	lab      *labtest.Lab
	topics   []topic
	holds    int
	privates *privates
	places   chan struct{}
	where    *topology // nil: on one server of each kind
}

// kinds are the backends that a lock is tried on.
func (r *run) kinds(entry lock.Entry) []string {
	switch {
	case r.where == nil:
		return kinds(entry)
	case entry.Needs[0] == r.where.of:
		return []string{string(r.where.of)}
	default:
		return nil
	}
}

// shared is the backend of a kind that all topics share.
func (r *run) shared(t *testing.T, kind string) site {
	t.Helper()
	if r.where == nil {
		return shared(t, r.lab, kind)
	}
	whole, _ := r.where.start(t, r.lab)
	return whole
}

func (r *run) entry(t *testing.T, entry lock.Entry) {
	var subjects sync.WaitGroup
	for _, kind := range r.kinds(entry) {
		subjects.Go(func() {
			r.places <- struct{}{}
			defer func() { <-r.places }()
			t.Run(kind, func(t *testing.T) { r.subject(t, entry, kind).run(t, r.topics) })
		})
	}
	subjects.Wait()
}

func (r *run) subject(t *testing.T, entry lock.Entry, kind string) *subject {
	t.Helper()
	s := &subject{entry: entry, holds: r.holds, site: r.shared(t, kind), direct: r.where != nil && r.where.direct}
	s.own = func(t *testing.T) *private { return r.privates.own(t, kind) }
	s.site.litter(t, unique()) // what runs to look at it is no topic's
	return s
}

// topic is one obligation or claim.
type topic struct {
	name string
	test func(*testing.T, *subject)
	// of tells which subjects it is about; nil: all.
	of func(*subject) bool
}

// contents lists what a lock is held to.
func contents() []topic {
	return []topic{
		// exclusion.go
		{"ExcludesGoroutines", excludesGoroutines, nil},
		{"ExcludesClients", excludesClients, nil},
		{"ExcludesProcesses", excludesProcesses, nil},
		{"KeepsNamesApart", keepsNamesApart, nil},
		// waiting.go
		{"GivesUpWithItsDeadline", givesUpWithItsDeadline, nil},
		{"GivesUpWithItsCancellation", givesUpWithItsCancellation, nil},
		{"TakesNothingForACancelledRequest", takesNothingForACancelledRequest, nil},
		{"TakesNothingWhenCancelledInTheMiddle", takesNothingWhenCancelledInTheMiddle, nil},
		{"LeavesNothingOfACrowd", leavesNothingOfACrowd, nil},
		{"AsksAtIntervals", asksAtIntervals, isServed},
		// release.go
		{"OutlivesItsRequest", outlivesItsRequest, nil},
		{"EndsItsContextWithTheRelease", endsItsContextWithTheRelease, nil},
		{"ReleasesTwiceHarmlessly", releasesTwiceHarmlessly, nil},
		{"ReleasesOnlyItsOwn", releasesOnlyItsOwn, nil},
		// expiry.go
		{"Renews", renews, nil},
		{"ReplacesAFrozenHolder", replacesAFrozenHolder, nil},
		// crash.go
		{"SurvivesACrash", survivesACrash, nil},
		{"DropsADeadWaiter", dropsADeadWaiter, nil},
		// loss.go
		{"SignalsLoss", signalsLoss, nil},
		{"SignalsLossWhenCutOff", signalsLossWhenCutOff, isServed},
		// reentrancy.go
		{"IsReentrant", isReentrant, nil},
		{"JoinsWhoOutlivesTheFirst", joinsWhoOutlivesTheFirst, claimsReentrant},
		// fairness.go
		{"IsFair", isFair, nil},
		// tokens.go
		{"Fences", fences, nil},
		{"FencesAfterDataLoss", fencesAfterDataLoss, isForgetful},
		// faults.go
		{"NamesAWrongAddress", namesAWrongAddress, isServed},
		{"NamesAWrongPassword", namesAWrongPassword, hasPassword},
		{"NamesAMuteServer", namesAMuteServer, isServed},
		{"NamesAServerThatGoesAsAWaitEnds", namesAServerThatGoesAsAWaitEnds, isServed},
		{"OutlivesALostRequest", outlivesALostRequest, isServed},
		{"OutlivesALostAnswer", outlivesALostAnswer, isServed},
		// restart.go
		{"OutlivesARestartWhileWaiting", outlivesARestartWhileWaiting, isServed},
		{"OutlivesARestartWhileHolding", outlivesARestartWhileHolding, isServed},
	}
}

// subject is one lock on one backend.
type subject struct {
	entry lock.Entry
	site  site
	// holds is how often a name is taken to see its tokens grow.
	holds int
	// direct tells that clients find the servers by themselves: nothing can stand
	// between.
	direct bool
	// own is a backend of the same kind that the topic may break.
	own func(*testing.T) *private
}

func (s *subject) run(t *testing.T, topics []topic) {
	for _, topic := range topics {
		if topic.of != nil && !topic.of(s) {
			continue
		}
		t.Run(topic.name, func(t *testing.T) {
			t.Cleanup(func() { assertNoGoroutines(t) }) // the last of all cleanups
			pprof.Do(t.Context(), labelOf(t), func(context.Context) { topic.test(t, s) })
		})
	}
}
