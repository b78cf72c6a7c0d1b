package bench

import (
	"slices"

	"github.com/stockd/stockd/internal/lab/servers"
)

// Setting is what was sold through, and by how many. What is no strategy has no
// Strategy, and what is no load no Clients.
type Setting struct {
	Strategy string `json:"strategy,omitempty"`
	Group    bool   `json:"group,omitempty"`
	Clients  int    `json:"clients,omitempty"`
	Replicas int    `json:"replicas,omitempty"`
}

// Figure is a median with its spread.
type Figure struct {
	Name string `json:"name"`
	Setting
	Unit   string  `json:"unit,omitempty"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Busy is the share of the requests that were rejected for load,
	// 0 to 1, P50 and P99 the latency of all of them; medians, too.
	Busy float64 `json:"busy,omitempty"`
	P50  float64 `json:"p50_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	// Aim is the target in words, Reached whether the median does. Topic
	// groups figures with one target.
	Aim     string    `json:"aim,omitempty"`
	Reached bool      `json:"reached"`
	Topic   string    `json:"topic,omitempty"`
	Samples []float64 `json:"samples"`
}

// Result is every figure of a run: the subjects, and then the ratios.
type Result struct {
	Machine servers.Machine `json:"machine"`
	// Servers maps a backend to what it was, Durability to what it promises.
	Servers    map[string]servers.Info `json:"servers"`
	Durability map[string]string       `json:"durability"`
	// Plan says in words how often and for how long everything was measured.
	Plan     string   `json:"plan"`
	Subjects []Figure `json:"subjects"`
	Ratios   []Figure `json:"ratios"`
	// Notes are what was not measured, and why.
	Notes []string `json:"notes,omitempty"`
}

// add takes over what another part of the run came to.
func (r *Result) add(part *Result) {
	r.Subjects = append(r.Subjects, part.Subjects...)
	r.Ratios = append(r.Ratios, part.Ratios...)
	r.Notes = append(r.Notes, part.Notes...)
}

// find is the figure of a setting, or nil.
func (r *Result) find(s Setting) *Figure {
	i := slices.IndexFunc(r.Subjects, func(f Figure) bool { return f.Setting == s })
	if i < 0 {
		return nil
	}
	return &r.Subjects[i]
}

// figure is the median of at least one sample.
func figure(name, unit string, samples []float64) Figure {
	return Figure{
		Name: name, Unit: unit, Samples: samples,
		Median: median(samples), Min: slices.Min(samples), Max: slices.Max(samples),
	}
}

func median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}
