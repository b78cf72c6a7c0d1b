// Package bench measures how far stockd is from its limits. It compares subjects that
// were measured in turns in the same run: on a shared machine other figures are not
// comparable.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Subject is something whose rate is measured.
type Subject struct {
	Name string
	Setting
	// Unit is of the value; "/s" for a rate.
	Unit string
	// Rounds bounds how often it is measured; 0: in every round.
	Rounds int
	// AtMost bounds the value of every round; 0: no target.
	AtMost float64
	// Measure takes about as long as each.
	Measure func(ctx context.Context, each time.Duration) (Sample, error)
}

// in tells whether the subject is measured in a round; the first is 0.
func (s Subject) in(round int) bool { return s.Rounds == 0 || round < s.Rounds }

// Sample is one measurement. What is no load has only a value.
type Sample struct {
	Value float64 `json:"-"`
	// Busy is the share of the requests that were rejected for load, 0 to 1, P50 to Slowest the latency of all of
	// them, Kilobytes those of their answers, in 1,024 bytes a second.
	Busy      float64 `json:"busy,omitempty"`
	P50       float64 `json:"p50_ms,omitempty"`
	P90       float64 `json:"p90_ms,omitempty"`
	P95       float64 `json:"p95_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Fastest   float64 `json:"min_ms,omitempty"`
	Slowest   float64 `json:"max_ms,omitempty"`
	Kilobytes float64 `json:"kb_per_second,omitempty"`
	// Costs are the processor time of a sale in each program, in µs; nil where it is not known.
	Costs Costs `json:"processor_us,omitempty"`
}

func (s *Sample) columns() []*float64 {
	return []*float64{&s.Value, &s.Busy, &s.P50, &s.P90, &s.P95, &s.P99, &s.Fastest, &s.Slowest, &s.Kilobytes}
}

// medianOf has the median of each column of at least one sample, each by itself.
func medianOf(samples []*Sample) (m Sample) {
	for i, column := range m.columns() {
		values := make([]float64, len(samples))
		for j, s := range samples {
			values[j] = *s.columns()[i]
		}
		*column = Median(values)
	}
	m.Costs = medians(samples)
	return m
}

// errNotMeasured tells that a subject cannot be measured here: the run goes on.
var errNotMeasured = errors.New("not measured")

// Ratio compares two subjects round by round, where both were measured.
type Ratio struct {
	Name string
	// Topic groups ratios with one target.
	Topic string
	// Of is divided by By; both are names of subjects. Without By, it is the p99
	// of Of over its p50.
	Of, By string
	// Cost compares the processor time of a sale instead of the rates.
	Cost bool
	// AtLeast or, where it is 0, Below is the target.
	AtLeast, Below float64
}

// of is the ratio of one round, and whether there is one.
func (r Ratio) of(samples map[string][]*Sample, round int) (value float64, ok bool) {
	at := func(name string) *Sample {
		if round < len(samples[name]) {
			return samples[name][round]
		}
		return nil
	}
	of, by := at(r.Of), at(r.By)
	switch {
	case r.By == "" && of != nil && of.P50 > 0:
		return of.P99 / of.P50, true
	case r.Cost && (of == nil || by == nil || of.Costs == nil || by.Costs.sum() == 0):
		return 0, false
	case r.Cost:
		return of.Costs.sum() / by.Costs.sum(), true
	case of != nil && by != nil && by.Value > 0:
		return of.Value / by.Value, true
	default:
		return 0, false
	}
}

func (r Ratio) figure(samples []float64) Figure {
	f := figure(r.Name, "", samples)
	f.Topic = r.Topic
	if r.AtLeast > 0 {
		f.Aim, f.Reached = fmt.Sprintf("at least %g", r.AtLeast), f.Median >= r.AtLeast
	} else {
		f.Aim, f.Reached = fmt.Sprintf("below %g", r.Below), f.Median < r.Below
	}
	return f
}

// Suite is what is measured in one run.
type Suite struct {
	Subjects []Subject
	Ratios   []Ratio
	Rounds   int
	// Pace says how long each measurement may take.
	Pace *Pace
	// Progress may be nil.
	Progress Progress
}

// Progress is notified of the progress of a run.
type Progress interface {
	// Say announces an operation that takes a moment.
	Say(words string)
	// Begin is called once, before the first of so many measurements.
	Begin(measurements int)
	// Step is called after each with what it came to, and the time that is left for
	// all that are to come.
	Step(words string, left time.Duration)
	// End is called once, after all other calls.
	End()
}

func (s Suite) measurements(rounds int) (n int) {
	for _, subject := range s.Subjects {
		n += min(rounds, cmp.Or(subject.Rounds, rounds))
	}
	return n
}

// Run measures every subject once a round, for as long as the pace allows. The
// result has what was measured, also with an error.
func (s Suite) Run(ctx context.Context) (*Result, error) {
	samples := make(map[string][]*Sample)
	skipped := make(map[string]error)
	dropped := 0
	var err error
	for round := range s.Rounds {
		for _, subject := range s.Subjects {
			switch {
			case err != nil || !subject.in(round):
			case skipped[subject.Name] != nil:
				s.step(subject.Name + ": not measured")
			case s.Pace.late() && round > 0:
				dropped++
				s.step(subject.Name + ": left out")
			default:
				if err = s.measure(ctx, subject, round, samples); errors.Is(err, errNotMeasured) {
					skipped[subject.Name], err = err, nil
					s.step(subject.Name + ": not measured")
				}
			}
		}
	}
	result := s.result(samples)
	for _, subject := range s.Subjects {
		if skipped[subject.Name] != nil {
			result.Notes = append(result.Notes, skipped[subject.Name].Error())
		}
	}
	if dropped > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d measurements of later rounds were left out for lack of time", dropped))
	}
	return result, err
}

func (s Suite) measure(ctx context.Context, subject Subject, round int, samples map[string][]*Sample) error {
	began, each := time.Now(), s.Pace.next()
	sample, err := subject.Measure(ctx, each)
	s.Pace.took(time.Since(began), each)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, errNotMeasured):
		return fmt.Errorf("%s: %w", subject.Name, err)
	case err != nil:
		return fmt.Errorf("measure %s: %w", subject.Name, err)
	}
	for len(samples[subject.Name]) <= round {
		samples[subject.Name] = append(samples[subject.Name], nil)
	}
	samples[subject.Name][round] = &sample
	s.step(fmt.Sprintf("%s: %.0f%s", subject.Name, sample.Value, subject.Unit))
	return nil
}

// step counts a measurement as done.
func (s Suite) step(words string) {
	if s.Pace.left--; s.Progress != nil {
		s.Progress.Step(words, s.Pace.remaining())
	}
}

func (s Suite) result(samples map[string][]*Sample) *Result {
	r := &Result{}
	for _, subject := range s.Subjects {
		measured := slices.DeleteFunc(slices.Clone(samples[subject.Name]), func(s *Sample) bool { return s == nil })
		if len(measured) > 0 {
			r.Subjects = append(r.Subjects, subject.figure(measured))
		}
	}
	for _, ratio := range s.Ratios {
		var each []float64
		for round := range s.Rounds {
			if value, ok := ratio.of(samples, round); ok {
				each = append(each, value)
			}
		}
		if len(each) > 0 {
			r.Ratios = append(r.Ratios, ratio.figure(each))
		}
	}
	return r
}

func (subject Subject) figure(samples []*Sample) Figure {
	values := make([]float64, len(samples))
	for i, sample := range samples {
		values[i] = sample.Value
	}
	f := figure(subject.Name, subject.Unit, values)
	f.Setting, f.Sample = subject.Setting, medianOf(samples)
	if subject.AtMost > 0 {
		f.Aim, f.Reached = fmt.Sprintf("at most %g", subject.AtMost), f.Max <= subject.AtMost
	}
	return f
}

// Pace shares the time of a run out among the measurements that are left. They have a
// beginning and an end of their own, which it learns.
type Pace struct {
	each     time.Duration // of every measurement; 0: as long as there is time until end for all that are left
	end      time.Time
	left     int
	overhead time.Duration
}

// The shortest and the longest measurement that is planned.
const (
	shortest = 250 * time.Millisecond
	longest  = 4 * time.Second
)

func newPace(each time.Duration, end time.Time, measurements int) *Pace {
	return &Pace{each: each, end: end, left: measurements, overhead: 300 * time.Millisecond}
}

// remaining is the time until the end, or 0.
func (p *Pace) remaining() time.Duration { return max(0, time.Until(p.end)) }

// next is how long the next measurement is to take.
func (p *Pace) next() time.Duration {
	if p.each > 0 {
		return p.each
	}
	share := p.remaining() / time.Duration(max(1, p.left))
	return min(max(share-p.overhead, shortest), longest)
}

// took learns from the duration of a measurement that was to take each.
func (p *Pace) took(all, each time.Duration) {
	const weight = 16 // of what was known before
	p.overhead += (max(0, all-each) - p.overhead) / weight
}

func (p *Pace) late() bool { return p.each == 0 && p.remaining() == 0 }
