package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
)

// described are the strategies as a replica that has every server describes them.
func described() []service.Description {
	all := strategy.Registry()
	list := make([]service.Description, 0, len(all))
	for _, e := range all {
		list = append(list, service.Description{Name: e.Name, Family: e.Family, Guarantees: e.Guarantees, Damage: e.Damage, Enabled: true, Available: e.Name != "etcd", Note: map[bool]string{true: "it is down"}[e.Name == "etcd"]})
	}
	return list
}

func TestASettingOutOfRangeIsNamed(t *testing.T) {
	if err := defaults().check(described()); err != nil {
		t.Errorf("the defaults are rejected: %v", err)
	}
	for _, c := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.Stock = 0 }, "stock: 0 is out of range 1..1e+06"},
		{func(s *Settings) { s.Clients = 201 }, "clients: 201 is out of range 0..200"},
		{func(s *Settings) { s.Rate = -1 }, "rate: -1 is out of range"},
		{func(s *Settings) { s.Replicas = 6 }, "replicas: 6 is out of range 1..5"},
		{func(s *Settings) { s.WorkMillis = -1 }, "work_ms: -1 is out of range"},
		{func(s *Settings) { s.TTLSeconds = 0.5 }, "ttl_s: 0.5 is out of range 1..60"},
		{func(s *Settings) { s.Strategy = "hope" }, `"hope" is not a strategy`},
		{func(s *Settings) { s.Strategy = "etcd" }, "etcd is not available: it is down"},
		{func(s *Settings) { s.Fence = true }, "naive has no lock"},
	} {
		s := defaults()
		c.change(&s)
		if err := s.check(described()); !errors.Is(err, errInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want …%s…", s, err, c.want)
		}
	}
}

func TestASaleInTwoModesIsOneResult(t *testing.T) {
	r := &run{}
	latency := func() *hdrhistogram.Histogram {
		h := newMeter().latency
		_ = h.RecordValues(1000, 2)
		return h
	}
	leg := func(sold, rejected, busy int) *load.Result {
		return &load.Result{Sent: sold + rejected + busy, Sold: sold, Rejected: rejected, Errors: map[string]int{"busy": busy}, Elapsed: time.Second, Latency: latency(), SaleLatency: latency()}
	}
	r.add(leg(5, 1, 2), nil)
	r.add(leg(7, 3, 4), nil)
	got := r.result
	if got.Sent != 22 || got.Sold != 12 || got.Rejected != 4 || got.Errors["busy"] != 6 || got.Elapsed != 2*time.Second || got.Latency.TotalCount() != 4 {
		t.Errorf("it is %+v with %d latencies", got, got.Latency.TotalCount())
	}
}

// What is advised is another sale than the one that was made, and one that can be made.
func TestTheAdviceLeadsOn(t *testing.T) {
	for _, c := range []struct {
		mode     Mode
		replicas int
		clean    bool
		want     Advice
	}{
		{Mode{Strategy: "naive"}, 3, false, Advice{"mutex", "mutex", false, 1}},
		{Mode{Strategy: "naive"}, 1, true, Advice{"luck", "naive", false, 1}},
		{Mode{Strategy: "mutex"}, 1, true, Advice{"replicas", "mutex", false, 3}},
		{Mode{Strategy: "mutex"}, 3, false, Advice{"shared", "sql-conditional", false, 3}},
		{Mode{Strategy: "redis-lua"}, 3, true, Advice{"pause", "redis-lua", false, 3}},
		{Mode{Strategy: "redis-setnx-ttl"}, 3, false, Advice{"fence", "redis-setnx-ttl", true, 3}},
		{Mode{Strategy: "sql-conditional"}, 3, true, Advice{"naive", "naive", false, 3}},
	} {
		r := &run{modes: []Mode{c.mode}, settings: Settings{Replicas: c.replicas}}
		v := &Verdict{Run: verdict.Run{Clean: c.clean}}
		for _, d := range described() {
			if d.Name == c.mode.Strategy {
				v.ExpectedClean = d.Guarantees.Exclusive(c.replicas)
			}
		}
		if got := r.advice(v, described()); got != c.want {
			t.Errorf("after %s on %d, clean %v: %+v, want %+v", c.mode, c.replicas, c.clean, got, c.want)
		}
	}
}

func TestAnswersAreCountedByWhatTheyMean(t *testing.T) {
	m := newMeter()
	start := time.Now()
	for i, a := range []load.Answer{
		{Kind: load.Sold}, {Kind: load.Sold}, {Kind: load.Rejected}, {Kind: load.Failed, Problem: "busy"}, {Kind: load.Failed, Problem: "http-503"}, {Kind: load.Unknown},
	} {
		a.Start, a.End = start, start.Add(time.Duration(i+1)*time.Millisecond)
		m.observe(a)
	}
	p := m.read(m.since.Add(2 * time.Second))
	if p.Answers != (Answers{Sold: 2, Rejected: 1, Busy: 1, Failed: 1, Unknown: 1}) || p.Seconds != 2 || p.P50 < 2.9 || p.P50 > 3.1 || p.P99 < 5.9 || p.P99 > 6.1 {
		t.Errorf("the point is %+v", p)
	}
	if p := m.read(time.Now()); p.Answers != (Answers{}) || p.P99 != 0 {
		t.Errorf("the next point has the answers of the first: %+v", p)
	}
}
