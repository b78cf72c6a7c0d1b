package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/stock"
)

// fake is a run that was never made, in a folder of its own: its histories are
// made by hand, as large and as bad as real ones.
type fake struct {
	folder string
	report *experiments.Report
}

// shared is made once for all tests, which do not change it.
var shared fake

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.folder != "" {
		_ = os.RemoveAll(shared.folder) // it is in the temporary folder
	}
	os.Exit(code)
}

// fakeRun is the run that all tests share.
func fakeRun(t testing.TB) (folder string, r *experiments.Report) {
	t.Helper()
	if shared.folder == "" {
		folder := must.Get(os.MkdirTemp("", "stockd-page-"))(t) //nolint:usetesting // it outlives the first test
		shared = fake{folder, fakeReport()}
		makeRun(t, folder, shared.report)
	}
	return shared.folder, shared.report
}

// makeRun writes the histories and the report of a run.
func makeRun(t testing.TB, folder string, r *experiments.Report) {
	t.Helper()
	for i := range r.Experiments {
		e := &r.Experiments[i]
		dir := fmt.Sprintf("%02d-%s", e.Number, e.Name)
		must.Do(t, os.Mkdir(filepath.Join(folder, dir), 0o755))
		for j := range e.Parts {
			p := &e.Parts[j]
			if p.NotRun != "" {
				continue
			}
			p.History = fmt.Sprintf("%s/%s-%d.jsonl", dir, p.Name, p.Tries)
			fakeHistory(t, filepath.Join(folder, p.History), e.Number, p)
		}
	}
	must.Do(t, report.Write(folder, r))
}

// day is when the run was.
func day(d time.Duration) time.Time { return time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC).Add(d) }

const (
	timeline = experiments.Timeline
	stocked  = experiments.Stock
	waits    = experiments.Waits
)

// fakeReport has five experiments: one of them did not come out, one could not be run.
func fakeReport() *experiments.Report {
	r := &experiments.Report{
		Machine: servers.Machine{Commit: "01b5dee4c0ffee99aa11bb22cc33dd44ee55ff66", Go: "go1.26.1", CPU: "AMD EPYC 7B13", Processors: 2, Memory: "7.8 GiB"},
		Start:   day(0), Seconds: 432.4,
		Servers: map[string]servers.Info{
			"database": {Name: "MariaDB", Version: "10.11.14", Started: servers.Local}, "redis": {Name: "Redis", Version: "7.0.15", Started: servers.Local},
			"zookeeper": {Name: "ZooKeeper", Version: "3.8.0", Started: servers.Local}, "etcd": {Name: "etcd", Version: "3.4.23", Started: servers.Local},
			"balancer": {Name: "nginx", Version: "1.22.1", Started: servers.Local},
		},
	}
	r.Experiments = []experiments.Result{ // one of each kind of history
		fakeResult(full, "oversell", "Fifty buyers, and nothing in their way"),
		fakeResult(7, "work-outlasts-ttl", "An expiry shorter than the work"),
		fakeResult(8, "owner-gap", "Whose lock is it? Asked, and then deleted"),
		fakeResult(22, "innodb-matrix", "What a statement locks"),
		fakeResult(23, "optimistic", "Retries against the crowd"),
	}
	bad := &r.Experiments[4]
	bad.Verdict, bad.Reason = experiments.NotReproduced, "naive: with 64 clients the retries of a sale were no more than with 2: 1.1 and 1.0."
	bad.Parts[0].Finding.Holds, bad.Parts[0].Tries, bad.Tries = false, 5, 6
	left := &r.Experiments[3]
	left.Verdict, left.Reason, left.Seconds, left.Tries = experiments.NotRun, "It needs row locks, and SQLite has none.", 0, 0
	for j := range left.Parts {
		left.Parts[j].NotRun, left.Parts[j].Finding, left.Parts[j].Tries = left.Reason, checker.Finding{}, 0
	}
	return r
}

func fakeResult(number int, name, title string) experiments.Result {
	return experiments.Result{
		Experiment: experiments.Experiment{
			Number: number, Name: name, Title: title,
			Claim:  "Reading the stock, comparing it and writing it back are three steps: a request that reads between two of them sells what another has sold already.",
			Source: "Distributed locks in practice, section 2.1, the oversold stock",
			Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=sql-conditional' -d goods_id=1 -d quantity=1",
		},
		Verdict: experiments.Reproduced, Tries: 2, Seconds: 2.5 + float64(number*7%20)*0.83,
		Reason: "naive: 5,000 requests sold 5,000 of 1,000 units, 4,000 more than there were. with-lock: sold 1,000 of 1,000, and rejected the others.",
		Parts:  []experiments.PartResult{fakeFailure(number), fakeRemedy(number)},
	}
}

func fakeFailure(number int) experiments.PartResult {
	return experiments.PartResult{
		Part: experiments.Part{
			Name: "naive", Does: "50 buyers send 100 requests each for one unit of 1,000, on three replicas behind nginx.",
			Expect: "More is sold than there was, and the lock has two holders at once.", Pictures: fakePictures(number),
		},
		Tries: 1,
		Finding: checker.Finding{Holds: true, Says: "5,000 sales of 1,000 units: 4,000 oversold; the lock had two holders at once 3 times.", Numbers: map[string]float64{
			"oversold_units": 4000, "lost_updates": 3212, "sold_per_s": 2143, "longest_wait_ms": 2140, "overlaps": 3, "wakeups_per_release": 49.2,
		}},
		Start: day(0), End: day(4 * time.Second),
	}
}

func fakeRemedy(number int) experiments.PartResult {
	return experiments.PartResult{
		Part: experiments.Part{
			Name: "with-lock", Does: "The same, through sql-conditional.", Expect: "Not one unit more is sold than there was.", Remedy: true,
			Pictures: fakePictures(number),
		},
		Tries: 1,
		Finding: checker.Finding{Holds: true, Says: "1,000 sales of 1,000 units, 4,000 rejected; no two held the lock at once.", Numbers: map[string]float64{
			"oversold_units": 0, "lost_updates": 0, "sold_per_s": 801.4, "longest_wait_ms": 12.8, "overlaps": 0, "wakeups_per_release": 1,
		}},
		Start: day(5 * time.Second), End: day(9 * time.Second),
	}
}

func fakePictures(number int) []experiments.Picture {
	switch number {
	case full:
		return []experiments.Picture{stocked, waits}
	case 23:
		return []experiments.Picture{waits}
	default:
		return []experiments.Picture{timeline, stocked, waits}
	}
}

// fakeHistory makes up what happened in a part.
func fakeHistory(t testing.TB, path string, number int, p *experiments.PartResult) {
	t.Helper()
	w := must.Get(history.Create(path))(t)
	f := &faker{t: t, w: w, rand: rand.New(rand.NewPCG(uint64(number), 7)), start: p.Start}
	switch number {
	case full:
		f.crowd(5000, false, p.Remedy)
	case 7:
		f.pausedHolder(p.Remedy)
	default:
		f.crowd(500, true, p.Remedy)
	}
	must.Do(t, w.Close())
}

type faker struct {
	t      testing.TB
	w      *history.Writer
	rand   *rand.Rand
	start  time.Time
	leases int
}

func (f *faker) at(ms float64) time.Time {
	return f.start.Add(time.Duration(ms * float64(time.Millisecond)))
}

func (f *faker) add(line history.Line) {
	f.t.Helper()
	if err := f.w.Add(line); err != nil {
		f.t.Fatal(err)
	}
}

// lease is asked for, granted and released at those times, in ms; what is not
// to happen is 0. lost is when its holder was notified.
func (f *faker) lease(holder string, asked, granted, released, lost float64) {
	f.leases++
	e := history.Event{ID: fmt.Sprint(f.leases), Name: "goods:1", Holder: holder, Lock: "redis-setnx-ttl", Token: uint64(f.leases)}
	for _, step := range []struct {
		what history.EventKind
		ms   float64
	}{{history.Asked, asked}, {history.Granted, granted}, {history.Lost, lost}, {history.Released, released}} {
		if step.what == history.Asked || step.ms > 0 {
			event := e
			event.At, event.What = f.at(step.ms), step.what
			f.add(history.Line{Lease: &event})
		}
	}
}

func (f *faker) mark(ms, until float64, who, what string) {
	m := &history.Mark{At: f.at(ms), Who: who, What: what}
	if until > 0 {
		m.Until = f.at(until)
	}
	f.add(history.Line{Mark: m})
}

func (f *faker) sale(client int, start, end float64, outcome history.Outcome, wait float64) {
	f.add(history.Line{Request: &history.Request{
		Start: f.at(start), End: f.at(end), Client: client, Strategy: "redis-setnx-ttl", GoodsID: 1, Quantity: 1, Outcome: outcome,
		Replica: fmt.Sprintf("replica-%d", client%3+1), Wait: time.Duration(wait * float64(time.Millisecond)),
	}})
}

func (f *faker) audit(ms float64, left, initial, sold int64) {
	f.add(history.Line{Audit: &history.Audit{At: f.at(ms), Audit: stock.NewAudit(1, left, initial, sold, sold)}})
}

// full is the number of an experiment with as many requests as there ever are. The others are
// smaller, so that tests are fast.
const full = 1

// crowd is 50 buyers of a fifth as many units as they want.
func (f *faker) crowd(requests int, locked, clean bool) {
	sold, held, units := int64(0), 10.0, int64(requests/5)
	for i := range requests {
		wait := math.Exp(f.rand.NormFloat64()*1.1+1.5) * 2
		start := float64(i)*0.8 + f.rand.Float64()*4
		outcome := history.Sold
		if clean && sold >= units {
			outcome = history.Rejected
		} else {
			sold++
		}
		f.sale(i%50, start, start+wait+1.5, outcome, wait)
		if i%(requests/100) == 0 {
			left := max(0, units-sold)
			if !clean {
				left = max(0, units-sold/4)
			}
			f.add(history.Line{Sample: &history.Sample{At: f.at(start), GoodsID: 1, Stock: left, Sold: sold}})
		}
		if locked && i%2 == 0 {
			holds := 0.9 + f.rand.Float64()*0.6
			f.lease(fmt.Sprintf("replica-%d", i%3+1), held-wait/4, held, held+holds, 0)
			if !clean && i%(requests/3) == requests/5 {
				f.lease(fmt.Sprintf("replica-%d", (i+1)%3+1), held-2, held+0.4, held+0.9, 0)
			}
			held += holds + 0.1
		}
	}
	f.audit(float64(requests)*0.82, max(0, units-sold), units, sold)
}

// pausedHolder sleeps through its lease.
func (f *faker) pausedHolder(fenced bool) {
	f.lease("replica-1", 10, 30, 2600, 2550)
	f.mark(100, 0, "replica-1", "reached the critical section")
	f.mark(110, 2500, "replica-1", "paused (SIGSTOP)")
	f.mark(130, 0, "redis", "key goods:1 has 900 ms left")
	f.lease("replica-2", 200, 1040, 1900, 0)
	f.lease("replica-3", 250, 1950, 2900, 0)
	f.mark(2500, 0, "replica-1", "went on (SIGCONT)")
	if fenced {
		f.mark(2540, 0, "replica-1", "its write was rejected: fence 1 is below 3")
	}
	for i := range 40 {
		f.sale(i, float64(i*70), float64(i*70)+80, history.Sold, float64(i*7))
		f.add(history.Line{Sample: &history.Sample{At: f.at(float64(i*70) + 80), GoodsID: 1, Stock: 20 - int64(i)/2, Sold: int64(i + 1)}})
	}
	f.audit(3000, 0, 20, 40)
}
