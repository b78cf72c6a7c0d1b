package bench

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

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
	if got := want.sum(); got != 350 {
		t.Errorf("they are %v in all, want 350", got)
	}
	if got := costs(after, after, 10_000); len(got) != 0 {
		t.Errorf("where nothing was used the costs are %v", got)
	}
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
