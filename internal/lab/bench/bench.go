// Package bench measures how far stockd is from its limits. Every figure is a
// ratio between two things that were measured in turns in the same run: on a
// machine that is never quiet nothing else can be compared.
package bench

import (
	"context"
	"fmt"
	"slices"
)

// Subject is something whose rate is measured.
type Subject struct {
	Name string
	// Measure returns operations a second, or what Unit says.
	Measure func(context.Context) (float64, error)
	Unit    string
}

// Ratio compares two subjects round by round.
type Ratio struct {
	Name string
	// Of is divided by By; both are names of subjects.
	Of, By string
	// AtLeast is what is aimed at.
	AtLeast float64
}

// Limit holds a subject below a bound.
type Limit struct {
	Subject string
	AtMost  float64
}

// Suite is what is measured in one run.
type Suite struct {
	Subjects []Subject
	Ratios   []Ratio
	Limits   []Limit
	Rounds   int
	// Progress hears of each measurement; it may be nil.
	Progress func(round int, subject string, value float64, unit string)
}

// Figure is a median with its spread.
type Figure struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit,omitempty"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Aim is what is aimed at in words, Reached whether the median does.
	Aim     string    `json:"aim,omitempty"`
	Reached bool      `json:"reached"`
	Samples []float64 `json:"samples"`
}

// Result is every figure of a run: the subjects, and then the ratios.
type Result struct {
	Subjects []Figure `json:"subjects"`
	Ratios   []Figure `json:"ratios"`
}

// Run measures every subject once a round.
func (s Suite) Run(ctx context.Context) (*Result, error) {
	samples := make(map[string][]float64)
	for round := range s.Rounds {
		for _, subject := range s.Subjects {
			value, err := subject.Measure(ctx)
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", subject.Name, err)
			}
			samples[subject.Name] = append(samples[subject.Name], value)
			if s.Progress != nil {
				s.Progress(round+1, subject.Name, value, subject.Unit)
			}
		}
	}
	return s.result(samples), nil
}

func (s Suite) result(samples map[string][]float64) *Result {
	r := &Result{}
	for _, subject := range s.Subjects {
		f := figure(subject.Name, subject.Unit, samples[subject.Name])
		i := slices.IndexFunc(s.Limits, func(l Limit) bool { return l.Subject == subject.Name })
		if i >= 0 {
			f.Aim = fmt.Sprintf("at most %g", s.Limits[i].AtMost)
			f.Reached = f.Max <= s.Limits[i].AtMost
		}
		r.Subjects = append(r.Subjects, f)
	}
	for _, ratio := range s.Ratios {
		each := make([]float64, s.Rounds)
		for i := range each {
			each[i] = samples[ratio.Of][i] / samples[ratio.By][i]
		}
		f := figure(ratio.Name, "", each)
		f.Aim, f.Reached = fmt.Sprintf("at least %g", ratio.AtLeast), f.Median >= ratio.AtLeast
		r.Ratios = append(r.Ratios, f)
	}
	return r
}

func figure(name, unit string, samples []float64) Figure {
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Figure{
		Name: name, Unit: unit, Samples: samples,
		Median: median, Min: sorted[0], Max: sorted[len(sorted)-1],
	}
}
