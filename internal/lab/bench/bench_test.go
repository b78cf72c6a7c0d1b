package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// counting measures 1, 2, 3, … times a factor.
func counting(factor float64) func(context.Context, time.Duration) (Sample, error) {
	n := 0.0
	return func(context.Context, time.Duration) (Sample, error) {
		n++
		return Sample{Value: n * factor, P50: 1, P99: n}, nil
	}
}

func failing(err error) func(context.Context, time.Duration) (Sample, error) {
	return func(context.Context, time.Duration) (Sample, error) { return Sample{}, err }
}

// quickly is a pace without waiting.
func quickly() *Pace { return newPace(time.Millisecond, time.Time{}, 1) }

func TestRatiosAreOfTheSameRound(t *testing.T) {
	suite := Suite{
		Rounds: 4, Pace: quickly(),
		Subjects: []Subject{{Name: "fast", AtMost: 11, Measure: counting(3)}, {Name: "slow", AtMost: 8, Measure: counting(2)}, {Name: "once", Rounds: 1, Measure: counting(6)}},
		Ratios: []Ratio{
			{Name: "reached", Of: "fast", By: "slow", AtLeast: 1.5},
			{Name: "missed", Of: "slow", By: "fast", AtLeast: 0.7},
			{Name: "of one round", Of: "once", By: "fast", AtLeast: 2},
			{Name: "of what is not there", Of: "fast", By: "nothing", AtLeast: 1},
			{Name: "tail", Of: "slow", Below: 2.5},
		},
	}
	r := must.Get(suite.Run(t.Context()))(t)
	if f := r.Subjects[0]; f.Median != 7.5 || f.Min != 3 || f.Max != 12 || f.Aim != "at most 11" || f.Reached {
		t.Errorf("the subject is %+v, want a median of 7.5 from 3 to 12, above its limit", f)
	}
	if f := r.Subjects[1]; f.Max != 8 || f.Aim != "at most 8" || !f.Reached {
		t.Errorf("the subject is %+v, want it at its limit", f)
	}
	should.Be(t, r.Subjects[2].Aim, "", "the limit of a subject without one")
	want := []struct {
		name    string
		median  float64
		rounds  int
		reached bool
	}{{"reached", 1.5, 4, true}, {"missed", 2.0 / 3, 4, false}, {"of one round", 2, 1, true}, {"tail", 2.5, 4, false}}
	if len(r.Ratios) != len(want) {
		t.Fatalf("there are %d ratios, want %d: %+v", len(r.Ratios), len(want), r.Ratios)
	}
	for i, w := range want {
		if f := r.Ratios[i]; f.Name != w.name || f.Median != w.median || len(f.Samples) != w.rounds || f.Reached != w.reached {
			t.Errorf("the ratio is %+v, want %+v", f, w)
		}
	}
	var table bytes.Buffer
	must.Do(t, r.Table(&table))
	should.Contain(t, table.String(), "not reached")
}

func TestAMeasurementThatFailsEndsTheRunWithWhatThereIs(t *testing.T) {
	broken := errors.New("broken")
	suite := Suite{Rounds: 1, Pace: quickly(), Subjects: []Subject{
		{Name: "whole", Measure: counting(1)}, {Name: "sql-broken", Measure: failing(broken)}, {Name: "after", Measure: counting(1)},
	}}
	r, err := suite.Run(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "sql-broken") {
		t.Errorf("%v, want %v of sql-broken", err, broken)
	}
	if len(r.Subjects) != 1 || r.Subjects[0].Name != "whole" {
		t.Errorf("the result has %+v, want what was measured before", r.Subjects)
	}
}

func TestWhatCannotBeMeasuredIsSaid(t *testing.T) {
	suite := Suite{Rounds: 2, Pace: quickly(), Subjects: []Subject{
		{Name: "elsewhere", Measure: failing(fmt.Errorf("%w: no such program", errNotMeasured))}, {Name: "here", Measure: counting(1)},
	}}
	r, err := suite.Run(t.Context())
	if err != nil || len(r.Subjects) != 1 || r.Subjects[0].Name != "here" || len(r.Subjects[0].Samples) != 2 {
		t.Errorf("%+v, %v; want both rounds of what is here", r.Subjects, err)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "elsewhere: not measured: no such program") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

// steps counts what a run says of each of its measurements.
type steps []string

func (*steps) Say(string)                           {}
func (*steps) Begin(int)                            {}
func (s *steps) Step(words string, _ time.Duration) { *s = append(*s, words) }
func (*steps) End()                                 {}

// However much of the time its measurements waste, a suite ends about when it is
// to end, and every subject is measured at least once.
func TestASuiteKeepsToItsTime(t *testing.T) {
	wasteful := func(_ context.Context, each time.Duration) (Sample, error) {
		time.Sleep(each/10 + 20*time.Millisecond) // the beginning and the end of it
		return Sample{Value: 1}, nil
	}
	for _, within := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began, said := time.Now(), new(steps)
			suite := Suite{
				Rounds: 1000, Pace: newPace(0, began.Add(within), 2000), Progress: said,
				Subjects: []Subject{{Name: "a", Measure: wasteful}, {Name: "b", Measure: wasteful}},
			}
			r, err := suite.Run(t.Context())
			if took := time.Since(began); err != nil || took > within+time.Second || len(r.Subjects) != 2 || len(r.Notes) != 1 || len(*said) != 2000 {
				t.Errorf("of %s it took %s (%v) with %d subjects, %d steps and notes %q", within, took, err, len(r.Subjects), len(*said), r.Notes)
			}
		})
	}
}

// The measurements that are still to come share all the time that is left: what cannot be
// measured takes none of it.
func TestASuiteUsesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const within = 8 * time.Second
		punctual := func(_ context.Context, each time.Duration) (Sample, error) {
			time.Sleep(each)
			return Sample{Value: 1}, nil
		}
		began, said := time.Now(), new(steps)
		suite := Suite{Rounds: 4, Pace: newPace(0, began.Add(within), 9), Progress: said, Subjects: []Subject{
			{Name: "elsewhere", Measure: failing(errNotMeasured)}, {Name: "each", Unit: "/s", Measure: punctual}, {Name: "once", Rounds: 1, Measure: punctual},
		}}
		r, err := suite.Run(t.Context())
		if took := time.Since(began); err != nil || took < within-time.Second || took > within || len(r.Subjects[0].Samples) != 4 {
			t.Errorf("of %s it took %s (%v) for %+v", within, took, err, r.Subjects)
		}
		want := steps{"elsewhere: not measured", "each: 1/s", "once: 1", "elsewhere: not measured", "each: 1/s", "elsewhere: not measured", "each: 1/s", "elsewhere: not measured", "each: 1/s"}
		should.Equal(t, *said, want, "what is said")
	})
}

// A figure has the median of each column by itself, and what was measured.
func TestAFigureHasTheMediansOfItsSamples(t *testing.T) {
	samples := make([]*Sample, 0, 3)
	for _, n := range []float64{3, 1, 2} {
		samples = append(samples, &Sample{Value: n, Busy: -n, P50: 10 * n, P90: -20 * n, P95: 30 * n, P99: 40 * n, Fastest: -50 * n, Slowest: 60 * n, Kilobytes: 70 * n})
	}
	got := Subject{Name: "s", Unit: "/s", Setting: Setting{Strategy: "mutex", Clients: 8}}.figure(samples)
	want := figure("s", "/s", []float64{3, 1, 2})
	want.Setting = Setting{Strategy: "mutex", Clients: 8}
	want.Median, want.Value, want.Busy, want.P50, want.P90, want.P95, want.P99, want.Fastest, want.Slowest, want.Kilobytes = 2, 2, -2, 20, -40, 60, 80, -100, 120, 140
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRedisBenchmarkIsRead(t *testing.T) {
	s, err := readCSV([]byte("WARNING: Could not fetch server CONFIG\n" +
		`"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n" +
		`"evalsha","99502.49","0.345","0.104","0.335","0.519","0.647","1.319"` + "\n"))
	if err != nil || s.Value != 99502.49 || s.P50 != 0.335 || s.P99 != 0.647 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := readCSV([]byte("Could not connect")); err == nil {
		t.Error("an error is read as figures")
	}
}

// A sample of a load has its throughput, the share of busy, the latencies and the bytes.
func TestASampleOfALoad(t *testing.T) {
	h := hdrhistogram.New(1, 1_000_000, 5)
	for ms := range int64(100) {
		_ = h.RecordValue((ms + 1) * 1000)
	}
	got := sampleOf(&load.Result{Sent: 100, Sold: 80, Errors: map[string]int{"busy": 20}, Elapsed: 2 * time.Second, Latency: h, Received: 4096})
	if want := (Sample{Value: 40, Busy: 0.2, P50: 50, P90: 90, P95: 95, P99: 99, Fastest: 1, Slowest: 100, Kilobytes: 2}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A cost is what was used meanwhile, divided by the sales; what idles beside them has none.
func TestTheCostsOfASale(t *testing.T) {
	before := map[string]servers.Processor{"stockd": {User: time.Second, System: time.Second}, "etcd": {User: time.Minute}}
	after := map[string]servers.Processor{
		"stockd": {User: 3 * time.Second, System: 2 * time.Second},
		"redis":  {System: 500 * time.Millisecond}, // has started since
		"etcd":   {User: time.Minute + 10*time.Millisecond},
	}
	want := Costs{"stockd": {User: 200, System: 100}, "redis": {System: 50}}
	if got := costs(before, after, 10_000); !reflect.DeepEqual(got, want) {
		t.Errorf("the costs are %v, want %v", got, want)
	}
	should.Be(t, want.sum(), 350, "all costs")
	should.Be(t, len(costs(after, after, 10_000)), 0, "costs where nothing was used")
	if got := costs(before, after, 0); got != nil {
		t.Errorf("without a sale the costs are %v", got)
	}
}

// The processor time since the servers were started is not that of a sale.
func TestWithoutBothLooksASaleHasNoCosts(t *testing.T) {
	used := map[string]servers.Processor{"stockd": {User: time.Minute}}
	for name, got := range map[string]Costs{"before": costs(nil, used, 1), "after": costs(used, nil, 1)} {
		if got != nil {
			t.Errorf("where nothing is known of what was used %s, the costs are %v", name, got)
		}
	}
}

// A round in which nothing was sold, or nothing is known of the costs, does not make sales cheaper.
func TestTheMedianCostIsOfTheRoundsThatHaveOne(t *testing.T) {
	dear := &Sample{Costs: Costs{"stockd": {User: 80}}}
	if got := medians([]*Sample{{}, dear, {}}); !reflect.DeepEqual(got, dear.Costs) {
		t.Errorf("the medians are %v, want %v", got, dear.Costs)
	}
}

// costly costs 1, 2, 3, … times a factor; in every other round it also costs something elsewhere.
func costly(factor float64) func(context.Context, time.Duration) (Sample, error) {
	n := 0.0
	return func(context.Context, time.Duration) (Sample, error) {
		n++
		c := Costs{"stockd": {User: n * factor}}
		if int(n)%2 == 0 {
			c["redis"] = Cost{System: factor}
		}
		return Sample{Value: 1, Costs: c}, nil
	}
}

func TestCostsAreComparedInTheSameRound(t *testing.T) {
	suite := Suite{
		Rounds: 3, Pace: quickly(),
		Subjects: []Subject{{Name: "sale", Measure: costly(30)}, {Name: "HTTP", Measure: costly(10)}, {Name: "without", Measure: counting(1)}},
		Ratios: []Ratio{
			{Name: "reached", Of: "sale", By: "HTTP", Cost: true, Below: 3.1},
			{Name: "missed", Of: "sale", By: "HTTP", Cost: true, Below: 3},
			{Name: "not known of one", Of: "sale", By: "without", Cost: true, Below: 3},
			{Name: "not known of the other", Of: "without", By: "sale", Cost: true, Below: 3},
		},
	}
	r, err := suite.Run(t.Context())
	if err != nil || len(r.Ratios) != 2 || r.Ratios[0].Median != 3 || !r.Ratios[0].Reached || r.Ratios[1].Reached {
		t.Fatalf("%+v, %v; want two ratios of 3", r.Ratios, err)
	}
	if got, want := r.Subjects[0].Costs, (Costs{"stockd": {User: 60}, "redis": {}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the medians are %v, want %v", got, want)
	}
	if r.Subjects[2].Costs != nil {
		t.Errorf("what has no costs has %v", r.Subjects[2].Costs)
	}
}
