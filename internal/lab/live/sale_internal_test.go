package live

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
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
	should.Fail(t, defaults().check(described()), nil, "the defaults are rejected")
	for _, c := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.Stock = 0 }, "stock: 0 is out of range 1..1000000"},
		{func(s *Settings) { s.Clients = 201 }, "clients: 201 is out of range 0..200"},
		{func(s *Settings) { s.Rate = -1 }, "rate: -1 is out of range"},
		{func(s *Settings) { s.Replicas = 6 }, "replicas: 6 is out of range 1..5"},
		{func(s *Settings) { s.WorkMillis = -1 }, "work_ms: -1 is out of range"},
		{func(s *Settings) { s.TTLSeconds = 0.5 }, "ttl_s: 0.5 is out of range 1..60"},
		{func(s *Settings) { s.Room = 1001 }, "room: 1001 is out of range 0..1000"},
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

func TestReplicasWithoutAFailpointAtAStrategyDoNoWorkThere(t *testing.T) {
	for name, want := range map[string]bool{"redis-stock": true, "sql-procedure": true, "naive": false} {
		s := defaults()
		s.Strategy, s.WorkMillis = name, 5
		should.Be(t, errors.Is(new(stage).check(s), errInput), want, "… with work", name)
		s.WorkMillis = 0
		should.Fail(t, new(stage).check(s), nil, "… without work", name)
	}
}

// The time of a sale is over while it is paused.
func TestASaleThatStaysPausedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Session{hub: newHub(), ground: &stage{}, sampler: &sampler{}, sale: Sale{Phase: Selling}}
		ctx, cancel := context.WithCancel(t.Context())
		s.run = &run{ctx: ctx, cancel: cancel, until: time.Now().Add(longest), endLeg: func() {}}
		must.Do(t, s.Pause())
		time.Sleep(longest - time.Second)
		should.Be(t, s.phase(), Halted, "before its time is over it is")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		should.Be(t, s.phase(), Ended, "when its time is over it is")
		should.Fail(t, s.Stop(), nil, "a stop that comes too late ends with")
		should.Be(t, s.phase(), Ended, "after a stop that comes too late it is")
		s.jobs.Wait()
	})
}

// An open loop may be behind its rate: what was due and is not sent when the time is over is not sent any more.
func TestASaleThatHasFallenBehindEndsInTime(t *testing.T) {
	const lasts, each = 200 * time.Millisecond, 50 * time.Millisecond
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(each)
		_, _ = w.Write([]byte(`{"order_id": "1", "replica": "r"}`)) // else nothing is sold
	}))
	defer shop.Close()
	r := &run{ctx: t.Context(), url: shop.URL, until: time.Now().Add(lasts), meter: newMeter(), settings: Settings{Clients: 1, Rate: 1000}}
	over := false
	r.leg(Mode{Strategy: "naive"}, func() { over = true })
	r.legs.Wait()
	if most := int(lasts/each) + 1; r.failed != nil || !over || r.result.Sent > most {
		t.Errorf("over: %t, with %d requests sent, %v; want its end after %d at most", over, r.result.Sent, r.failed, most)
	}
}

func (s *Session) phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sale.Phase
}

func TestASaleInTwoModesIsOneResult(t *testing.T) {
	r := &run{}
	latency := func() *hdrhistogram.Histogram {
		h := newMeter().latency
		_ = h.RecordValues(1000, 2)
		return h
	}
	leg := func(sold, rejected, busy int) *load.Result {
		return &load.Result{
			Sent: sold + rejected + busy + 1, Sold: sold, Rejected: rejected, Unknown: 1, Duplicates: 2, Received: 3, Errors: map[string]int{"busy": busy},
			Elapsed: time.Second, Latency: latency(), SaleLatency: latency(),
		}
	}
	r.add(leg(5, 1, 2), nil)
	r.add(leg(7, 3, 4), nil)
	got := r.result
	if got.Unknown != 2 || got.Duplicates != 4 || got.Received != 6 {
		t.Errorf("%d unknown, %d duplicates, %d bytes; want those of both", got.Unknown, got.Duplicates, got.Received)
	}
	if got.Sent != 24 || got.Sold != 12 || got.Rejected != 4 || got.Errors["busy"] != 6 || got.Elapsed != 2*time.Second || got.Latency.TotalCount() != 4 {
		t.Errorf("it is %+v with %d latencies", got, got.Latency.TotalCount())
	}
}

// audited is a ground whose item has an audit.
type audited struct {
	ground

	url string
}

func (g audited) client() (shop.Client, error) {
	return shop.Client{URL: g.url + "/balancer", AdminURL: g.url}, nil
}

// Each row is a sale of ten units, by its answers and its audit.
func TestASaleIsJudgedByItsModesAndItsAudit(t *testing.T) {
	safe, grouped, naive := Mode{Strategy: "sql-conditional"}, Mode{Strategy: "sql-conditional", Group: true}, Mode{Strategy: "naive"}
	for name, c := range map[string]struct {
		modes                   []Mode
		sold, unknown, internal int
		faults                  bool
		audit                   stock.Audit
		strategy, words, remark string
	}{
		"sold out":                {[]Mode{grouped}, 10, 0, 0, false, stock.NewAudit(7, 0, 10, 10, 10), "sql-conditional", "consistent", ""},
		"oversold":                {[]Mode{safe}, 11, 0, 0, false, stock.NewAudit(7, 0, 10, 11, 11), "sql-conditional", "oversold by 1, 1 updates lost — not expected", "not expected: guarantees consistency"},
		"oversold by naive":       {[]Mode{naive}, 11, 0, 0, false, stock.NewAudit(7, 0, 10, 11, 11), "naive", "oversold by 1, 1 updates lost — expected", ""},
		"oversold by the first":   {[]Mode{naive, safe}, 11, 0, 0, false, stock.NewAudit(7, 0, 10, 11, 11), "naive, then sql-conditional", "oversold by 1, 1 updates lost — expected", ""},
		"oversold by the second":  {[]Mode{grouped, naive}, 11, 0, 0, false, stock.NewAudit(7, 0, 10, 11, 11), "sql-conditional, grouped, then naive", "oversold by 1, 1 updates lost — expected", ""},
		"a sale without a row":    {[]Mode{safe}, 10, 0, 0, false, stock.NewAudit(7, 1, 10, 9, 9), "sql-conditional", "1 rejected with stock left — not expected", "not expected: the ledger has 9 sales"},
		"an answer that was lost": {[]Mode{safe}, 9, 1, 0, true, stock.NewAudit(7, 0, 10, 10, 10), "sql-conditional", "consistent", ""},
		"a failure":               {[]Mode{safe}, 10, 0, 1, false, stock.NewAudit(7, 0, 10, 10, 10), "sql-conditional", "consistent — not expected", "not expected: requests failed: 1 internal"},
		"a failure under a fault": {[]Mode{safe}, 10, 0, 1, true, stock.NewAudit(7, 0, 10, 10, 10), "sql-conditional", "consistent", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			none := int64(0)
			if r.URL.Path == "/goods/7/audit" {
				_ = json.NewEncoder(w).Encode(service.Audit{Audit: c.audit, Pending: &none}) // else nothing is judged
			}
		}))
		result := &load.Result{Sent: c.sold + 1 + c.unknown + c.internal, Sold: c.sold, Rejected: 1, Unknown: c.unknown, Errors: map[string]int{}, Elapsed: time.Second, Latency: newMeter().latency}
		if c.internal > 0 {
			result.Errors["internal"] = c.internal
		}
		r := &run{item: 7, settings: Settings{Replicas: 3, Clients: 4}, modes: c.modes, result: result}
		r.faults.Store(c.faults)
		v, err := r.judge(t.Context(), audited{url: server.URL}, described())
		server.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v.Strategy != c.strategy || v.Words != c.words || !strings.HasPrefix(v.Remark, c.remark) || v.Remark != "" && c.remark == "" || v.Faults != c.faults || v.Errors != c.internal || v.ErrorTypes["internal"] != c.internal {
			t.Errorf("%s: %s is %q (%q), faults %t, failed %d %v; want %s, %q (%q…), %t, %d", name, v.Strategy, v.Words, v.Remark, v.Faults, v.Errors, v.ErrorTypes, c.strategy, c.words, c.remark, c.faults, c.internal)
		}
		if v.Group != (len(c.modes) == 1 && c.modes[0].Group) || v.Replicas != 3 || v.Clients != 4 {
			t.Errorf("%s: grouped %t on %d replicas with %d clients", name, v.Group, v.Replicas, v.Clients)
		}
	}
	broken := errors.New("broken")
	for want, r := range map[string]*run{
		"broken":                    {failed: broken, modes: []Mode{safe}},
		"audit: ":                   {modes: []Mode{safe}},
		`"hope" is not a strategy;`: {modes: []Mode{{Strategy: "hope"}}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if want == "audit: " {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write([]byte(`{"pending": 0}`)) // else it is an error as well
		}))
		if v, err := r.judge(t.Context(), audited{url: server.URL}, described()); v != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v, %v; want %s", v, err, want)
		}
		server.Close()
	}
}

// What is advised is another sale than the one that was made, and one that can be made; it has every setting.
func TestTheAdviceLeadsOn(t *testing.T) {
	for _, c := range []struct {
		mode     Mode
		replicas int
		clean    bool
		why      string
		want     func(*Settings)
	}{
		{Mode{Strategy: "naive"}, 3, false, "mutex", func(s *Settings) { s.Strategy, s.Replicas = "mutex", 1 }},
		{Mode{Strategy: "naive"}, 1, true, "luck", func(s *Settings) { s.Clients, s.WorkMillis = 100, 5 }},
		{Mode{Strategy: "mutex"}, 1, true, "replicas", func(s *Settings) { s.Replicas = 3 }},
		{Mode{Strategy: "mutex"}, 3, false, "shared", func(s *Settings) { s.Strategy = "sql-conditional" }},
		{Mode{Strategy: "redis-lua"}, 3, true, "pause", func(s *Settings) { s.TTLSeconds, s.WorkMillis, s.Stock = 1, 10, 2000 }},
		{Mode{Strategy: "redis-lua", Group: true}, 3, true, "pause", func(s *Settings) { s.TTLSeconds, s.WorkMillis, s.Stock = 1, 10, 100_000 }},
		{Mode{Strategy: "redis-setnx-ttl"}, 3, false, "fence", func(s *Settings) { s.Fence = true }},
		{Mode{Strategy: "sql-conditional"}, 3, true, "naive", func(s *Settings) { s.Strategy = "naive" }},
	} {
		made := defaults()
		made.Mode, made.Replicas = c.mode, c.replicas
		r := &run{modes: []Mode{c.mode}, settings: made}
		v := &Verdict{Run: verdict.Run{Clean: c.clean}}
		for _, d := range described() {
			if d.Name == c.mode.Strategy {
				v.ExpectedClean = d.Guarantees.Exclusive(c.replicas)
			}
		}
		want := Advice{Why: c.why, Settings: made}
		c.want(&want.Settings)
		if got := r.advice(v, described()); got != want || want.check(described()) != nil {
			t.Errorf("after %s on %d, clean %v: %+v, want %+v", c.mode, c.replicas, c.clean, got, want)
		}
	}
}

// Only two holders after a fault or of work beyond the TTL, where no token is checked, are what such a lock is known for.
func TestALockFailsAsItIsKnownTo(t *testing.T) {
	for name, c := range map[string]struct {
		fault, fence   bool
		work, overlaps int
		orders         int64
		want           bool
	}{
		"two holders after a fault":     {true, false, 0, 1, 11, true},
		"two holders, and long work":    {false, false, 1000, 1, 11, true},
		"two holders, and neither":      {false, false, 999, 1, 11, false},
		"one holder":                    {true, false, 1000, 0, 11, false},
		"its token is checked":          {true, true, 1000, 1, 11, false},
		"its ledger contradicts buyers": {true, false, 1000, 1, 12, false},
	} {
		r := &run{modes: []Mode{{Strategy: "redis-lua", Fence: c.fence}}, settings: Settings{WorkMillis: c.work, TTLSeconds: 1}}
		r.faults.Store(c.fault)
		var v Verdict
		v.Run = verdict.Run{ExpectedClean: true, Oversold: 1, Sold: c.orders, Orders: c.orders, Answered: 11}
		v.Judge()
		if v.excuse(c.overlaps, r.losesLock(described())); v.Known != c.want {
			t.Errorf("%s: known is %t", name, v.Known)
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

// slowGround is a ground on which what is done to a machine takes as long as a test says.
type slowGround struct {
	ground

	begun, end chan struct{}
}

func (slowGround) check(Settings) error { return nil }

func (g slowGround) act(context.Context, string, string) error {
	g.begun <- struct{}{}
	<-g.end
	return nil
}

var errNoReplica = errors.New("no replica")

func (slowGround) prepare(context.Context, int64, Settings) error { return errNoReplica }

// A sale that began meanwhile would be judged as if nothing had been done to the machine.
func TestNoSaleBeginsWhileSomethingIsDoneToAMachine(t *testing.T) {
	g := slowGround{begun: make(chan struct{}), end: make(chan struct{})}
	s := &Session{hub: newHub(), ground: g, follow: &follower{}, sampler: &sampler{}, sale: Sale{Phase: Ended}, experiments: []experiments.Experiment{{Name: "one"}}}
	s.hub.look(func(state *State) { state.Strategies = described() })
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer s.stop()
	acted := make(chan error)
	go func() { acted <- s.Act("replica-2", Kill) }()
	<-g.begun
	for what, err := range map[string]error{"a sale": s.Start(defaults()), "an experiment": s.Play("one")} {
		if !errors.Is(err, errConflict) || !strings.Contains(err.Error(), "kill replica-2 is not done yet") {
			t.Errorf("%s begins with %v, want %v with what is not done", what, err, errConflict)
		}
	}
	g.end <- struct{}{}
	must.Do(t, <-acted)
	should.Fail(t, s.Start(defaults()), nil, "when it is done a sale begins with")
	s.jobs.Wait()
	should.Be(t, s.sale.Error, errNoReplica.Error(), "the sale ended with")
}

// A replica that is to stop in its next purchase may wait for it until the next sale, which has it go on.
func TestASaleBeginsThoughAReplicaStillStopsInItsPurchase(t *testing.T) {
	g := slowGround{begun: make(chan struct{}), end: make(chan struct{})}
	s := &Session{hub: newHub(), ground: g, sale: Sale{Phase: Ended}}
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer s.stop()
	acted := make(chan error)
	go func() { acted <- s.Act("replica-2", Trap) }()
	<-g.begun
	s.mu.Lock()
	err := s.ready()
	s.mu.Unlock()
	should.Fail(t, err, nil, "a sale begins with")
	g.end <- struct{}{}
	should.Do(t, <-acted)
}

// What does nothing to a sale is no excuse for its requests that fail.
func TestAPurchaseWithoutAFailpointIsNotPaused(t *testing.T) {
	g := slowGround{begun: make(chan struct{}, 3), end: make(chan struct{})}
	close(g.end)
	s := &Session{ctx: t.Context(), hub: newHub(), ground: g, sale: Sale{Phase: Selling}}
	for _, name := range withoutFailpoint() {
		s.run = &run{modes: []Mode{{Strategy: "naive"}, {Strategy: name}}}
		if err := s.Act("replica-1", Trap); !errors.Is(err, errConflict) || !strings.Contains(err.Error(), name+" has no failpoint") || !strings.Contains(err.Error(), "kill or pause") {
			t.Errorf("%s: %v, want %v with what is allowed", name, err, errConflict)
		}
		if s.run.faults.Load() {
			t.Errorf("%s: requests that fail are excused", name)
		}
	}
	s.run = &run{modes: []Mode{{Strategy: "redis-stock"}, {Strategy: "naive"}}}
	if err := s.Act("replica-1", Trap); err != nil || !s.run.faults.Load() {
		t.Errorf("after a switch to naive: %v, and requests that fail are excused: %t", err, s.run.faults.Load())
	}
}

// What has failed can be tried again, and what it would have led to cannot be done.
func TestAClockThatCouldNotBeMovedIsNotSetRight(t *testing.T) {
	t.Chdir(t.TempDir()) // a clock without a file fails there
	s := &stage{
		hub: newHub(), machines: []Machine{{Name: "redlock-1", Can: []string{Ahead}}},
		shop: &shop.Shop{Servers: &servers.Backends{Redlock: &servers.Redlock{Nodes: []*servers.Redis{{Clock: new(servers.Clock)}}}}},
	}
	should.Fail(t, s.act(t.Context(), "redlock-1", Right), errConflict, "a clock that was not moved is set right")
	for range 2 {
		if err := s.act(t.Context(), "redlock-1", Ahead); err == nil || errors.Is(err, errConflict) || !slices.Equal(s.machines[0].Can, []string{Ahead}) {
			t.Errorf("it ends with %v, and then can be done: %q", err, s.machines[0].Can)
		}
	}
}
