package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service"
)

// Mode is how purchases are sold.
type Mode struct {
	Strategy string `json:"strategy"`
	Group    bool   `json:"group"`
	Fence    bool   `json:"fence"`
}

// String is the strategy with its modifiers, as a run is named.
func (m Mode) String() string {
	run := verdict.Run{Strategy: m.Strategy, Group: m.Group, Fence: m.Fence}
	return run.Name()
}

// Settings are what a reader chooses before a sale.
type Settings struct {
	Mode

	Stock int64 `json:"stock"`
	// Clients is how many send requests at the same time; 0: the phones of a class alone buy.
	Clients int `json:"clients"`
	// Rate is the requests a second of all clients; 0: each sends its next request when
	// the last one is answered.
	Rate     float64 `json:"rate"`
	Replicas int     `json:"replicas"`
	// WorkMillis is how long every purchase takes between its read and its write, beside
	// what it takes anyway; TTLSeconds is lock.ttl of the replicas.
	WorkMillis int     `json:"work_ms"`
	TTLSeconds float64 `json:"ttl_s"`
	// Room is how many buyers a second the waiting room of the item admits; 0: it has none.
	Room float64 `json:"room"`
}

// defaults show an oversold item at once.
func defaults() Settings {
	return Settings{Mode: Mode{Strategy: "naive"}, Stock: 1000, Clients: 50, Replicas: 3, TTLSeconds: 5}
}

func (s Settings) layout() layout {
	return layout{replicas: s.Replicas, ttl: time.Duration(s.TTLSeconds * float64(time.Second)), room: s.Room}
}

// check names the first setting that is out of its range.
func (s Settings) check(known []service.Description) error {
	for _, c := range []struct {
		name                string
		value, least, limit float64
	}{
		{"stock", float64(s.Stock), 1, 1_000_000},
		{"clients", float64(s.Clients), 0, 200},
		{"rate", s.Rate, 0, 5000},
		{"replicas", float64(s.Replicas), 1, 5},
		{"work_ms", float64(s.WorkMillis), 0, 5000},
		{"ttl_s", s.TTLSeconds, 1, 60},
		{"room", s.Room, 0, 1000},
	} {
		if !(c.value >= c.least && c.value <= c.limit) {
			return fmt.Errorf("%w: %s: %v is out of range %v..%.0f", errInput, c.name, c.value, c.least, c.limit)
		}
	}
	return s.Mode.check(known)
}

var errInput = errors.New("input")

func (m Mode) check(known []service.Description) error {
	s, err := demo.Pick(known, m.Strategy)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errInput, err)
	case !s.Available:
		return fmt.Errorf("%w: %s is not available: %s", errInput, m.Strategy, s.Note)
	case m.Fence && !s.Guarantees.Fenceable:
		return fmt.Errorf("%w: %s has no lock whose token could be checked", errInput, m.Strategy)
	default:
		return nil
	}
}

// Phase is how far a sale is.
type Phase string

// The phases.
const (
	Idle     Phase = "idle"
	Starting Phase = "starting"
	Selling  Phase = "selling"
	Halted   Phase = "paused"
	Stopping Phase = "stopping"
	Ended    Phase = "ended"
)

// active tells that a sale is going on.
func (p Phase) active() bool { return p != Idle && p != Ended }

// Sale is the sale that the page shows.
type Sale struct {
	Phase    Phase    `json:"phase"`
	Settings Settings `json:"settings"`
	Item     int64    `json:"item"`
	// Modes are how it was sold, one after the other.
	Modes []Mode `json:"modes"`
	// Error is why it could not begin or be judged.
	Error   string   `json:"error,omitempty"`
	Verdict *Verdict `json:"verdict,omitempty"`
}

func (Sale) kind() string { return "sale" }

func (s Sale) apply(state *State) { state.Sale = s }

// Verdict is what the audit came to.
type Verdict struct {
	verdict.Run

	// Words and Remark are those of the demo.
	Words  string `json:"words"`
	Remark string `json:"remark,omitempty"`
	// Faults tells that something was done to a replica or a server meanwhile: requests
	// that failed are then no evidence against the strategy.
	Faults bool `json:"faults"`
	// Known tells that the lock failed as it is known to when its holder pauses or works too long.
	Known bool `json:"known,omitempty"`
	// Next is what to try now.
	Next Advice `json:"next"`
}

// Advice is what to try after a sale: why, as a name that the page has words for, and the
// settings for it.
type Advice struct {
	Why string `json:"why"`
	Settings
}

const (
	// longest bounds a sale, and with it what the replicas record.
	longest = 5 * time.Minute
	// requestTimeout is longer than any limit of a replica.
	requestTimeout = 20 * time.Second
	// auditWithin bounds the audit, which waits for a ledger that is written later.
	auditWithin = 45 * time.Second
)

// run is the sale that is going on: a number of legs, one after the other. A leg is the
// load of one mode; the requests of one that ends are still answered while the next one sells.
type run struct {
	ctx    context.Context
	cancel context.CancelFunc
	url    string
	item   int64
	until  time.Time
	meter  *meter

	settings Settings
	modes    []Mode
	faults   atomic.Bool
	phones   atomic.Bool // of a class have bought
	endLeg   context.CancelFunc
	legs     sync.WaitGroup
	answered []chan struct{} // of each leg; closed when it has its last answer

	mu     sync.Mutex
	result *load.Result
	failed error
}

// leg sells in a mode until it is ended or nothing is left; then over is called.
func (r *run) leg(m Mode, over func()) {
	ctx, cancel := context.WithDeadline(r.ctx, r.until) // an open loop that has fallen behind would send all that was due
	r.endLeg = cancel
	if len(r.modes) == 0 || r.modes[len(r.modes)-1] != m {
		r.modes = append(r.modes, m)
	}
	soldOut := false
	plan := r.plan(m)
	plan.SoldOut = func(context.Context) (bool, error) { soldOut = true; return false, nil }
	answered := make(chan struct{})
	r.answered = append(r.answered, answered)
	r.legs.Go(func() {
		defer cancel()
		result, err := runPlan(ctx, plan)
		close(answered)
		r.add(result, err)
		if !errors.Is(ctx.Err(), context.Canceled) || soldOut { // it was not ended, but came to its end
			over()
		}
	})
}

// plan is the load of a mode.
func (r *run) plan(m Mode) load.Plan {
	p := load.Plan{
		URL: r.url, Strategy: m.Strategy, Group: m.Group, Fence: m.Fence, GoodsID: r.item,
		Clients: r.settings.Clients, Rate: r.settings.Rate, Duration: max(time.Until(r.until), time.Millisecond), Timeout: requestTimeout,
		Observe: r.meter.observe,
	}
	if r.settings.Room > 0 {
		p.Wait, p.User = r.waitingRoom()
	}
	return p
}

// runPlan runs a load. Without clients it lasts as long, and leaves the sale to the phones of a
// class.
func runPlan(ctx context.Context, p load.Plan) (*load.Result, error) {
	if p.Clients > 0 {
		return load.Run(ctx, p)
	}
	start := time.Now()
	_ = pause.For(ctx, p.Duration) // or until the leg is ended
	result, err := load.Run(ctx, p)
	if result != nil {
		result.Elapsed = time.Since(start)
	}
	return result, err
}

// add adds the result of a leg.
func (r *run) add(l *load.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
	if l == nil {
		return
	}
	if r.result == nil {
		r.result = l
		return
	}
	r.result.Add(l)
}

// judge holds the sale against what its strategies guarantee, as the demo does.
func (r *run) judge(ctx context.Context, s ground, known []service.Description) (*Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	if r.failed != nil {
		return nil, r.failed
	}
	c, err := s.client()
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	audit, err := c.Owner().Audit(ctx, r.item) // of a replica that runs: the balancer may choose one that is paused
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	v := &Verdict{Faults: r.faults.Load()}
	v.Run = verdict.Run{
		Strategy: names(r.modes), Replicas: r.settings.Replicas, Clients: r.settings.Clients, ExpectedClean: true,
		Group: r.modes[0].Group && len(r.modes) == 1, Fence: r.modes[0].Fence && len(r.modes) == 1, Tries: 1,
	}
	alone := r.settings.Clients == 1 && !r.phones.Load() && len(r.modes) == 1 // no purchase can come between another's steps
	for _, m := range r.modes {
		d, err := demo.Pick(known, m.Strategy)
		if err != nil {
			return nil, err
		}
		v.ExpectedClean = alone || v.ExpectedClean && demo.Guarantees(d, m.Group).Exclusive(r.settings.Replicas)
		v.Note = cmp.Or(v.Note, d.Note)
	}
	v.Add(r.result, audit)
	errorTypes := v.ErrorTypes
	if v.Faults {
		v.ErrorTypes = nil
	}
	v.Judge()
	v.ErrorTypes = errorTypes
	v.Words, v.Remark, v.Next = v.Run.Words(), v.Run.Remark(), r.advice(v, known)
	return v, nil
}

// losesLock reports whether a mode sells under a lock that may be lost, and whose token is not checked: a holder was paused by hand, or
// works longer than its TTL.
func (r *run) losesLock(known []service.Description) bool {
	outlasts := float64(r.settings.WorkMillis) >= 1000*r.settings.TTLSeconds
	return (outlasts || r.faults.Load()) && slices.ContainsFunc(r.modes, func(m Mode) bool {
		d, err := demo.Pick(known, m.Strategy)
		return err == nil && d.Guarantees.Fenceable && !m.Fence
	})
}

// excuse has a sale be no surprise where its lock may be lost, two holders were recorded, and no token was checked. What its ledger contradicts stays a surprise.
func (v *Verdict) excuse(overlaps int, losesLock bool) {
	ledger := v.Sold == v.Orders && v.Duplicates == 0 && v.Orders >= int64(v.Answered) && v.Orders <= int64(v.Answered+v.Unknown)
	if overlaps == 0 || !losesLock || !ledger || v.Clean || v.Verdict != verdict.Unexpected {
		return
	}
	v.Known = true
	v.Words, v.Remark = strings.Replace(v.Words, "not expected", "failed as this lock is known to when its holder pauses or works too long", 1), ""
}

// names are those of the modes, in their order.
func names(modes []Mode) string {
	if len(modes) == 1 {
		return modes[0].Strategy // its modifiers are fields of the run
	}
	list := make([]string, len(modes))
	for i, m := range modes {
		list[i] = m.String()
	}
	return strings.Join(list, ", then ")
}

// advice is what shows more than another sale like this one.
func (r *run) advice(v *Verdict, known []service.Description) Advice {
	last := r.modes[len(r.modes)-1]
	d, _ := demo.Pick(known, last.Strategy) // it has sold
	a := Advice{Settings: r.settings}
	a.Mode = last
	switch {
	case len(r.modes) > 1:
		a.Why = "alone"
	case !v.Clean:
		a.afterDamage(d)
	case !v.ExpectedClean || !d.Guarantees.ExclusiveInProcess:
		a.Why, a.Clients, a.WorkMillis = "luck", min(200, max(20, 2*a.Clients)), max(5, a.WorkMillis)
	case !d.Guarantees.ExclusiveAcrossReplicas:
		a.Why, a.Replicas = "replicas", 3
	case d.Guarantees.Fenceable && !last.Fence:
		// The sale must last until the pause has hit: a batch has at most one unit of each client.
		a.Why, a.TTLSeconds, a.WorkMillis, a.Stock = "pause", 1, 10, 2000
		if a.Group {
			a.Stock *= int64(max(1, a.Clients))
		}
	default:
		a.Why, a.Strategy, a.Fence = "naive", "naive", false
	}
	return a
}

// afterDamage advises what prevents the damage of a strategy.
func (a *Advice) afterDamage(d service.Description) {
	switch g := d.Guarantees; {
	case g.ExclusiveAcrossReplicas && g.Fenceable && !a.Fence:
		a.Why, a.Fence = "fence", true
	case g.ExclusiveInProcess && a.Replicas > 1:
		a.Why, a.Strategy, a.Fence = "shared", "sql-conditional", false
	default:
		a.Why, a.Strategy, a.Replicas, a.Fence = "mutex", "mutex", 1, false
	}
}

// meter counts the answers since it was last read.
type meter struct {
	mu      sync.Mutex
	since   time.Time
	answers Answers
	sold    int64                   // since it was made
	latency *hdrhistogram.Histogram // in microseconds
}

func newMeter() *meter {
	return &meter{since: time.Now(), latency: load.NewHistogram()}
}

func (m *meter) observe(a load.Answer) { m.count(a) }

// count returns the number of the unit that was sold, from 1, or 0.
func (m *meter) count(a load.Answer) (no int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	load.Record(m.latency, a.End.Sub(a.Start))
	switch {
	case a.Kind == load.Sold:
		m.answers.Sold++
		m.sold++
		return m.sold
	case a.Kind == load.Rejected:
		m.answers.Rejected++
	case a.Kind == load.Unknown:
		m.answers.Unknown++
	case a.Problem == "busy":
		m.answers.Busy++
	default:
		m.answers.Failed++
	}
	return 0
}

// read is a point with what was counted; the next one begins there.
func (m *meter) read(now time.Time) Point {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := Point{At: millis(now), Seconds: now.Sub(m.since).Seconds(), Answers: m.answers}
	if m.latency.TotalCount() > 0 {
		p.P50, p.P99 = load.Milliseconds(m.latency, 50), load.Milliseconds(m.latency, 99)
	}
	m.since, m.answers = now, Answers{}
	m.latency.Reset()
	return p
}
