// Package scenario holds the experiments of the lab: each is data that says
// what is claimed, what is set up, what is done and what is expected, and ends in
// a verdict that is concluded from the evidence.
package scenario

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
)

// Experiment is one failure that the sources describe, and its remedies.
type Experiment struct {
	// Number is its place in the list, from 1; Name is what the command line
	// calls it.
	Number int
	Name   string
	// Title is a few words, Claim what the source says, in one sentence,
	// and Source the document and the section that says it.
	Title, Claim, Source string
	// Fix is the command that shows what to do instead, or empty.
	Fix string
	// Parts are the failure, and what helps against it. Each must come out as it
	// is expected.
	Parts []Part
}

// Part is one half of an experiment.
type Part struct {
	// Name is unique in the experiment and fit for a file name: "naive",
	// "with-expiry". Does says in one sentence what is done, and Expect what is
	// then to be seen.
	Name, Does, Expect string
	// Remedy tells that this part shows what helps.
	Remedy bool
	// Stage is what runs.
	Stage Stage
	// Steps are done one after the other.
	Steps []Step
	// Check says whether what is expected was seen.
	Check checker.Check
	// Tries bounds how often a part is made until it holds: a race may come out
	// well by luck. 0 is 1. Every try counts, and the report shows how many. A remedy is
	// not tried again.
	Tries int
	// Rounds is how often a remedy must hold, one time after the other. 0 is 1.
	Rounds int
	// Pictures are what the report draws of it.
	Pictures []Picture
	// Orders has porcupine look for an order of the purchases that explains the
	// answers, and draw where there is none.
	Orders bool
}

// Stage is what a part needs.
type Stage struct {
	// Needs are the backends without which it cannot be made.
	Needs []Need
	// Servers starts servers of this part's own, or puts proxies before those that
	// are there, and returns the STOCKD_… variables that lead the replicas to them.
	// It keeps in the try what the steps need of them. Nil: there are none.
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

// Step is one thing that is done in a try. Where it fails, it ends the try as it would end a test: see Must.
type Step func(x *Try)

// Picture names a picture of the report.
type Picture string

// The pictures.
const (
	Timeline Picture = "timeline" // who held the lock on which replica, overlaps in red
	Stock    Picture = "stock"    // stock and sold over time
	Waits    Picture = "waits"    // how long requests waited
	Bars     Picture = "bars"     // the part's numbers beside those of the other parts
	Steps    Picture = "steps"    // what requests that were under way together did
	Votes    Picture = "votes"    // what each master of redlock answered
	Wakes    Picture = "wakes"    // how many waiters each release woke
	Rows     Picture = "rows"     // which rows and gaps InnoDB locks
)

// Verdict is what came of an experiment.
type Verdict string

// The verdicts.
const (
	Reproduced    Verdict = "reproduced"
	NotReproduced Verdict = "not reproduced"
	NotRun        Verdict = "not run"
)

// Result is what came of an experiment, as JSON has it.
type Result struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Title  string `json:"title"`
	Claim  string `json:"claim"`
	Source string `json:"source"`
	Fix    string `json:"fix,omitempty"`
	// Verdict is reproduced where every part held.
	Verdict Verdict `json:"verdict"`
	// Reason is the findings in words, or why it was not run.
	Reason string `json:"reason"`
	// Tries is how often its parts were made, all together.
	Tries   int     `json:"tries"`
	Seconds float64 `json:"seconds"`
	// Evidence has the numbers of all parts: "naive.oversold_units".
	Evidence map[string]float64 `json:"evidence"`
	Parts    []PartResult       `json:"parts"`
}

// PartResult is what came of a part: the finding of its last try.
type PartResult struct {
	Name     string          `json:"name"`
	Does     string          `json:"does"`
	Expect   string          `json:"expect"`
	Remedy   bool            `json:"remedy"`
	Pictures []Picture       `json:"pictures,omitempty"`
	Tries    int             `json:"tries"`
	Finding  checker.Finding `json:"finding"`
	// History is the file of the last try, relative to the folder of the run.
	History string `json:"history"`
	// Contradiction is porcupine's picture of answers that no order of the purchases
	// explains, beside the history, or empty.
	Contradiction string `json:"contradiction,omitempty"`
	// NotRun is why it was not, or empty.
	NotRun string    `json:"not_run,omitempty"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
}
