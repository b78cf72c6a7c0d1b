// Package catalogue lists the experiments, a file each.
package catalogue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// All lists every experiment by its number. A new one is its own file and one
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
		ownerCheck(),
		getSet(),
		lostReply(),
		failover(),
		masterRestarts(),
		clockJumps(),
		splitVote(),
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
