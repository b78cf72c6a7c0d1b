// Package catalogue lists the experiments, a file a topic.
package catalogue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

// All lists every experiment by its number. A new one is a function of its topic and one
// line here.
func All() []scenario.Experiment {
	all := []scenario.Experiment{
		oversell(),
		processMutex(),
		mutexPerRequest(),
		mutexInTransaction(),
		threeReplicas(),
		insertLock(),
		forUpdate(),
		innodbLocks(),
		optimistic(),
		noLock(),
		twoStrategies(),
		holderCrashes(),
		workOutlastsTTL(),
		reentrancy(),
		watchdog(),
		tryLock(),
		pausedHolder(),
		fairness(),
		herd(),
		lateWatch(),
		waitersLeave(),
		ownerCheck(),
		getSet(),
		timestampLocks(),
		lostReply(),
		getCompareSet(),
		failover(),
		masterRestarts(),
		clockJumps(),
		splitVote(),
		redlockQuorum(),
		spinning(),
		readWriteLock(),
		multiLock(),
		ensembleSize(),
		holds(),
		severalNodes(),
	}
	slices.SortFunc(all, func(a, b scenario.Experiment) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Pick finds experiments by name or number, in the order of their numbers and
// each once; "all" are all of them. The error names what is allowed.
func Pick(names []string) ([]scenario.Experiment, error) {
	all := All()
	picked := make(map[int]bool)
	for _, name := range names {
		if name == "all" {
			return all, nil
		}
		i := slices.IndexFunc(all, func(e scenario.Experiment) bool {
			return e.Name == name || strconv.Itoa(e.Number) == name
		})
		if i < 0 {
			return nil, fmt.Errorf("%q is not an experiment; there are all, %s, or their numbers", name, strings.Join(namesOf(all), ", "))
		}
		picked[all[i].Number] = true
	}
	return slices.DeleteFunc(all, func(e scenario.Experiment) bool { return !picked[e.Number] }), nil
}

func namesOf(all []scenario.Experiment) []string {
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	return names
}

// The documents whose claims are put to the test, by their titles.
const (
	chapterOne  = "Distributed locks, chapter one (第一章 分布式锁)"
	flashSales  = "Distributed locks in a flash sale (秒杀系统下的分布式锁)"
	twoWays     = "Distributed locks, two implementations (分布式锁实现)"
	zooKeeping  = "Notes on ZooKeeper and its locks (基于 ZooKeeper 的分布式锁)"
	basicSearch = "Basic research: the design of distributed locks (分布式锁的设计要点)"
)

// ttl is how long the locks of these stages last when their holder is silent.
const ttl = time.Second

// slack is what a busy machine may take for what should be done at once.
const slack = time.Second

// onRedis is three replicas whose locks are on one Redis and last for ttl.
func onRedis(env ...string) scenario.Stage {
	return scenario.Stage{
		Needs: []scenario.Need{scenario.Redis}, Replicas: 3, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms", "STOCKD_REDIS_TIMEOUT=900ms"}, env...),
	}
}

// acted is a part in which contenders for one name do the steps in their order.
func acted(c *step.Cast, name, does, expect string, seen checker.Check, steps ...scenario.Step) scenario.Part {
	pictures := []scenario.Picture{scenario.Timeline}
	if c.Need == scenario.Redlock {
		pictures = []scenario.Picture{scenario.Votes, scenario.Timeline}
	}
	return scenario.Part{
		Name: name, Stage: scenario.Stage{Needs: []scenario.Need{c.Need}},
		Does: does, Expect: expect, Steps: steps, Check: seen, Pictures: pictures,
	}
}

// sellOut is 50 clients that try so many purchases of so many units, and the audit after it.
func sellOut(strategy string, units int64, purchases int) []scenario.Step {
	return []scenario.Step{step.Stock(units), step.Sell(step.Sale{Strategy: strategy, Clients: 50, Requests: purchases}), step.Audit()}
}

func remedy(p scenario.Part) scenario.Part {
	p.Remedy = true
	return p
}

// onDatabase is replicas that have nothing but a database with row locks.
func onDatabase(replicas int, env ...string) scenario.Stage {
	return scenario.Stage{
		Needs: []scenario.Need{scenario.MySQL}, Replicas: replicas, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms"}, env...),
	}
}
