package experiments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// made runs one experiment that needs nothing.
func made(t *testing.T, parts ...Part) (Result, error) {
	t.Helper()
	backends := &servers.Backends{Database: &servers.Database{}, Missing: map[string]string{"zookeeper": "needs ZooKeeper: not found"}}
	plan := Plan{Folder: t.TempDir(), Progress: silent{}}
	r := &provisioner{plan: plan, shop: &shop.Shop{Servers: backends}}
	return r.experiment(t.Context(), Experiment{Number: 7, Name: "made-up", Parts: parts})
}

type silent struct{}

func (silent) Say(string)                {}
func (silent) Begin(int)                 {}
func (silent) Try(Experiment, Part, int) {}
func (silent) Attempt(Attempt) func()    { return func() {} }
func (silent) Part(string, PartResult)   {}
func (silent) Done(Result)               {}
func (silent) End()                      {}

// measured writes a figure, which grows with each try.
func measured() func(x *Try) {
	value := 0.0
	return func(x *Try) {
		value++
		x.Figure("measured", value)
	}
}

// reaches holds from a figure of at least.
func reaches(least float64) checker.Check {
	return func(h *history.History) checker.Finding {
		value := h.Figures["measured"]
		return checker.Finding{Holds: value >= least, Says: "it says", Numbers: map[string]float64{"measured": value}}
	}
}

func TestAPartThatHoldsIsReproducedByWhatIsInItsHistory(t *testing.T) {
	r := must.Get(made(t, Part{Name: "one", Do: measured(), Check: reaches(1)}))(t)
	if r.Verdict != Reproduced || r.Tries != 1 || r.Evidence["one.measured"] != 1 {
		t.Errorf("%+v", r)
	}
}

func TestAFailureByChanceIsTriedUntilItIsSeenAndEveryTryCounts(t *testing.T) {
	r, err := made(t, Part{Name: "one", Do: measured(), Check: reaches(3)})
	if err != nil || r.Verdict != Reproduced || r.Tries != 3 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestTriesAreBounded(t *testing.T) {
	var items []int64
	measure := measured()
	sells := func(x *Try) {
		items = append(items, x.Item)
		measure(x)
	}
	r, err := made(t, Part{Name: "one", Do: sells, Check: reaches(10)})
	if err != nil || r.Verdict != NotReproduced || r.Tries != maxTries || r.Reason == "" {
		t.Errorf("%v, %+v", err, r)
	}
	should.Equal(t, items, []int64{1, 2, 3, 4, 5}, "the tries sold the items")
}

// The picture of a contradiction is of the try whose history the result has.
func TestAContradictionIsThatOfTheLastTry(t *testing.T) {
	try := 0
	sells := func(x *Try) {
		try++
		x.Add(history.Line{Audit: &history.Audit{Audit: stock.Audit{GoodsID: 1, Initial: 10}}})
		for i := range 2 { // in the first try both sales find ten units
			at := x.Start.Add(time.Duration(i) * time.Second)
			x.Add(history.Line{Request: &history.Request{
				Start: at, End: at.Add(time.Millisecond), GoodsID: 1, Quantity: 1, Outcome: history.Sold, Remaining: int64(9 - i*(try-1)),
			}})
		}
		x.Figure("measured", float64(try))
	}
	for tries, drawn := range map[int]bool{1: true, 2: false} {
		try = 0
		r, err := made(t, Part{Name: "one", Do: sells, Check: reaches(float64(tries)), Orders: true})
		if err != nil || (r.Parts[0].Contradiction != "") != drawn {
			t.Errorf("after %d tries the contradiction is %q (%v)", tries, r.Parts[0].Contradiction, err)
		}
	}
}

func TestARemedyThatFailsOnceIsNotTriedAgain(t *testing.T) {
	r, err := made(t, Part{Name: "one", Remedy: true, Do: measured(), Check: reaches(2)})
	if err != nil || r.Verdict != NotReproduced || r.Tries != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A part that was not made proves nothing, and one that did not hold weighs more than it.
func TestAnExperimentIsJudgedByAllOfItsParts(t *testing.T) {
	held := PartResult{Part: Part{Name: "held"}, Tries: 2, Finding: checker.Finding{Holds: true, Says: "so it is", Numbers: map[string]float64{"units": 1}}}
	failed := PartResult{Part: Part{Name: "failed"}, Tries: 3, Finding: checker.Finding{Says: "so it is not", Numbers: map[string]float64{"units": 2}}}
	missing := PartResult{Part: Part{Name: "missing"}, NotRun: "needs etcd"}
	for _, c := range []struct {
		parts   []PartResult
		verdict Verdict
		reason  string
		tries   int
	}{
		{nil, NotRun, "", 0},
		{[]PartResult{held}, Reproduced, "held: so it is", 2},
		{[]PartResult{held, held}, Reproduced, "held: so it is; held: so it is", 4},
		{[]PartResult{held, missing}, NotRun, "missing: needs etcd; held: so it is", 2},
		{[]PartResult{missing, held}, NotRun, "missing: needs etcd; held: so it is", 2},
		{[]PartResult{missing}, NotRun, "missing: needs etcd", 0},
		{[]PartResult{held, failed}, NotReproduced, "failed: so it is not", 5},
		{[]PartResult{failed, missing, held}, NotReproduced, "failed: so it is not", 5},
	} {
		r := Result{Parts: c.parts, Tries: 9, Verdict: Reproduced, Evidence: map[string]float64{"of an earlier judgement": 1}}
		r.judge()
		want := make(map[string]float64)
		for _, p := range c.parts {
			for name, value := range p.Finding.Numbers {
				want[p.Name+"."+name] = value
			}
		}
		if r.Verdict != c.verdict || r.Reason != c.reason || r.Tries != c.tries || !maps.Equal(r.Evidence, want) {
			t.Errorf("%+v: %s, %q, %d tries, %v; want %s, %q, %d tries, %v", c.parts, r.Verdict, r.Reason, r.Tries, r.Evidence, c.verdict, c.reason, c.tries, want)
		}
	}
}

// Replicas serve the next try only where its stage asks for just the same.
func TestReplicasServeTheSameStage(t *testing.T) {
	stage := Stage{Replicas: 2, Nodes: 1, Lab: true, Env: []string{"A=1"}}
	if !stage.same(Stage{Replicas: 2, Nodes: 1, Lab: true, Env: []string{"A=1"}, Needs: []Need{Redis}}) {
		t.Error("the same stage is another one")
	}
	for name, change := range map[string]func(*Stage){
		"replicas": func(s *Stage) { s.Replicas = 3 }, "nodes": func(s *Stage) { s.Nodes = 3 }, "the lab": func(s *Stage) { s.Lab = false },
		"a variable": func(s *Stage) { s.Env = []string{"A=2"} }, "a replica's own": func(s *Stage) { s.Own = map[int][]string{1: {"A=1"}} },
	} {
		other := stage
		if change(&other); stage.same(other) || other.same(stage) {
			t.Errorf("%s: another stage is the same", name)
		}
	}
}

func TestWhatIsMissingIsNotRunAndSaysWhy(t *testing.T) {
	r, err := made(t, Part{Name: "one", Stage: Stage{Needs: []Need{ZooKeeper}}, Do: measured(), Check: reaches(1)})
	if err != nil || r.Verdict != NotRun || r.Reason != "one: needs ZooKeeper: not found" || r.Tries != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestAServerThatAStageLacksIsNotRunAndNoError(t *testing.T) {
	lacking := func(x *Try) []string {
		x.Must(&servers.MissingError{What: "a clock", How: "a shop has them"})
		return nil
	}
	r, err := made(t, Part{Name: "one", Stage: Stage{Servers: lacking}, Do: measured(), Check: reaches(1)})
	if err != nil || r.Verdict != NotRun || r.Reason != "one: needs a clock; a shop has them" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestSQLiteIsNoMySQL(t *testing.T) {
	th := &provisioner{shop: &shop.Shop{Servers: &servers.Backends{Database: &servers.Database{Info: servers.Info{Started: servers.Embedded}}}}}
	if th.lacks(Stage{Needs: []Need{MySQL}}) == "" {
		t.Error("SQLite passes for MySQL")
	}
	th.shop.Servers.Database.Started = servers.Local
	if reason := th.lacks(Stage{Needs: []Need{MySQL}}); reason != "" {
		t.Error(reason)
	}
	th.shop.Servers.Missing = map[string]string{"etcd": "needs etcd"}
	should.Be(t, th.lacks(Stage{Needs: []Need{MySQL, Etcd}}), "needs etcd", "beside MySQL etcd is missing for")
}

func TestAStepThatFailsIsAnErrorAndNoVerdict(t *testing.T) {
	broken := errors.New("the server is gone")
	r, err := made(t, Part{
		Name: "one", Check: reaches(0),
		Do: func(x *Try) {
			x.Must(broken)
			t.Error("what follows a failure is done")
		},
	})
	if !errors.Is(err, broken) || r.Verdict != NotRun || r.Tries != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// One of several that go on at the same time ends the others, and the first failure is that of the try.
func TestTheFirstFailureEndsWhatGoesOnBesideIt(t *testing.T) {
	broken, ended := errors.New("broken"), false
	_, err := made(t, Part{Name: "one", Check: reaches(0), Do: func(x *Try) {
		x.Together(func() { x.Must(broken) }, func() {
			<-x.Done()
			ended = true
			x.Must(errors.New("because of that"))
		})
		t.Error("what follows is done")
	}})
	if !errors.Is(err, broken) || strings.Contains(err.Error(), "because") || !ended {
		t.Errorf("it ends with %v, and the other has ended: %t", err, ended)
	}
}

func TestWhatATryLeavesBehindIsEndedAlsoWhenItFails(t *testing.T) {
	ended := 0
	_, err := made(t, Part{Name: "one", Check: reaches(0), Do: func(x *Try) {
		x.Later(func() error { ended++; return nil })
		x.Must(errors.New("no"))
	}})
	if err == nil || ended != 1 {
		t.Errorf("%v, ended %d times", err, ended)
	}
}

func TestAReportIsJudgedAgainByItsHistories(t *testing.T) {
	folder := t.TempDir()
	plan := Plan{Folder: folder, Progress: silent{}}
	r := &provisioner{plan: plan, shop: &shop.Shop{Servers: &servers.Backends{Database: &servers.Database{}}}}
	e := Experiment{Number: 7, Name: "made-up", Parts: []Part{{Name: "one", Do: measured(), Check: reaches(1)}}}
	result := must.Get(r.experiment(t.Context(), e))(t)
	unknown := Result{Experiment: Experiment{Name: "unknown"}, Verdict: Reproduced}
	result.Parts = append([]PartResult{{Part: Part{Name: "of another version"}}, {Part: Part{Name: "one"}, NotRun: "needs etcd"}}, result.Parts...)
	report := &Report{Experiments: []Result{unknown, result}}
	file := filepath.Join(folder, "07-made-up", "one-1.jsonl")
	must.Do(t, os.WriteFile(file, []byte(`{"figure":{"name":"measured","value":0}}`+"\n"), 0o600))
	must.Do(t, Reread(folder, []Experiment{e}, report))
	if got := report.Experiments[1]; got.Verdict != NotReproduced || got.Evidence["one.measured"] != 0 || got.Parts[2].Finding.Holds {
		t.Errorf("%+v", got)
	}
	should.Be(t, report.Experiments[0].Verdict, Reproduced, "one that is not known")
	must.Do(t, os.Remove(file))
	should.Fail(t, Reread(folder, []Experiment{e}, report), os.ErrNotExist, "without its history")
}

func TestMain(m *testing.M) {
	servers.SuperviseIfAsked()
	os.Exit(m.Run())
}

// diary has what is made known of a run, in its order.
type diary struct {
	entries []string
	done    func() // is called after each experiment
}

func (d *diary) notef(format string, args ...any) {
	d.entries = append(d.entries, fmt.Sprintf(format, args...))
}

func (*diary) Say(string)              {}
func (d *diary) Begin(experiments int) { d.notef("begin %d", experiments) }
func (d *diary) Try(e Experiment, p Part, try int) {
	d.notef("try %d of %s, %s", try, e.Name, p.Name)
}
func (d *diary) End() { d.notef("end") }
func (d *diary) Done(r Result) {
	d.notef("%s is %s", r.Name, r.Verdict)
	if d.done != nil {
		d.done()
	}
}

// step notes that it is made, and measures.
func (d *diary) step(err error) func(x *Try) {
	measure := measured()
	return func(x *Try) { d.notef("step"); x.Must(err); measure(x) }
}

func (d *diary) Attempt(a Attempt) (over func()) {
	d.notef("watch item %d in %s", a.Item, filepath.Base(a.Files[0]))
	return func() { d.notef("over") }
}

func (d *diary) Part(_ string, p PartResult) {
	d.notef("%s is over, and holds: %t", p.Name, p.Finding.Holds)
}

func TestARunIsFollowedAsItHappens(t *testing.T) {
	d, item, broken := new(diary), int64(40), errors.New("the server is gone")
	plan := Plan{
		Folder: t.TempDir(), Progress: d, NextItem: func() int64 { item++; return item },
		Experiments: []Experiment{
			{Number: 1, Name: "breaks", Parts: []Part{{Name: "one", Do: d.step(broken), Check: reaches(0)}}},
			{Number: 2, Name: "holds", Parts: []Part{{Name: "two", Do: d.step(nil), Check: reaches(2)}}},
		},
	}
	results, err := On(t.Context(), &shop.Shop{Servers: &servers.Backends{Database: &servers.Database{}}}, plan)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "experiment 1, breaks: one: ") || len(results) != 2 || results[0].Parts[0].NotRun == "" {
		t.Errorf("there are %+v: %v", results, err)
	}
	if want := []string{
		"begin 2",
		"try 1 of breaks, one", "watch item 41 in one-1.jsonl", "step", "over", "one is over, and holds: false", "breaks is not run",
		"try 1 of holds, two", "watch item 42 in two-1.jsonl", "step", "over",
		"try 2 of holds, two", "watch item 43 in two-2.jsonl", "step", "over", "two is over, and holds: true", "holds is reproduced",
	}; !slices.Equal(d.entries, want) {
		t.Errorf("it is followed as %q, want %q", d.entries, want)
	}
}

// A run that is ended has the experiments that were made before, and no other part.
func TestARunThatIsEndedKeepsWhatWasMade(t *testing.T) {
	ends := errors.New("ended by hand")
	for name, c := range map[string]struct {
		last        string // what is noted when it is ended
		results     int
		interrupted bool
	}{
		"in a part":        {"step", 1, true},
		"between two":      {"second is reproduced", 2, true},
		"after the last":   {"third is reproduced", 3, false},
		"it was not ended": {"", 3, false},
	} {
		d := new(diary)
		ctx, cancel := context.WithCancelCause(t.Context())
		d.done = func() {
			if d.entries[len(d.entries)-1] == c.last {
				cancel(ends)
			}
		}
		part := Part{Name: "part", Do: measured(), Check: reaches(0)}
		second := part
		second.Do = func(*Try) {
			if d.notef("step"); c.last == "step" {
				cancel(ends)
			}
		}
		r, err := Run(ctx, Plan{
			Servers: servers.Choice{Mode: servers.Embedded, Redis: servers.None}, Progress: d, Folder: t.TempDir(),
			Experiments: []Experiment{
				{Number: 1, Name: "first", Parts: []Part{part}},
				{Number: 2, Name: "second", Parts: []Part{second, {Name: "next", Do: part.Do, Check: reaches(0)}}},
				{Number: 3, Name: "third", Parts: []Part{part}},
			},
		})
		if len(r.Experiments) != c.results || r.Interrupted != c.interrupted || errors.Is(err, ends) != c.interrupted || err != nil && !c.interrupted {
			t.Errorf("%s: %d experiments, interrupted %t: %v", name, len(r.Experiments), r.Interrupted, err)
		}
		should.Be(t, slices.Contains(d.entries, "try 1 of second, next"), c.last != "step", name, "goes on", d.entries)
		should.Be(t, slices.Index(d.entries, "end"), len(d.entries)-1, name, "ends at", d.entries)
		cancel(nil)
	}
}

// What a try has begun ends in the reverse order, all of it, and then its replicas where they cannot serve
// another try.
func TestATryEndsWhatItHasBegunTheLastOneFirst(t *testing.T) {
	for _, spoilt := range []bool{false, true} {
		p := &provisioner{cluster: &shop.Cluster{}}
		s := &Try{spoilt: spoilt}
		var order []string
		first, second := errors.New("first"), errors.New("second")
		for _, err := range []error{first, second} {
			s.Later(func() error {
				if p.cluster != nil {
					order = append(order, err.Error())
				}
				return err
			})
		}
		if err := p.tearDown(t.Context(), s); !errors.Is(err, first) || !errors.Is(err, second) || !slices.Equal(order, []string{"second", "first"}) {
			t.Errorf("the order is %q, and the error %v", order, err)
		}
		should.Be(t, p.cluster == nil, spoilt, "the replicas were ended")
	}
}

// A step that fails may have left a replica paused, or with a failpoint: no other try gets it.
func TestTheReplicasOfATryThatFailsServeNoOther(t *testing.T) {
	for _, failure := range []error{nil, errors.New("half done")} {
		p := &provisioner{plan: Plan{Progress: silent{}}, shop: &shop.Shop{Servers: new(servers.Backends)}, cluster: &shop.Cluster{}, stage: Stage{Replicas: 1}}
		step := func(x *Try) { x.Must(failure) }
		err := p.execute(t.Context(), Part{Stage: p.stage, Do: step}, filepath.Join(t.TempDir(), "history"))
		should.Fail(t, err, failure, "a try")
		should.Be(t, p.cluster == nil, failure != nil, "the replicas were ended")
	}
}

// The replicas take turns with the nodes that the stage uses, and each keeps what it has of its own.
func TestEachReplicaWritesToItsNode(t *testing.T) {
	p := &provisioner{galera: &servers.Nodes{Nodes: []*servers.Database{{DSN: "a"}, {DSN: "b"}, {DSN: "c"}}}}
	s := new(Try)
	must.Do(t, p.writeToNodes(t.Context(), s, Stage{Replicas: 3, Nodes: 2, Own: map[int][]string{2: {"A=1"}}}))
	for replica, dsn := range map[int]string{1: "a", 2: "b", 3: "a"} {
		if !slices.Contains(s.Own[replica], "STOCKD_DATABASE_DSN="+dsn) || slices.Contains(s.Own[replica], "A=1") != (replica == 2) {
			t.Errorf("replica %d gets %q, want the node %s", replica, s.Own[replica], dsn)
		}
	}
}

// A contender has its own connections until the try ends. What warms them up is not recorded.
func TestAContenderRecordsItsLeasesAndEndsWithItsTry(t *testing.T) {
	server := must.Get(servers.StartRedis(t.Context(), nil, servers.Embedded))(t)
	defer server.Close(t.Context()) //nolint:errcheck // the test is over
	file := filepath.Join(t.TempDir(), "history.jsonl")
	writer := must.Get(history.Create(file))(t)
	s := &Try{Backends: &servers.Backends{Redis: server}, History: writer}
	var c *contender
	if err := s.do(t.Context(), func(x *Try) {
		c = x.contend("one", Redis)
		c.ttl, c.retry = time.Hour, time.Millisecond
		c.warm("redis-lua")
		_, err := c.locker("redis-lua").Acquire(x, "name")
		x.Must(err)
	}); err != nil {
		t.Fatal(err)
	}
	if left := c.clients.Redis.PTTL(t.Context(), "stockd:{name}:redis-lua").Val(); left < time.Minute || left > time.Hour {
		t.Errorf("the lease lasts for %s, want an hour", left)
	}
	if err := s.do(t.Context(), func(*Try) { c.locker("hope") }); err == nil {
		t.Error("hope is a lock")
	}
	must.Do(t, errors.Join((&provisioner{}).tearDown(t.Context(), s), writer.Close()))
	should.Fail(t, c.clients.Redis.Ping(t.Context()).Err(), redis.ErrClosed, "its connection after the try")
	h, err := history.Read(file)
	if err != nil || len(h.Leases) != 1 || h.Leases[0].Holder != "one" || h.Leases[0].Lock != "redis-lua" || h.Leases[0].Name != "name" {
		t.Errorf("the leases are %+v (%v), want that of name alone", h.Leases, err)
	}
}
