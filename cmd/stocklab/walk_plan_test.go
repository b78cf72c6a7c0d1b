package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/strategy"
)

// walk is what a seed stands for: the item, and what each actor does with it. It is
// a pure function of the seed and of the strategies that there are. Which steps of
// different actors meet is up to the scheduler: a seed that fails may need several
// runs to fail again.
type walk struct {
	seed       uint64
	kind       walkKind
	strategies []string
	units      int64 // of the new item
	limits     []int64
	replica    int // that sells, where the kind is oneReplica
	// actors run at the same time, each from its first step to its last.
	actors [][]step
}

// walkKind says which strategies sell and what has to hold.
type walkKind string

const (
	// allReplicas: every strategy is exclusive across replicas, and every unit is
	// accounted for.
	allReplicas walkKind = "all-replicas"
	// oneReplica: every strategy is exclusive in one process, one replica sells, and
	// every unit is accounted for.
	oneReplica walkKind = "one-replica"
	// lossy: strategies that lose each other's updates sell on all replicas. They may
	// lose sales, and nothing else: a restock and a move of units are never lost.
	lossy walkKind = "lossy"
)

// step is one thing that an actor does after a pause.
type step struct {
	do    action
	pause time.Duration
	// replica is asked, or is what the fault happens to.
	replica  int
	key      string // Idempotency-Key; empty: none is sent
	quantity int64  // of a purchase or a restock, and the units per user of a limit
	copies   int    // so many are sent at once
	again    bool   // one more is sent after the answer
	// The rest is of a purchase.
	strategy     string
	user         string
	group, fence bool
	lasts        time.Duration // of a fault
}

type action string

const (
	buy          action = "buy"
	restock      action = "restock"
	changeLimit  action = "change limit"
	readItem     action = "read item"
	readAudit    action = "read audit"
	killReplica  action = "kill replica"
	pauseReplica action = "pause replica"
	restartRedis action = "restart redis"
	recall       action = "recall"
)

// Sizes of a walk.
const (
	walkReplicas  = 3
	walkBuyers    = 6
	walkUsers     = 8
	purchasesEach = 40
	mostQuantity  = 5
	// coarse units are more than all buyers together can buy: where restocks and moved
	// units come in those, no number of lost sales passes for one of them.
	coarse = 10 * walkBuyers * purchasesEach * mostQuantity
)

// walkFeatures are what a seed turns on: walks that differ in what they leave out
// find more than walks that do a little of everything.
type walkFeatures struct{ restocks, limited, moves, faults, looks bool }

func planWalk(seed uint64) walk {
	r := rand.New(rand.NewPCG(seed, 0))
	w := walk{seed: seed, kind: allReplicas, units: 10 + r.Int64N(300), replica: r.IntN(walkReplicas)}
	switch r.IntN(6) {
	case 0:
		w.kind = oneReplica
	case 1:
		w.kind, w.units = lossy, coarse
	}
	with := walkFeatures{restocks: r.IntN(4) > 0, limited: r.IntN(4) == 0, moves: r.IntN(2) == 0, faults: r.IntN(3) == 0, looks: r.IntN(4) > 0}
	if with.limited {
		w.limits = append(w.limits, 1+r.Int64N(30))
	}
	w.pickStrategies(r, with)
	for buyer := range walkBuyers {
		w.actors = append(w.actors, w.purchases(r, buyer))
	}
	if with.restocks {
		w.actors = append(w.actors, w.restocks(r))
	}
	if with.limited {
		w.actors = append(w.actors, w.limitChanges(r))
	}
	if with.looks {
		w.actors = append(w.actors, looks(r))
	}
	if with.faults {
		w.actors = append(w.actors, w.faults(r))
	}
	if later := rand.New(rand.NewPCG(seed, 1)); later.IntN(2) == 0 {
		w.actors = append(w.actors, recalls(later))
	}
	return w
}

// pickStrategies picks up to three, and one more that moves the units. The seed ranks
// them by name, so that a new strategy does not change what most seeds stand for.
func (w *walk) pickStrategies(r *rand.Rand, with walkFeatures) {
	count := 1 + r.IntN(3)
	var names []string
	for _, entry := range strategy.Registry() {
		if w.mayUse(entry, with) {
			names = append(names, entry.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(w.rank(a), w.rank(b)) })
	if w.kind == oneReplica { // one of the few that may sell only so is always there
		i := slices.IndexFunc(names, func(name string) bool { return !entryOf(name).Guarantees.ExclusiveAcrossReplicas })
		names[0], names[i] = names[i], names[0]
	}
	w.strategies = names[:min(count, len(names))]
	mover := "sql-bucket"
	if r.IntN(2) == 0 {
		mover = hotStrategy
	}
	switch {
	case with.limited && slices.Contains(w.strategies, hotStrategy):
		// What others sell at the same moment it does not count: a documented limit.
		w.strategies = []string{hotStrategy}
	case with.moves && !with.limited && !slices.Contains(w.strategies, mover):
		w.strategies = append(w.strategies, mover)
	}
}

// hotStrategy answers before the ledger has the order.
const hotStrategy = "redis-stock"

func (w *walk) rank(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash does not fail
	return rand.NewPCG(w.seed, h.Sum64()).Uint64()
}

func (w *walk) mayUse(e strategy.Entry, with walkFeatures) bool {
	if slices.ContainsFunc(e.Needs, func(b backend.Name) bool { return b != backend.Database && b != backend.MySQL && b != backend.Redis }) {
		return false
	}
	if e.Name == "redis-getset" { // it stalls for seconds at a handoff, as it should, and little happens meanwhile
		return false
	}
	// A lock that stays locked when its holder dies ends the walk there.
	if with.faults && !e.Guarantees.SurvivesCrash && e.Guarantees.ExclusiveAcrossReplicas && e.Damage != strategy.Undersells {
		return false
	}
	switch w.kind {
	case oneReplica:
		return e.Guarantees.ExclusiveInProcess
	case lossy:
		return !e.Guarantees.ExclusiveAcrossReplicas
	default:
		return e.Guarantees.ExclusiveAcrossReplicas
	}
}

func entryOf(name string) strategy.Entry {
	list := strategy.Registry()
	return list[slices.IndexFunc(list, func(e strategy.Entry) bool { return e.Name == name })]
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

func (w *walk) purchases(r *rand.Rand, buyer int) []step {
	steps := make([]step, purchasesEach)
	for i := range steps {
		s := step{
			do: buy, pause: upTo(r, 4*time.Millisecond), replica: r.IntN(walkReplicas), quantity: 1 + r.Int64N(mostQuantity), copies: 1,
			strategy: w.strategies[r.IntN(len(w.strategies))], group: r.IntN(3) == 0,
		}
		s.fence = r.IntN(2) == 0 && entryOf(s.strategy).Guarantees.Fenceable
		if w.kind == oneReplica {
			s.replica = w.replica
		}
		if r.IntN(3) > 0 {
			s.key = fmt.Sprintf("buy-%d-%d", buyer, i)
			s.again = r.IntN(5) == 0
			if r.IntN(5) == 0 {
				s.copies = 2
			}
		}
		if len(w.limits) > 0 && r.IntN(10) > 0 || r.IntN(4) == 0 {
			s.user = fmt.Sprintf("user-%d", r.IntN(walkUsers))
		}
		steps[i] = s
	}
	return steps
}

func (w *walk) restocks(r *rand.Rand) []step {
	steps := make([]step, 25)
	for i := range steps {
		s := step{
			do: restock, pause: upTo(r, 40*time.Millisecond), replica: r.IntN(walkReplicas), quantity: 1 + r.Int64N(50),
			key: fmt.Sprintf("restock-%d", i), copies: 1 + r.IntN(2), again: r.IntN(3) == 0,
		}
		if w.kind == lossy {
			s.quantity *= coarse
		}
		steps[i] = s
	}
	return steps
}

func (w *walk) limitChanges(r *rand.Rand) []step {
	steps := make([]step, 6)
	for i := range steps {
		s := step{do: changeLimit, pause: upTo(r, 150*time.Millisecond), replica: r.IntN(walkReplicas), quantity: 1 + r.Int64N(30)}
		if i < len(steps)-1 && r.IntN(6) == 0 {
			s.quantity = 0 // no limit for a while
		}
		w.limits = append(w.limits, s.quantity)
		steps[i] = s
	}
	return steps
}

func looks(r *rand.Rand) []step {
	steps := make([]step, 20)
	for i := range steps {
		steps[i] = step{do: readItem, pause: upTo(r, 50*time.Millisecond), replica: r.IntN(walkReplicas)}
		if r.IntN(2) == 0 {
			steps[i].do = readAudit
		}
	}
	return steps
}

func recalls(r *rand.Rand) []step {
	steps := make([]step, 12)
	for i := range steps {
		steps[i] = step{do: recall, pause: upTo(r, 80*time.Millisecond), replica: r.IntN(walkReplicas)}
	}
	return steps
}

// faults last for less than a lease, so that no lock is lost that is not given up.
func (w *walk) faults(r *rand.Rand) []step {
	steps := make([]step, 1+r.IntN(3))
	for i := range steps {
		s := step{do: pauseReplica, pause: upTo(r, 400*time.Millisecond), replica: r.IntN(walkReplicas), lasts: 50*time.Millisecond + upTo(r, 400*time.Millisecond)}
		switch r.IntN(5) {
		case 0, 1:
			s.do = killReplica
		case 2:
			s.do = restartRedis
		}
		steps[i] = s
	}
	return steps
}

// pending tells that a purchase may be answered before the ledger has it.
func (w *walk) pending() bool { return slices.Contains(w.strategies, hotStrategy) }

// movesUnits tells that units may be in the allocation of one of the strategies.
func (w *walk) movesUnits() bool { return w.pending() || slices.Contains(w.strategies, "sql-bucket") }

func (w *walk) String() string {
	kinds := make(map[action]int)
	for _, steps := range w.actors {
		for _, s := range steps {
			kinds[s.do]++
		}
	}
	return fmt.Sprintf("seed %d, %s: %s; %d units, limits %v, steps %v",
		w.seed, w.kind, strings.Join(w.strategies, " "), w.units, w.limits, kinds)
}
