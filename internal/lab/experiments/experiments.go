// Package experiments has the experiments of the lab, a file a topic, and runs them. An experiment says what
// is claimed; each of its parts is one function that is read from top to bottom, as a test is, and a check
// that judges from the recorded history alone.
package experiments

import (
	"slices"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/nearest"
)

// Experiment is one failure that the sources describe, and its remedies.
type Experiment struct {
	// Number is its place in the list, from 1; Name is what the command line
	// calls it.
	Number int    `json:"number"`
	Name   string `json:"name"`
	// Title is a few words, Claim what the source says, in one sentence,
	// and Source the document and the section that says it.
	Title  string `json:"title"`
	Claim  string `json:"claim"`
	Source string `json:"source"`
	// Why it happens, and Advice: what to do in one's own code.
	Why    string `json:"why,omitempty"`
	Advice string `json:"advice,omitempty"`
	// Fix is the command that shows what to do instead, or empty.
	Fix string `json:"fix,omitempty"`
	// Parts are the failure, and what helps against it. Each must come out as it
	// is expected.
	Parts []Part `json:"-"`
}

// Part is one half of an experiment.
type Part struct {
	// Name is unique in the experiment and fit for a file name: "naive",
	// "with-expiry". Does says in one sentence what is done, and Expect what is
	// then to be seen.
	Name   string `json:"name"`
	Does   string `json:"does"`
	Expect string `json:"expect"`
	// Remedy tells that this part shows what helps. It is tried once; the others are until the failure shows: a race may come out
	// well by luck. Every try counts, and the report shows how many.
	Remedy bool `json:"remedy"`
	// Pictures are what the report draws of it.
	Pictures []Picture `json:"pictures,omitempty"`
	// Stage is what runs, and Do what is done there. Where something fails, it ends the try as it would end a test: see Must.
	Stage Stage        `json:"-"`
	Do    func(x *Try) `json:"-"`
	// Check says whether what is expected was seen.
	Check checker.Check `json:"-"`
	// Orders has porcupine look for an order of the purchases that explains the
	// answers, and draw where there is none.
	Orders bool `json:"-"`
}

// Stage is what a part needs.
type Stage struct {
	// Needs are the backends without which it cannot be made.
	Needs []Need
	// Servers starts servers of this part's own, or puts proxies before those that
	// are there, and returns the STOCKD_… variables that lead the replicas to them.
	// It keeps in the try what Do needs of them. Nil: there are none.
	Servers func(x *Try) (env []string)
	// Replicas are started behind a balancer; 0: none.
	Replicas int
	// Nodes of a Galera cluster take the writes of the replicas, each of a replica in turn; 0: the
	// database of the run does. The cluster is started once for a whole run, where there is Galera.
	Nodes int
	// Env are STOCKD_… variables of the replicas.
	Env []string
	// Own are more of them for single replicas, by their number from 1.
	Own map[int][]string
	// Lab turns on the failpoints of the replicas, and the record of their
	// leases.
	Lab bool
}

// Need is a backend, or a topology of several servers.
type Need string

// The needs. The first five are started once for a whole run.
const (
	MySQL     Need = "mysql" // MySQL or MariaDB: not SQLite
	Redis     Need = "redis"
	Redlock   Need = "redlock" // five masters
	ZooKeeper Need = "zookeeper"
	Etcd      Need = "etcd"
)

// Picture names a picture of the report.
type Picture string

// The pictures.
const (
	Timeline Picture = "timeline" // who held the lock on which replica, overlaps in red
	Stock    Picture = "stock"    // stock and sold over time
	Waits    Picture = "waits"    // how long requests waited
	Votes    Picture = "votes"    // what each master of redlock answered
	Wakes    Picture = "wakes"    // how many waiters each release woke
	Rows     Picture = "rows"     // which rows and gaps InnoDB locks
)

// All lists every experiment by its number. A new one is a function of its topic, one line here, and its words in both
// languages.
func All() []Experiment {
	all := []Experiment{
		{Name: "oversell", Parts: oversell()},
		{Name: "process-mutex", Parts: processMutex()},
		{Name: "mutex-per-request", Parts: mutexPerRequest()},
		{Name: "mutex-in-transaction", Parts: mutexInTransaction()},
		{Name: "three-replicas", Parts: threeReplicas()},
		{Name: "holder-crashes", Parts: holderCrashes()},
		{Name: "work-outlasts-ttl", Parts: workOutlastsTTL()},
		{Name: "owner-check", Parts: ownerCheck()},
		{Name: "reentrancy", Parts: reentrancy()},
		{Name: "watchdog", Parts: watchdog()},
		{Name: "try-lock", Parts: tryLock()},
		{Name: "getset", Parts: getSet()},
		{Name: "failover", Parts: failover()},
		{Name: "master-restarts", Parts: masterRestarts()},
		{Name: "clock-jumps", Parts: clockJumps()},
		{Name: "split-vote", Parts: splitVote()},
		{Name: "herd", Parts: herd()},
		{Name: "late-watch", Parts: lateWatch()},
		{Name: "paused-holder", Parts: pausedHolder()},
		{Name: "insert-lock", Parts: insertLock()},
		{Name: "for-update", Parts: forUpdate()},
		{Name: "innodb-locks", Parts: innodbLocks()},
		{Name: "optimistic", Parts: optimistic()},
		{Name: "fairness", Parts: fairness()},
		{Name: "lost-reply", Parts: lostReply()},
		{Name: "no-lock", Parts: noLock()},
		{Name: "two-strategies", Parts: twoStrategies()},
		{Name: "get-compare-set", Parts: getCompareSet()},
		{Name: "timestamp-locks", Parts: timestampLocks()},
		{Name: "end-of-waiting", Parts: waitersLeave()},
		{Name: "redlock-quorum", Parts: redlockQuorum()},
		{Name: "spinning", Parts: spinning()},
		{Name: "read-write-lock", Parts: readWriteLock()},
		{Name: "multi-lock", Parts: multiLock()},
		{Name: "ensemble-size", Parts: ensembleSize()},
		{Name: "holds", Parts: holds()},
		{Name: "several-nodes", Parts: severalNodes()},
		{Name: "shards", Parts: shards()},
	}
	for i := range all {
		e := &all[i]
		e.Number = i + 1
		fill(english, e.Name, &e.Title, &e.Claim, &e.Source, &e.Why, &e.Advice, &e.Fix)
		for j := range e.Parts {
			p := &e.Parts[j]
			fill(english, e.Name+"/"+p.Name, &p.Does, &p.Expect)
		}
	}
	return all
}

// Pick finds experiments by name or number, in the order of their numbers and
// each once; "all" are all of them. The error names what is allowed.
func Pick(names []string) ([]Experiment, error) {
	all := All()
	known := append(make([]string, 0, len(all)+2), "all")
	names = slices.Clone(names)
	for _, e := range all {
		known = append(known, e.Name)
		for i := range names {
			if names[i] == strconv.Itoa(e.Number) {
				names[i] = e.Name
			}
		}
	}
	if err := nearest.Check("an experiment", append(known, "or their numbers"), names...); err != nil {
		return nil, err
	}
	if slices.Contains(names, "all") {
		return all, nil
	}
	return slices.DeleteFunc(all, func(e Experiment) bool { return !slices.Contains(names, e.Name) }), nil
}

// ttl is how long the locks of these stages last when their holder is silent.
const ttl = time.Second

// slack is what a busy machine may take for what should be done at once.
const slack = time.Second

// onRedis is three replicas whose locks are on one Redis and last for ttl.
func onRedis(env ...string) Stage {
	return Stage{
		Needs: []Need{Redis}, Replicas: 3, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms", "STOCKD_REDIS_TIMEOUT=900ms"}, env...),
	}
}

// sellOut has 50 clients try so many purchases of so many units.
func sellOut(strategy string, units int64, purchases int) func(x *Try) {
	return func(x *Try) {
		x.stock(units)
		x.sell(Sale{Strategy: strategy, Clients: 50, Requests: purchases})
		x.audit()
	}
}

// on is a stage without replicas.
func on(needs ...Need) Stage { return Stage{Needs: needs} }

// newPart is a part that is made once.
func newPart(name string, stage Stage, seen checker.Check, do func(x *Try), pictures ...Picture) Part {
	return Part{Name: name, Stage: stage, Check: seen, Do: do, Pictures: pictures}
}

// asRemedy is a part that shows what helps.
func asRemedy(p Part) Part {
	p.Remedy = true
	return p
}
