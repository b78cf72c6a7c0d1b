package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// staged is a stage of every safe strategy, without its servers.
func staged(replicas int, o Options) *stage {
	s := &stage{bench: &bench{options: o, result: &Result{}}, replicas: replicas}
	for _, e := range strategy.Registry() {
		if !e.Guarantees.ExclusiveAcrossReplicas {
			continue
		}
		needs := make([]string, 0, len(e.Needs))
		for _, need := range e.Needs {
			needs = append(needs, string(need))
		}
		s.strategies = append(s.strategies, service.Description{Name: e.Name, Needs: needs, Guarantees: e.Guarantees})
	}
	return s
}

// What is compared is measured, in every round, and under one name; what has no target is measured once.
func TestEveryTargetIsOfWhatIsMeasuredInEachRound(t *testing.T) {
	for name, suite := range map[string]Suite{
		"one replica": staged(1, Options{}).sales(), "three replicas": staged(3, Options{}).sales(), "many items": staged(1, Options{Items: 1000}).ofItems(), "locks": staged(1, Options{}).locks(),
	} {
		rounds := make(map[string]int)
		for _, subject := range suite.Subjects {
			if _, twice := rounds[subject.Name]; twice {
				t.Errorf("%s: %s is measured twice", name, subject.Name)
			}
			rounds[subject.Name] = subject.Rounds
		}
		compared := make(map[string]bool)
		for _, r := range suite.Ratios {
			compared[r.Of], compared[r.By] = true, true
			if r.Of == r.By || (r.AtLeast > 0) == (r.Below > 0) {
				t.Errorf("%s: %s compares %s with %s, at least %g or below %g", name, r.Name, r.Of, r.By, r.AtLeast, r.Below)
			}
		}
		delete(compared, "")
		for subject := range compared {
			if n, measured := rounds[subject]; !measured || n != 0 && subject != staged(1, Options{}).name(optimistic, false, one) {
				t.Errorf("%s: %s has a target, and is measured: %v, in %d rounds", name, subject, measured, n)
			}
		}
	}
}

// What is no lock has no target of one.
func TestTheTargetsOfLocksAreOfLocks(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		for _, r := range staged(replicas, Options{}).ratios() {
			if strings.HasPrefix(r.Topic, "each lock") && (strings.Contains(r.Of, conditional+",") || strings.Contains(r.Of, inRedis+",")) {
				t.Errorf("%s has the target of %s", r.Of, r.Topic)
			}
		}
	}
}

// A subject is named by all of its setting, and sold by as many as that says.
func TestTheSubjectsOfAStage(t *testing.T) {
	for _, c := range []struct {
		how    Setting
		name   string
		rounds int
	}{
		{Setting{Strategy: "s", Clients: 1, Replicas: 1}, "s, 1 client, 1 replica", 1},
		{Setting{Strategy: "s", Group: true, Clients: 8, Replicas: 3}, "s, grouped, 8 clients, 3 replicas", 1},
		{Setting{Strategy: "s", Clients: 64, Replicas: 3}, "s, 64 clients, 3 replicas", 0},
		{Setting{Strategy: "s", Clients: 512, Replicas: 3}, "s, 512 clients, 3 replicas", 1},
		{Setting{Strategy: "s", Group: true, Clients: 512, Replicas: 3}, "s, grouped, 512 clients, 3 replicas", 0},
		{Setting{Strategy: "s", Paid: true, Group: true, Clients: 64, Replicas: 1, Items: 7, Zipf: true}, "s, reserved and paid, grouped, 64 clients, 1 replica, 7 items by Zipf", 0},
	} {
		if got := staged(1, Options{}).sale(c.how); got.Name != c.name || got.Rounds != c.rounds || got.Setting != c.how || got.Unit != "/s" {
			t.Errorf("it is %s of %+v in %s, in %d rounds; want %s in %d", got.Name, got.Setting, got.Unit, got.Rounds, c.name, c.rounds)
		}
	}
	for quick, want := range map[bool]string{true: "[64]", false: "[1 8 64 512]"} {
		should.Be(t, fmt.Sprint(Options{Quick: quick}.crowds()), want, "the crowds, quick", quick)
	}
	for want, o := range map[string]Options{"3 rounds of 2s": {Rounds: 3, Each: 2 * time.Second, Within: time.Hour}, "1 round within 1h0m0s": {Rounds: 1, Within: time.Hour}} {
		should.Be(t, o.plan(), want, "the plan")
	}
	if lasting(usual, time.Second) != time.Second || lasting(crowd, time.Second) != 2*time.Second {
		t.Error("the time of a measurement does not fit its crowd")
	}
	if plenty("redis-list") > 1_000_000 || plenty(conditional) != stock.MaxStock/2 {
		t.Errorf("there are %d units in a list, and %d in a row", plenty("redis-list"), plenty(conditional))
	}
	only := staged(1, Options{Only: regexp.MustCompile("^redis"), Items: 10})
	for _, subject := range only.ofItems().Subjects {
		should.Be(t, subject.Strategy, inRedis, "with --only … is measured", subject.Name)
	}
}

func TestTheProgramsOfASaleAreNamedByTheirPart(t *testing.T) {
	b := &bench{shop: &shop.Shop{Binary: "/somewhere/bin/stocklab"}}
	for program, want := range map[string]string{
		"stocklab": "stockd", "java": "zookeeper", "redis-server": "redis", "mysqld": "database", "mariadbd": "database", "etcd": "etcd", "nginx": "nginx",
	} {
		should.Be(t, b.role(program), want, program)
	}
}

// The locks by themselves are measured where all of their servers are, and not in a hurry.
func TestTheStagesOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		quick   bool
		missing map[string]string
		want    int
	}{"all": {false, nil, 3}, "quick": {true, nil, 2}, "without etcd": {false, map[string]string{"etcd": "no program"}, 2}} {
		b := &bench{options: Options{Quick: c.quick}, shop: &shop.Shop{Servers: &servers.Backends{Missing: c.missing, Database: &servers.Database{}}}, result: &Result{}}
		should.Be(t, len(b.stages()), c.want, "stages", name)
	}
	r := Result{Subjects: make([]Figure, 1), Ratios: make([]Figure, 2), Notes: make([]string, 3)}
	if r.add(&Result{Subjects: make([]Figure, 1), Ratios: make([]Figure, 1), Notes: make([]string, 1)}); len(r.Subjects) != 2 || len(r.Ratios) != 3 || len(r.Notes) != 4 {
		t.Errorf("a result with another one's is %+v", r)
	}
}

// before is a stage before a server that answers as a test says.
func before(t *testing.T, answer http.HandlerFunc) *stage {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	of := staged(1, Options{})
	of.served = &shop.Cluster{URL: s.URL, Replicas: []*shop.Replica{{URL: s.URL, AdminURL: s.URL}}}
	return of
}

// Only what sells safely here is measured, the locks last; what cannot be had is named.
func TestSafeStrategiesAreMeasured(t *testing.T) {
	s := before(t, func(w http.ResponseWriter, _ *http.Request) {
		lock, plain := `"claims": {"exclusive_across_replicas": true, "fenceable": true}, `, `"claims": {"exclusive_across_replicas": true}, `
		fmt.Fprint(w, `{"strategies": [`+ //nolint:errcheck // the test notices
			`{"name": "a-lock", `+lock+`"available": true}, {"name": "away", `+plain+`"enabled": true, "available": false, "note": "no Redis"}, `+
			`{"name": "naive", "available": true}, {"name": "b-plain", `+plain+`"available": true}, {"name": "other", `+plain+`"available": true}]}`)
	})
	s.options.Only = regexp.MustCompile("-|away|naive")
	list, err := s.safe(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "b-plain" || list[1].Name != "a-lock" {
		t.Errorf("measured are %+v (%v)", list, err)
	}
	should.Equal(t, s.result.Notes, []string{"away: not measured: no Redis"}, "the notes")
}

// The ledger has what buyers received, or will have within seconds; the figures of a sale that it contradicts
// are no figures.
func TestASaleIsComparedWithItsLedger(t *testing.T) {
	const clean = `{"goods_id": 1, "initial": 100, "stock": %d, "sold": %d, "orders": %d, "clean": true, "pending": 0}`
	for name, c := range map[string]struct {
		result load.Result
		audits []string
		says   string // of the error; empty: none
	}{
		"right":                {load.Result{Sent: 5, Errors: map[string]int{"busy": 1}}, []string{fmt.Sprintf(clean, 96, 4, 4)}, ""},
		"right later":          {load.Result{}, []string{fmt.Sprintf(clean, 98, 2, 2), fmt.Sprintf(clean, 96, 4, 4)}, ""},
		"an unknown one sold":  {load.Result{}, []string{fmt.Sprintf(clean, 95, 5, 5)}, ""},
		"a failure":            {load.Result{Sent: 5, Errors: map[string]int{"internal": 1}}, nil, "1 of 5 requests failed: internal"},
		"one rejected":         {load.Result{Rejected: 1}, nil, "1 were rejected with stock left"},
		"rejected":             {load.Result{Rejected: 2}, nil, "2 were rejected with stock left"},
		"an order given twice": {load.Result{Duplicates: 1}, nil, "1 orders were assigned twice"},
	} {
		asked := 0
		s := before(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, c.audits[min(asked, len(c.audits)-1)]) //nolint:errcheck // the test notices
			asked++
		})
		err := s.settle(t.Context(), &shelf{goods: []int64{1}, sold: 4, unknown: 1}, &c.result)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || asked != len(c.audits) {
			t.Errorf("%s: %v after %d audits, want %q", name, err, asked, c.says)
		}
	}
	for name, c := range map[string]struct {
		audits []string
		says   string
	}{
		"all":             {[]string{fmt.Sprintf(clean, 98, 2, 2), fmt.Sprintf(clean, 98, 2, 2)}, ""},
		"one too few":     {[]string{fmt.Sprintf(clean, 98, 2, 2), fmt.Sprintf(clean, 99, 1, 1)}, "the ledger has 3 sales, buyers received 4, and the outcome of 1 is unknown"},
		"two too many":    {[]string{fmt.Sprintf(clean, 97, 3, 3), fmt.Sprintf(clean, 97, 3, 3)}, "the ledger has 6 sales"},
		"two units each":  {[]string{fmt.Sprintf(clean, 98, 2, 2), fmt.Sprintf(clean, 96, 4, 2)}, "4 units in 2 sales of one unit each"},
		"one is not":      {[]string{fmt.Sprintf(clean, 98, 2, 2), `{"goods_id": 2, "initial": 10, "sold": 12, "orders": 12, "oversold": 2, "pending": 0}`}, "12 of 10 sold, 2 oversold"},
		"the first isn't": {[]string{`{"goods_id": 1, "initial": 10, "sold": 2, "orders": 2, "lost": 1, "stock": 9, "pending": 0}`, fmt.Sprintf(clean, 98, 2, 2)}, "1 updates lost, 9 left"},
	} {
		s := before(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, c.audits[map[bool]int{false: 0, true: 1}[strings.Contains(r.URL.Path, "/2/")]]) //nolint:errcheck // the test notices
		})
		wrong, err := s.compare(t.Context(), &shelf{goods: []int64{1, 2}, sold: 4, unknown: 1})
		if err != nil || (wrong == nil) != (c.says == "") || wrong != nil && !strings.Contains(wrong.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %q", name, wrong, err, c.says)
		}
	}
}

// The memory of a replica that served no crowd says nothing of one that did.
func TestTheMemoryOfAReplicaIsThatUnderACrowd(t *testing.T) {
	stage := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/goods": http.StatusCreated, "/deduct": http.StatusServiceUnavailable}[r.URL.Path])
	})
	if _, err := measuring(stage.memory)(t.Context(), 500*time.Millisecond); err == nil || !strings.Contains(err.Error(), "http-503") {
		t.Errorf("it ends with %v, want that nothing was sold", err)
	}
}

// The p99 of audits is one of those that were made, in milliseconds.
func TestAuditsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		audits := measuring(func(x *flow.Flow, each time.Duration) Sample {
			return repeat(x, each, func() {
				n++
				time.Sleep(map[bool]time.Duration{false: 10 * time.Millisecond, true: 25 * time.Millisecond}[n == 7])
			})
		})
		s, err := audits(t.Context(), time.Second)
		if err != nil || n != 99 || s.P50 != 10 || s.Value != 25 || s.P99 != 25 {
			t.Errorf("%d audits: %+v, %v", n, s, err)
		}
	})
}

// What the ledger has late was not sold in the time that was measured, and what it never has was not sold.
func TestASaleIsWorthNothingUntilItsLedgerHasIt(t *testing.T) {
	contradiction, broken := errors.New("the ledger has 3 sales"), errors.New("gone")
	for name, c := range map[string]struct {
		right time.Duration // when the ledger is
		err   error
		says  string
	}{
		"at once":  {0, nil, ""},
		"in time":  {4 * time.Second, nil, ""},
		"too late": {settleWithin + time.Millisecond, nil, "the ledger had every sale only 5.02s after the last one"},
		"never":    {time.Hour, nil, contradiction.Error()},
		"broken":   {0, broken, broken.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, say := time.Now(), ""
			err := settled(t.Context(), settleWithin, func() (wrong, err error) {
				if time.Since(began) < c.right {
					return contradiction, c.err
				}
				return nil, c.err
			})
			if err != nil {
				say = err.Error()
			}
			if say != c.says || time.Since(began) > settleWithin+time.Second {
				t.Errorf("%s: %q after %s, want %q", name, say, time.Since(began), c.says)
			}
		})
	}
}

// What is written after the answers belongs to a sale, and the audits of many items do not.
func TestTheAuditsOfManyItemsAreNoCostOfTheirSale(t *testing.T) {
	for name, c := range map[string]struct {
		how  Setting
		want string
	}{
		"one item":                         {Setting{Strategy: inRedis}, "audits used"},
		"many items":                       {Setting{Strategy: conditional, Group: true, Items: 10}, "used audits"},
		"many, which the ledger has later": {Setting{Strategy: inRedis, Items: 10}, "2 pending, 1 pending, 0 pending, used audits"},
	} {
		var steps strings.Builder
		left := 3
		s := before(t, func(w http.ResponseWriter, _ *http.Request) {
			left--
			fmt.Fprintf(&steps, "%d pending, ", left)
			fmt.Fprintf(w, "# TYPE stockd_redis_stock_pending_orders gauge\nstockd_redis_stock_pending_orders %d\n", left) //nolint:errcheck // the test notices
		})
		after, err := s.auditAfter(t.Context(), c.how, func() map[string]servers.Processor {
			steps.WriteString("used ")
			return map[string]servers.Processor{"stockd": {}}
		}, func() error {
			steps.WriteString("audits ")
			return nil
		})
		if got := strings.TrimSpace(steps.String()); err != nil || got != c.want || len(after) != 1 {
			t.Errorf("%s: %q with %v, %v; want %q", name, got, after, err, c.want)
		}
	}
}

// Ten thousand items are audited for longer than the ledger of one may take.
func TestTheAuditsOfManyItemsAreNoDelayOfTheirLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		audits := func() (wrong, err error) {
			time.Sleep(MaxItems * 2 * time.Millisecond)
			return nil, nil
		}
		should.Fail(t, settled(t.Context(), settlesWithin(MaxItems), audits), nil, "the audits of … items", MaxItems)
	})
}

func TestALargeLedgerIsComparedWithAnEmptyOne(t *testing.T) {
	asked := ""
	on := func(name string) *stage {
		return before(t, func(w http.ResponseWriter, _ *http.Request) {
			asked = name
			w.WriteHeader(http.StatusTeapot)
		})
	}
	l := on("large")
	l.empty = on("empty")
	compared := 0
	for _, s := range l.ofLedger().Subjects {
		if which, ok := strings.CutSuffix(s.Name, " ledger"); ok {
			compared++
			_, _ = s.Measure(t.Context(), time.Millisecond) // it fails, and has asked
			if !strings.HasSuffix(which, ", "+asked) {
				t.Errorf("%s asks the %s one", s.Name, asked)
			}
		}
	}
	should.Be(t, compared, 6, "comparisons, three with each ledger")
}

// A rate is that of the time after the warm-up, in which what is held is not counted.
func TestTheRateOfAContestLeavesTheWarmUpOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const each = 8 * time.Second
		holds := make([]turn, 2)
		for i := range holds {
			holds[i] = func(*flow.Flow) time.Duration {
				waited := 100 * time.Millisecond
				if time.Since(start) < each/warmUp {
					waited = time.Second // until it has a connection
				}
				time.Sleep(waited)
				return waited
			}
		}
		c := contest{holds: holds}
		rate, err := measuring(c.measure)(t.Context(), each)
		if err != nil || rate.Value < 19.5 || rate.Value > 20.5 || c.unfair != 1 {
			t.Errorf("two contenders with 10 holds a second make %.1f a second, the longest wait %.1f times the median (%v)", rate.Value, c.unfair, err)
		}
	})
}
