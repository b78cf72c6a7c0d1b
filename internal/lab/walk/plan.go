// Package walk plans random walks over all that can be done to an item while it is on
// sale, judges what happened in one, and shortens those that fail.
package walk

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

// Plan is what a seed stands for: the item, and what each actor does with it. It is
// a pure function of the seed, of the strategies that there are, and of the backends that
// a walk through one strategy reaches. The scheduler decides which steps of different
// actors meet: a seed that fails may need several runs to fail again.
type Plan struct {
	Seed       uint64
	Kind       Kind
	Strategies []string
	Units      int64 // of the new item
	Limits     []int64
	Replica    int // that sells, where the kind is OneReplica
	// Actors run at the same time, each from its first step to its last.
	Actors [][]Step

	fencing fencing
	entries map[string]strategy.Entry
}

// Kind says which strategies sell and what has to hold.
type Kind string

const (
	// AllReplicas means that every strategy is exclusive across replicas, and every unit is
	// accounted for.
	AllReplicas Kind = "all-replicas"
	// OneReplica means that every strategy is exclusive in one process, one replica sells, and
	// every unit is accounted for.
	OneReplica Kind = "one-replica"
	// Lossy strategies lose each other's updates and sell on all replicas. They may
	// lose sales, and nothing else: a restock and a move of units are never lost.
	Lossy Kind = "lossy"
)

// fencing says which purchases have fence=true, of those that may.
type fencing int

const (
	someFenced   fencing = iota
	unsafeFenced         // and all whose lock does not signal its loss
	allFenced
)

// Step is one thing that an actor does after a pause.
type Step struct {
	Do    Action
	Pause time.Duration
	// Replica is asked, counted from 0, or is what the fault happens to.
	Replica  int
	Key      string // Idempotency-Key; empty: none is sent
	Quantity int64  // of a purchase or a restock, and the units per user of a limit
	Copies   int    // so many are sent at once
	Again    bool   // one more is sent after the answer
	// What follows is of a purchase.
	Strategy     string
	User         string
	Group, Fence bool
	// Ends is how a reservation ends, after Keeps: Confirm, Release, or empty, where it
	// expires after ReserveTTL.
	Ends  Action
	Keeps time.Duration
	// Extends has it expire later, before it ends; Returns are units that come back once it is confirmed.
	Extends bool
	Returns int64
	Damaged bool // they cannot be sold again
	// What follows is of a fault.
	Backend backend.Name  // what is restarted, or what the replica reaches no longer
	Middle  bool          // the replica is in the middle of a purchase
	Lasts   time.Duration // also that of a sale which is closed or delayed
}

// Action is what a step does.
type Action string

// The actions. From Kill on they are faults; from Cut on they concern the path from one
// replica to one backend. Lose has the backend act, and its replies lost.
const (
	Buy           Action = "buy"
	Reserve       Action = "reserve"
	Order         Action = "order" // a basket: the item, and one unit of another one
	Extend        Action = "extend"
	Return        Action = "return"
	Confirm       Action = "confirm"
	Release       Action = "release"
	Restock       Action = "restock"
	Correct       Action = "correct" // by a difference, which is negative where units are taken off
	ChangeLimit   Action = "change limit"
	ReadItem      Action = "read item"
	ReadAudit     Action = "read audit"
	Recall        Action = "recall"
	Close         Action = "close" // the sale, and open it again
	Delay         Action = "delay" // the start of the sale
	Reopen        Action = "reopen"
	Kill          Action = "kill"
	Pause         Action = "pause"
	Restart       Action = "restart"
	Cut           Action = "cut"
	Slow          Action = "slow"
	Freeze        Action = "freeze"
	FreezeReplies Action = "freeze replies"
	Lose          Action = "lose replies"
)

// Sizes of a walk.
const (
	Replicas      = 3
	walkBuyers    = 6
	walkUsers     = 8
	purchasesEach = 40
	maxQuantity   = 5
	// coarse units are more than all buyers together can buy: where restocks and moved
	// units come in those, no number of lost sales passes for one of them.
	coarse = 10 * walkBuyers * purchasesEach * maxQuantity
	// LeaseTTL is what lock.ttl has to be: most faults are shorter, and a long one outlasts it.
	LeaseTTL = 3 * time.Second
	// ReserveTTL is how long reservations are held.
	ReserveTTL = time.Second
)

// features are what a seed turns on: walks that differ in what they leave out
// find more than walks that do a little of everything.
type features struct{ restocks, limited, moves, faults, looks bool }

// Random is a walk through a few strategies that the seed picks, of any kind.
func Random(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	w := Plan{Seed: seed, Kind: AllReplicas, Units: 10 + r.Int64N(300), Replica: r.IntN(Replicas), entries: entries()}
	switch r.IntN(6) {
	case 0:
		w.Kind = OneReplica
	case 1:
		w.Kind, w.Units = Lossy, coarse
	}
	with := features{restocks: r.IntN(4) > 0, limited: r.IntN(4) == 0, moves: r.IntN(2) == 0, faults: r.IntN(3) == 0, looks: r.IntN(4) > 0}
	if with.limited {
		w.Limits = append(w.Limits, 1+r.Int64N(30))
	}
	w.pickStrategies(r, with)
	for buyer := range walkBuyers {
		w.Actors = append(w.Actors, w.purchases(r, buyer, purchasesEach))
	}
	w.addAdmins(r, with, 25, 20)
	if with.faults {
		w.Actors = append(w.Actors, faults(r))
	}
	if later := rand.New(rand.NewPCG(seed, 1)); later.IntN(2) == 0 {
		w.Actors = append(w.Actors, recalls(later, 12))
	}
	w.addReserver(rand.New(rand.NewPCG(seed, 2)), 20)
	w.addSales(rand.New(rand.NewPCG(seed, 3)), 4)
	return w
}

// Through is a walk through a strategy that is exclusive across replicas, and at times
// others beside it, with faults of its replicas, of the backends that the walk can reach,
// and of the paths to them.
func Through(name string, seed uint64, reached ...backend.Name) Plan {
	r := rand.New(rand.NewPCG(seed, hashOf(name)))
	w := Plan{Seed: seed, Kind: AllReplicas, Units: 10 + r.Int64N(60), Strategies: []string{name}, fencing: unsafeFenced, entries: entries()}
	with := features{restocks: r.IntN(4) > 0, limited: r.IntN(5) == 0, moves: r.IntN(3) == 0, looks: r.IntN(2) == 0, faults: true}
	if with.limited {
		w.Limits = append(w.Limits, 1+r.Int64N(10))
	}
	if beside := w.ranked(with)[0]; r.IntN(3) == 0 && beside != name && !with.limited {
		w.Strategies = append(w.Strategies, beside)
	}
	w.addMover(r, with)
	long := r.IntN(5) == 0
	if long {
		w.fencing = allFenced
	}
	buyers, each := 4, 15
	if name == slowStrategy {
		buyers, each = 2, 4
	}
	for buyer := range buyers {
		steps := w.purchases(r, buyer, each)
		for i := range steps { // they are not over before the faults
			steps[i].Pause += time.Duration(r.IntN(2)) * upTo(r, 60*time.Millisecond)
		}
		w.Actors = append(w.Actors, steps)
	}
	w.addAdmins(r, with, 8, 8)
	if r.IntN(2) == 0 {
		w.Actors = append(w.Actors, recalls(r, 4))
	}
	w.Actors = append(w.Actors, w.faultsOf(r, long, reached))
	w.addReserver(rand.New(rand.NewPCG(seed, hashOf(name)+1)), each/2)
	w.addSales(rand.New(rand.NewPCG(seed, hashOf(name)+2)), 3)
	return w
}

// pickStrategies picks up to three, and one more that moves the units.
func (w *Plan) pickStrategies(r *rand.Rand, with features) {
	count, names := 1+r.IntN(3), w.ranked(with)
	if w.Kind == OneReplica { // one of the few that may sell only so is always there
		i := slices.IndexFunc(names, func(name string) bool { return !w.entries[name].Guarantees.ExclusiveAcrossReplicas })
		names[0], names[i] = names[i], names[0]
	}
	w.Strategies = names[:min(count, len(names))]
	w.addMover(r, with)
}

// ranked are the strategies that a walk may pick. The seed ranks them by name, so that a
// new strategy does not change what most seeds stand for.
func (w *Plan) ranked(with features) (names []string) {
	for _, entry := range w.entries {
		if w.mayUse(entry, with) {
			names = append(names, entry.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(w.rank(a), w.rank(b)) })
	return names
}

// addMover adds a strategy that moves the units of the item.
func (w *Plan) addMover(r *rand.Rand, with features) {
	mover := "sql-bucket"
	if r.IntN(2) == 0 {
		mover = hotStrategy
	}
	switch {
	case with.limited && slices.Contains(w.Strategies, hotStrategy):
		// What others sell at the same moment it does not count: a documented limit.
		w.Strategies = []string{hotStrategy}
	case with.moves && !with.limited && !slices.Contains(w.Strategies, mover):
		w.Strategies = append(w.Strategies, mover)
	}
}

const (
	// hotStrategy answers before the ledger has the order.
	hotStrategy = "redis-stock"
	// slowStrategy stalls for seconds at a handoff, as it should, and little happens meanwhile.
	slowStrategy = "redis-getset"
)

func (w *Plan) rank(name string) uint64 { return rand.NewPCG(w.Seed, hashOf(name)).Uint64() }

func hashOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash does not fail
	return h.Sum64()
}

func (w *Plan) mayUse(e strategy.Entry, with features) bool {
	if slices.ContainsFunc(e.Needs, func(b backend.Name) bool { return b != backend.Database && b != backend.MySQL && b != backend.Redis }) {
		return false
	}
	if e.Name == slowStrategy {
		return false
	}
	if with.faults && staysLocked(e) && w.Kind != OneReplica { // its walk would end there
		return false
	}
	switch w.Kind {
	case OneReplica:
		return e.Guarantees.ExclusiveInProcess
	case Lossy:
		return !e.Guarantees.ExclusiveAcrossReplicas
	default:
		return e.Guarantees.ExclusiveAcrossReplicas
	}
}

// staysLocked tells of a lock that is never freed once its holder has died.
func staysLocked(e strategy.Entry) bool {
	return !e.Guarantees.SurvivesCrash && e.Guarantees.ExclusiveAcrossReplicas && e.Damage != strategy.Undersells
}

func entries() map[string]strategy.Entry {
	byName := make(map[string]strategy.Entry)
	for _, entry := range strategy.Registry() {
		byName[entry.Name] = entry
	}
	return byName
}

func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

func (w *Plan) purchases(r *rand.Rand, buyer, count int) []Step {
	return each(count, func(i int) Step {
		s := Step{
			Do: Buy, Pause: upTo(r, 4*time.Millisecond), Replica: r.IntN(Replicas), Quantity: 1 + r.Int64N(maxQuantity), Copies: 1,
			Strategy: w.Strategies[r.IntN(len(w.Strategies))], Group: r.IntN(3) == 0,
		}
		s.Fence = w.fences(w.entries[s.Strategy].Guarantees, r.IntN(2) == 0)
		if w.Kind == OneReplica {
			s.Replica = w.Replica
		}
		if r.IntN(3) > 0 {
			s.Key = fmt.Sprintf("buy-%d-%d", buyer, i)
			s.Again = r.IntN(5) == 0
			if r.IntN(5) == 0 {
				s.Copies = 2
			}
		}
		if len(w.Limits) > 0 && r.IntN(10) > 0 || r.IntN(4) == 0 {
			s.User = fmt.Sprintf("user-%d", r.IntN(walkUsers))
		}
		return s
	})
}

// addReserver adds one who reserves, and pays, gives back, or does neither, and now and then buys a basket. Strategies that lose
// each other's updates would lose what comes back, too.
func (w *Plan) addReserver(r *rand.Rand, count int) {
	if w.Kind == Lossy {
		return
	}
	steps := w.purchases(r, len(w.Actors), count)
	for i := range steps {
		s := &steps[i]
		s.Do, s.Key, s.Copies = Reserve, fmt.Sprintf("reserve-%d", i), 1
		s.Keeps = upTo(r, 30*time.Millisecond)
		if s.Ends = []Action{Confirm, Release, ""}[r.IntN(3)]; r.IntN(10) == 0 {
			s.Keeps += ReserveTTL - 15*time.Millisecond // in the moment in which it expires
		}
		s.Extends = r.IntN(4) == 0
		if s.Ends == Confirm && r.IntN(3) == 0 {
			s.Returns, s.Damaged = 1+r.Int64N(s.Quantity), i%2 == 0
		}
		if r.IntN(4) == 0 {
			s.Do, s.Key, s.Ends, s.Extends, s.Returns = Order, fmt.Sprintf("order-%d", i), "", false, 0
		}
	}
	w.Actors = append(w.Actors, steps)
}

// fences tells whether a purchase is fenced. A holder that was cut off for longer than its
// lease overwrites later sales of its strategy, unless it is fenced: a documented limit.
func (w *Plan) fences(g strategy.Guarantees, picked bool) bool {
	return g.Fenceable && (picked || w.fencing == allFenced || w.fencing == unsafeFenced && !g.SignalsLoss)
}

// addAdmins adds those who restock, change the limit and look, as far as the seed has them.
func (w *Plan) addAdmins(r *rand.Rand, with features, restocks, looked int) {
	if with.restocks {
		w.Actors = append(w.Actors, w.restocks(r, restocks))
	}
	if with.limited {
		w.Actors = append(w.Actors, w.limitChanges(r))
	}
	if with.looks {
		w.Actors = append(w.Actors, looks(r, looked))
	}
}

// each makes steps one after the other.
func each(count int, step func(i int) Step) []Step {
	steps := make([]Step, count)
	for i := range steps {
		steps[i] = step(i)
	}
	return steps
}

func (w *Plan) restocks(r *rand.Rand, count int) []Step {
	return each(count, func(i int) Step {
		s := Step{
			Do: Restock, Pause: upTo(r, 40*time.Millisecond), Replica: r.IntN(Replicas), Quantity: 1 + r.Int64N(50),
			Key: fmt.Sprintf("restock-%d", i), Copies: 1 + r.IntN(2), Again: r.IntN(3) == 0,
		}
		if r.IntN(3) == 0 {
			s.Do, s.Quantity = Correct, s.Quantity-25
		}
		if w.Kind == Lossy {
			s.Quantity *= coarse
		}
		if s.Quantity == 0 {
			s.Quantity = 1
		}
		return s
	})
}

func (w *Plan) limitChanges(r *rand.Rand) []Step {
	const changes = 6
	return each(changes, func(i int) Step {
		s := Step{Do: ChangeLimit, Pause: upTo(r, 150*time.Millisecond), Replica: r.IntN(Replicas), Quantity: 1 + r.Int64N(30)}
		if i < changes-1 && r.IntN(6) == 0 {
			s.Quantity = 0 // no limit for a while
		}
		w.Limits = append(w.Limits, s.Quantity)
		return s
	})
}

func looks(r *rand.Rand, count int) []Step {
	return each(count, func(int) Step {
		s := Step{Do: ReadItem, Pause: upTo(r, 50*time.Millisecond), Replica: r.IntN(Replicas)}
		if r.IntN(2) == 0 {
			s.Do = ReadAudit
		}
		return s
	})
}

func recalls(r *rand.Rand, count int) []Step {
	return each(count, func(int) Step {
		return Step{Do: Recall, Pause: upTo(r, 80*time.Millisecond), Replica: r.IntN(Replicas)}
	})
}

// addSales adds to half of the walks one who closes the sale and opens it again, or delays its start.
func (w *Plan) addSales(r *rand.Rand, count int) {
	if r.IntN(2) == 0 {
		return
	}
	w.Actors = append(w.Actors, each(count, func(int) Step {
		return Step{
			Do: []Action{Close, Delay}[r.IntN(2)], Pause: upTo(r, 100*time.Millisecond), Replica: r.IntN(Replicas), Copies: 1 + r.IntN(2),
			Lasts: 20*time.Millisecond + upTo(r, 80*time.Millisecond),
		}
	}))
}

// faults last for less than a lease, so that no lock is lost that is not given up.
func faults(r *rand.Rand) []Step {
	return each(1+r.IntN(3), func(int) Step {
		s := Step{Do: Pause, Pause: upTo(r, 400*time.Millisecond), Replica: r.IntN(Replicas), Lasts: 50*time.Millisecond + upTo(r, 400*time.Millisecond)}
		switch r.IntN(5) {
		case 0, 1:
			s.Do = Kill
		case 2:
			s.Do, s.Backend = Restart, backend.Redis
		}
		return s
	})
}

// faultsOf are some faults of what the strategies need. A long one outlasts a lease.
func (w *Plan) faultsOf(r *rand.Rand, long bool, reached []backend.Name) []Step {
	needed := w.needs(reached)
	fragile := slices.ContainsFunc(w.Strategies, func(name string) bool { return staysLocked(w.entries[name]) })
	return each(3+r.IntN(3), func(i int) Step {
		s := Step{Pause: upTo(r, 80*time.Millisecond), Replica: r.IntN(Replicas), Lasts: 20*time.Millisecond + upTo(r, 180*time.Millisecond)}
		if len(needed) > 0 {
			s.Backend = needed[r.IntN(len(needed))]
		}
		actions := actionsOn(s.Backend, fragile)
		if s.Do = actions[r.IntN(len(actions))]; long && i == 0 {
			s.Lasts += LeaseTTL
			if r.IntN(2) == 0 {
				s.Do = Pause // the surest way to be late
			}
		}
		if s.Do == Kill || s.Do == Pause {
			s.Backend, s.Middle = "", r.IntN(3) > 0
		}
		return s
	})
}

// actionsOn are the faults of a replica, of a backend, and of what is between them. What is
// fragile survives no death of a holder.
func actionsOn(b backend.Name, fragile bool) []Action {
	actions := []Action{Pause}
	if b != "" {
		actions = append(actions, Slow, Freeze, FreezeReplies)
	}
	if fragile {
		return actions
	}
	actions = append(actions, Kill)
	if b != "" {
		actions = append(actions, Cut, Lose)
	}
	if b != "" && b != backend.Redlock { // its masters keep nothing, and must not be started again before the leases end
		actions = append(actions, Restart)
	}
	return actions
}

// needs are the backends of the strategies that the walk reaches, always with the database.
func (w *Plan) needs(reached []backend.Name) (needed []backend.Name) {
	all := []backend.Name{backend.Database}
	for _, name := range w.Strategies {
		all = append(all, w.entries[name].Needs...)
	}
	for _, name := range reached {
		if slices.Contains(all, name) {
			needed = append(needed, name)
		}
	}
	return needed
}

// movesUnits tells that units may be in the allocation of one of the strategies.
func (w *Plan) movesUnits() bool {
	return slices.ContainsFunc(w.Strategies, func(name string) bool { return w.entries[name].Allocates })
}

// SellsAll is the first strategy that guarantees to sell everything, or empty where nothing
// of the walk does.
func (w *Plan) SellsAll() string {
	faulty := slices.ContainsFunc(slices.Concat(w.Actors...), Step.isFault)
	i := slices.IndexFunc(w.Strategies, func(name string) bool {
		e := w.entries[name]
		// A waiter whose time is over while the grant is on its way leaves a lock without an expiry.
		return e.Damage != strategy.Undersells && (!faulty || !staysLocked(e))
	})
	if w.Kind != AllReplicas || len(w.Limits) > 0 || i < 0 {
		return ""
	}
	return w.Strategies[i]
}

// String is the plan in one line, with its steps counted.
func (w *Plan) String() string {
	kinds := make(map[Action]int)
	for _, steps := range w.Actors {
		for _, s := range steps {
			kinds[s.Do]++
		}
	}
	return fmt.Sprintf("seed %d, %s: %s; %d units, limits %v, steps %v",
		w.Seed, w.Kind, strings.Join(w.Strategies, " "), w.Units, w.Limits, kinds)
}

// Length is the number of steps.
func (w *Plan) Length() int { return len(slices.Concat(w.Actors...)) }

// Steps lists the steps of each actor.
func (w *Plan) Steps() string {
	var b strings.Builder
	for i, steps := range w.Actors {
		fmt.Fprintf(&b, "  actor %d\n", i+1)
		for _, s := range steps {
			fmt.Fprintf(&b, "    %+v\n", s)
		}
	}
	return b.String()
}

// ByAdmin tells whether a step changes the stock without a sale.
func (s Step) ByAdmin() bool { return s.Do == Restock || s.Do == Correct }

func (s Step) isFault() bool {
	return !slices.Contains([]Action{Buy, Reserve, Order, Restock, Correct, ChangeLimit, ReadItem, ReadAudit, Recall, Close, Delay}, s.Do)
}

// Shrink removes from a plan the steps that it fails without, many at a time at first.
// The answer of fails may vary from one call to the next; where it always says no, for
// example because time is up, the plan stays as it is.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	type place struct{ actor, step int }
	var kept []place
	for i, steps := range p.Actors {
		for j := range steps {
			kept = append(kept, place{i, j})
		}
	}
	only := func(kept []place) Plan {
		actors := make([][]Step, len(p.Actors))
		for _, at := range kept {
			actors[at.actor] = append(actors[at.actor], p.Actors[at.actor][at.step])
		}
		shorter := p
		shorter.Actors = slices.DeleteFunc(actors, func(steps []Step) bool { return len(steps) == 0 })
		return shorter
	}
	for size := (len(kept) + 1) / 2; size > 0; {
		before := len(kept)
		for from := 0; from < len(kept); {
			rest := slices.Concat(kept[:from], kept[min(from+size, len(kept)):])
			if fails(only(rest)) {
				kept = rest
			} else {
				from += size
			}
		}
		if size > 1 || len(kept) == before {
			size /= 2
		}
	}
	return only(kept)
}
