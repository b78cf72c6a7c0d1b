package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// fact is a name with a value, for a list of them.
type fact struct{ Name, Value string }

// count is how many experiments came to a verdict.
type count struct {
	Verdict scenario.Verdict
	N       int
}

// counts are the verdicts, the good one first. Those that nothing came to are
// left out, but for that one.
func counts(r *scenario.Report) []count {
	var list []count
	for _, v := range []scenario.Verdict{scenario.Reproduced, scenario.NotReproduced, scenario.NotRun} {
		c := count{Verdict: v}
		for _, e := range r.Experiments {
			if e.Verdict == v {
				c.N++
			}
		}
		if c.N > 0 || v == scenario.Reproduced {
			list = append(list, c)
		}
	}
	return list
}

// mark is a verdict as a sign, for those who see no colours.
func mark(v scenario.Verdict) string {
	switch v {
	case scenario.Reproduced:
		return "✓"
	case scenario.NotReproduced:
		return "✗"
	default:
		return "–"
	}
}

// facts say where and on what a run was made.
func facts(r *scenario.Report) []fact {
	m := r.Machine
	list := make([]fact, 0, 8+len(r.Servers))
	for _, f := range []fact{
		{"Started", r.Start.UTC().Format("2006-01-02 15:04:05 UTC")},
		{"Took", Seconds(r.Seconds)},
		{"Commit", commit(m.Commit)},
		{"Go", strings.TrimPrefix(m.Go, "go")},
		{"Processor", fmt.Sprintf("%s, %s", m.CPU, Plural(m.Processors, "processor", "processors"))},
		{"Memory", m.Memory},
		{"System", m.OS},
		{"Load before", m.Load},
	} {
		if f.Value != "" {
			list = append(list, f)
		}
	}
	for _, backend := range slices.Sorted(maps.Keys(r.Servers)) {
		info := r.Servers[backend]
		list = append(list, fact{called(backend), fmt.Sprintf("%s (%s)", info, info.Started)})
	}
	return list
}

// commit is short, but for what is said beside it.
func commit(full string) string {
	id, rest, _ := strings.Cut(full, " ")
	if len(id) > 12 {
		id = id[:12]
	}
	return strings.TrimSpace(id + " " + rest)
}

// called is a backend as its makers write it.
func called(backend string) string {
	switch backend {
	case "zookeeper":
		return "ZooKeeper"
	case "etcd", "":
		return backend
	default:
		return strings.ToUpper(backend[:1]) + backend[1:]
	}
}

// figures are the numbers of a finding by name.
func figures(numbers map[string]float64) []fact {
	list := make([]fact, 0, len(numbers))
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		label, value := Figure(name, numbers[name])
		list = append(list, fact{label, value})
	}
	return list
}

// state says in words whether a part came out.
func state(p scenario.PartResult) string {
	switch {
	case p.NotRun != "":
		return "not run"
	case p.Finding.Holds:
		return "as expected"
	default:
		return "not as expected"
	}
}

// kind says whether a part shows the failure or what helps.
func kind(p scenario.PartResult) string {
	if p.Remedy {
		return "remedy"
	}
	return "failure"
}

// command runs an experiment again.
func command(name string) string { return "stocklab lab run " + name }
