// Package locktest tests locks against the contract of lock.Locker and lock.Lease and
// against their guarantees, on real servers. Where a lock does not guarantee something,
// its failure is shown.
//
// The path of a test is backend / lock / topic: -run TestLocks/redis/redis-lua/Fences.
package locktest

import (
	"context"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
)

// Lock is a lock to test.
type Lock struct {
	lock.Entry
	// State shows and breaks what the lock keeps, by the clients of a replica that takes
	// no lock.
	State func(*backend.Clients) State
}

// State is how the suite sees and breaks what a lock keeps in its backend.
type State interface {
	// Traces describes, for people, what the backend keeps because of a name: at least
	// one trace while the name is held, and none when it is free and no Acquire waits. A
	// lock that is fair shows one more for each Acquire that waits in its queue. What
	// stays on purpose, such as the counter of tokens, is no trace.
	Traces(ctx context.Context, name string) ([]string, error)
	// Break takes the name away from its holder, as the backend does when the lease runs
	// out: the name is free when Break returns, and the holder is not notified by Break.
	Break(ctx context.Context, name string) error
}

// atOnce is how many locks are tested at the same time. Most of them wait most of the
// time; go test itself would run no more than two on two cores.
const atOnce = 6

// holds is how often a name is taken to see its tokens grow.
const holds = 200

// Main runs the tests of a binary, and returns its exit status. It must be the first
// thing that TestMain calls. It starts the servers, and plays the other processes that
// hold the locks.
func Main(m *testing.M, lab **labtest.Lab, locks ...Lock) int {
	if os.Getenv(role) != "" {
		return serve(os.Stdin, os.Stdout, locks)
	}
	return labtest.Main(m, lab)
}

// Run runs the suite on some locks, each on every backend that it can use.
func Run(t *testing.T, lab *labtest.Lab, locks ...Lock) {
	t.Helper()
	r := &run{lab: lab, locks: locks, topics: contents(), holds: holds}
	r.run(t)
}

// ProveTokens takes each name so often to see its tokens grow.
func ProveTokens(t *testing.T, lab *labtest.Lab, holds int, locks ...Lock) {
	t.Helper()
	r := &run{lab: lab, locks: locks, topics: []topic{{"Fences", fences, nil}}, holds: holds}
	r.run(t)
}

// ProveOn runs the suite on a backend of several servers; see topologies.
func ProveOn(t *testing.T, lab *labtest.Lab, topology string, locks ...Lock) {
	t.Helper()
	where, ok := topologies()[topology]
	if !ok {
		t.Fatalf("%q is not a topology", topology)
	}
	r := &run{lab: lab, locks: locks, topics: contents(), holds: holds, where: &where}
	r.run(t)
}

// run is what the subjects of one run share.
type run struct {
	lab      *labtest.Lab
	locks    []Lock
	topics   []topic
	holds    int
	where    *topology // nil: on one server of each kind
	privates *privates
	slots    chan struct{}
	tested   atomic.Int64 // topics, and locks that were skipped
}

func (r *run) run(t *testing.T) {
	t.Helper()
	r.slots = make(chan struct{}, atOnce)
	r.privates = &privates{start: func(kind string) *site { return r.start(t, kind, true) }, all: make(map[string]*private)}
	kinds := make([]string, 0, len(r.locks))
	for _, l := range r.locks {
		kinds = append(kinds, r.kinds(l)...)
	}
	slices.Sort(kinds)
	together(t, slices.Compact(kinds), func(t *testing.T, kind string) {
		var names []string
		byName := make(map[string]Lock)
		for _, l := range r.locks {
			if slices.Contains(r.kinds(l), kind) {
				names = append(names, l.Name)
				byName[l.Name] = l
			}
		}
		together(t, names, func(t *testing.T, name string) { r.lock(t, byName[name], kind) })
	})
	labtest.MustMatch(t, r.tested.Load() > 0, "backend/lock/topic")
}

// together runs a test for each name at the same time.
func together(t *testing.T, names []string, test func(t *testing.T, name string)) {
	t.Helper()
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			t.Run(name, func(t *testing.T) { test(t, name) })
		})
	}
	all.Wait()
}

func (r *run) kinds(l Lock) []string {
	switch {
	case r.where == nil:
		return kinds(l.Entry)
	case l.Needs[0] == r.where.of:
		return []string{string(r.where.of)}
	default:
		return nil
	}
}

// start starts a backend of a kind: one that all topics share, or one that they may break.
func (r *run) start(t *testing.T, kind string, own bool) *site {
	t.Helper()
	if r.where == nil {
		return start(t, r.lab, kind, own)
	}
	return r.where.start(t, r.lab)
}

func (r *run) lock(t *testing.T, l Lock, kind string) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	defer func() {
		if t.Skipped() || t.Failed() {
			r.tested.Add(1)
		}
	}()
	s := &subject{lock: l, holds: r.holds, site: r.start(t, kind, false), direct: r.where != nil && r.where.direct}
	s.state = l.State(s.site.clients)
	s.own = func(t *testing.T) *site { return r.privates.own(t, kind) }
	// Its connections belong to no topic, and its server may have started just now.
	labtest.AwaitAnswer(t, kind, 3*patience, func() error {
		_, err := s.state.Traces(within(t), unique())
		return err
	})
	for _, topic := range r.topics {
		if topic.of != nil && !topic.of(s) {
			continue
		}
		passed := t.Run(topic.name, func(t *testing.T) {
			r.tested.Add(1)
			t.Cleanup(func() { assertNoMoreGoroutines(t, 0) }) // the last of all cleanups
			pprof.Do(t.Context(), labelOf(t), func(context.Context) { topic.test(t, s) })
		})
		if !passed && topic.name == stateTopic {
			t.Fatal("the other topics trust the State, and were not run")
		}
	}
}

// topic is one obligation or guarantee.
type topic struct {
	name string
	test func(*testing.T, *subject)
	// of selects the subjects; nil: all.
	of func(*subject) bool
}

// stateTopic comes first: the others trust what it tests.
const stateTopic = "ShowsItsState"

func contents() []topic {
	return []topic{
		{stateTopic, showsItsState, nil},
		// exclusion.go
		{"ExcludesGoroutines", func(t *testing.T, s *subject) { exclusion(t, s, 1, 8) }, nil},
		{"ExcludesClients", func(t *testing.T, s *subject) { exclusion(t, s, 3, 3) }, nil},
		{"KeepsNamesApart", keepsNamesApart, nil},
		{"KeepsInstallationsApart", keepsInstallationsApart, hasPrefix},
		// waiting.go
		{"GivesUpWithItsDeadline", givesUpWithItsDeadline, nil},
		{"GivesUpWithItsCancellation", givesUpWithItsCancellation, nil},
		{"TakesNothingForACancelledRequest", takesNothingForACancelledRequest, nil},
		{"TakesNothingWhenCancelledInTheMiddle", takesNothingWhenCancelledInTheMiddle, nil},
		{"TakesNothingWhenCancelledAtTheGrant", takesNothingWhenCancelledAtTheGrant, freesOnlyItsOwn},
		{"GivesBackWhatIsGrantedTooLate", givesBackWhatIsGrantedTooLate, nil},
		{"LeavesNothingOfACrowd", leavesNothingOfACrowd, nil},
		{"ForgetsWaitersThatLeft", forgetsWaitersThatLeft, nil},
		{"AsksAtIntervals", asksAtIntervals, isServed},
		{"IsFair", isFair, nil},
		// release.go
		{"OutlivesItsRequest", outlivesItsRequest, nil},
		{"EndsItsContextWithTheRelease", endsItsContextWithTheRelease, nil},
		{"ReleasesTwiceHarmlessly", releasesTwiceHarmlessly, nil},
		{"ReleasesOnlyItsOwn", releasesOnlyItsOwn, nil},
		{"Fences", fences, nil},
		{"FencesAfterDataLoss", fencesAfterDataLoss, isForgetful},
		// loss.go
		{"Renews", renews, nil},
		{"EndsAnExplicitLease", endsAnExplicitLease, hasWatchdog},
		{"ReplacesAFrozenHolder", replacesAFrozenHolder, nil},
		{"SignalsLoss", signalsLoss, nil},
		{"SignalsLossWhenCutOff", signalsLossWhenCutOff, isServed},
		// crash.go
		{"SurvivesACrash", survivesACrash, nil},
		{"DropsADeadWaiter", dropsADeadWaiter, nil},
		{"OutlivesARestartWhileWaiting", outlivesARestartWhileWaiting, isServed},
		{"OutlivesARestartWhileHolding", outlivesARestartWhileHolding, isServed},
		// reentrancy.go
		{"IsReentrant", isReentrant, nil},
		{"ServesASecondRequestOfAnOwner", servesASecondRequestOfAnOwner, isReentrantLock},
		// faults.go
		{"NamesAWrongAddress", namesAWrongAddress, isServed},
		{"NamesAWrongPassword", namesAWrongPassword, hasPassword},
		{"NamesAnUnresponsiveServer", namesAnUnresponsiveServer, isServed},
		{"NamesAServerThatGoesAsAWaitEnds", namesAServerThatGoesAsAWaitEnds, isServed},
		{"NamesAServerThatTakesNoRelease", namesAServerThatTakesNoRelease, isServed},
		{"FreesANameWhoseReleaseIsLost", freesANameWhoseReleaseIsLost, isServed},
		{"KeepsTheOtherHoldOfALostRelease", keepsTheOtherHoldOfALostRelease, isReentrantAndServed},
		{"OutlivesALostRequest", func(t *testing.T, s *subject) { losesRequests(t, s, false) }, isServed},
		{"OutlivesALostAnswer", func(t *testing.T, s *subject) { losesRequests(t, s, true) }, isServed},
		{"TakesNothingByALateRequest", takesNothingByALateRequest, isServedAndExpires},
		{"TakesNothingByALateAnswer", takesNothingByALateAnswer, isServed},
	}
}

func isServed(s *subject) bool        { return !s.direct && s.site.at.served() }
func hasPassword(s *subject) bool     { return isServed(s) && len(s.site.at.ZooKeeper.Servers) == 0 }
func hasWatchdog(s *subject) bool     { return s.lock.Watchdog }
func freesOnlyItsOwn(s *subject) bool { return s.lock.Guarantees.ReleasesOnlyItsOwn }
func isReentrantLock(s *subject) bool { return s.lock.Guarantees.Reentrant }
func isReentrantAndServed(s *subject) bool {
	return isReentrantLock(s) && isServed(s)
}

func hasPrefix(s *subject) bool {
	return !slices.Contains([]string{repo.SQLite, repo.MySQL}, string(s.site.name))
}

// isServedAndExpires leaves out a lock that keeps for ever what is granted to no one.
func isServedAndExpires(s *subject) bool { return isServed(s) && s.lock.Guarantees.SurvivesCrash }

func isForgetful(s *subject) bool { return !s.direct && len(s.site.masters()) > 0 }

// subject is one lock on one backend.
type subject struct {
	lock  Lock
	site  *site
	state State
	// holds is how often a name is taken to see its tokens grow.
	holds int
	// direct reports that clients find the servers themselves, so that no proxy can
	// stand between.
	direct bool
	// own is a backend of the same kind that the topic may break.
	own func(*testing.T) *site
}
