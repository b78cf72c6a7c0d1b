package bench

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/stock"
)

// The crowds that buy. Every round measures the usual one; what has no target
// is measured once. Hundreds are there for what a sale costs, on one replica.
const (
	one      = 1
	few      = 8
	usual    = 64
	hundreds = 256
	crowd    = 512
	seenOnce = 1

	requestLimit = 30 * time.Second
	// settleWithin bounds the wait until the ledger has every sale.
	settleWithin = 5 * time.Second
	// auditsEach is the time for the audit of each item, beside that wait.
	auditsEach = 10 * time.Millisecond
)

// sales are those of every strategy, alone and grouped, after the limits. What is compared is measured one
// after the other.
func (s *stage) sales() Suite {
	suite := Suite{Subjects: s.limits(), Ratios: s.ratios()}
	add := func(list ...Subject) { suite.Subjects = append(suite.Subjects, list...) }
	for _, strategy := range s.strategies {
		if strategy.Name == conditional {
			add(s.paid(false), s.paid(true))
		}
		how := Setting{Strategy: strategy.Name, Replicas: s.replicas}
		for _, how.Clients = range s.options.crowds() {
			for _, how.Group = range []bool{false, true} {
				add(s.sale(how))
			}
		}
		how.Clients = hundreds
		for _, p := range s.prices(strategy) {
			if how.Group = p.group; !s.options.Quick {
				add(s.sale(how))
			}
		}
	}
	if s.replicas == 1 {
		crowds := s.crowds()
		add(append(crowds.Subjects, s.hours()...)...)
		suite.Ratios = append(suite.Ratios, crowds.Ratios...)
	}
	return suite
}

// paid is sql-conditional with a reservation before each sale.
func (s *stage) paid(group bool) Subject {
	return s.sale(Setting{Strategy: conditional, Group: group, Paid: true, Clients: usual, Replicas: s.replicas})
}

// sale is measured in every round where it has a target.
func (s *stage) sale(how Setting) Subject {
	subject := s.sold(how)
	if how.Clients != usual && how.Clients != hundreds && (how.Clients != crowd || !how.Group) {
		subject.Rounds = seenOnce
	}
	return subject
}

// perSecond is a subject of which there are so many a second.
func perSecond(how Setting, measure func(x *flow.Flow, each time.Duration) Sample) Subject {
	return Subject{Name: how.String(), Setting: how, Unit: "/s", Measure: measuring(measure)}
}

// measuring is a measurement that the first failure ends.
func measuring(measure func(x *flow.Flow, each time.Duration) Sample) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, each time.Duration) (s Sample, err error) {
		err = flow.Do(ctx, func(x *flow.Flow) { s = measure(x, each) })
		return s, err
	}
}

// sold is the sale of one item, or of many, which are made the first time.
func (s *stage) sold(how Setting) Subject {
	var of *shelf
	return perSecond(how, func(x *flow.Flow, each time.Duration) Sample {
		if how.Items == 0 || of == nil {
			of = s.stockUp(x, how)
		}
		return s.sellFrom(x, each, how, of)
	})
}

// String names the setting as a subject.
func (s Setting) String() string {
	name := s.strategy() + ", " + count(s.Clients, "client") + ", " + count(s.Replicas, "replica")
	if s.Items > 0 {
		name += ", " + count(s.Items, "item")
	}
	if s.Zipf {
		name += " by Zipf"
	}
	return name
}

// shelf is the items of a sale, with what was sold of them.
type shelf struct {
	goods []int64
	// pick is the item of the next purchase; nil: the first.
	pick          func() int64
	sold, unknown int
}

// stockUp makes the items of a sale. It sells the only one on every replica, which prepares it there, and each of many twice.
func (s *stage) stockUp(x *flow.Flow, how Setting) *shelf {
	of := new(shelf)
	for range max(1, how.Items) {
		of.goods = append(of.goods, s.create(x, plenty(how.Strategy)))
	}
	plan := s.plan(how, of)
	plan.Clients, plan.Requests = 1, 2*s.replicas
	if how.Items > 0 {
		var next atomic.Int64
		plan.Clients, plan.Requests = few, 2*how.Items
		plan.Goods = func() int64 { return of.goods[int(next.Add(1))%len(of.goods)] }
		of.pick = picking(of.goods, how.Zipf)
	}
	of.add(flow.Get(load.Run(x, plan))(x))
	return of
}

func (o *shelf) add(result *load.Result) {
	o.sold += result.Sold
	o.unknown += result.Unknown
}

func (s *stage) plan(how Setting, of *shelf) load.Plan {
	plan := load.Plan{
		URL: s.url(s.served), Strategy: how.Strategy, Group: how.Group, Paid: how.Paid, GoodsID: of.goods[0], Goods: of.pick,
		Timeout: requestLimit,
	}
	s.as(how.Kind, &plan)
	return plan
}

// sellFrom measures the sale of prepared items.
func (s *stage) sellFrom(x *flow.Flow, each time.Duration, how Setting, of *shelf) Sample {
	plan := s.plan(how, of)
	plan.Clients, plan.Duration = how.Clients, lasting(how.Clients, each)
	before := s.used()
	result := flow.Get(load.Run(x, plan))(x)
	x.Must(context.Cause(x))
	of.add(result)
	after := flow.Get(s.auditAfter(x, how, s.used, func() error { return s.settle(x, of, result) }))(x)
	sample := sampleOf(result)
	sample.Costs = costs(before, after, result.Sold)
	return sample
}

// run has a load answered, and then checked by a function that counts what it is the rate and the cost of.
func (s *stage) run(x *flow.Flow, plan load.Plan, check func(*load.Result) (answered int, err error)) Sample {
	before := s.used()
	result := flow.Get(load.Run(x, plan))(x)
	answered := flow.Get(check(result))(x)
	sample := sampleOf(result)
	sample.Value, sample.Costs = float64(answered)/result.Elapsed.Seconds(), costs(before, s.used(), answered)
	return sample
}

// auditAfter audits a sale, and returns the processor time of all that was written for it, also after the answers.
// The audits of many items take as much as their sale and are left out, where that of one cannot be seen.
func (s *stage) auditAfter(ctx context.Context, how Setting, used func() map[string]servers.Processor, audit func() error) (after map[string]servers.Processor, err error) {
	if how.Items == 0 {
		err = audit()
		return used(), err
	}
	if how.Strategy == inRedis {
		if err := settled(ctx, settleWithin, func() (wrong, err error) { return s.pending(ctx) }); err != nil {
			return nil, err
		}
	}
	after = used()
	return after, audit()
}

// pending says how many orders of all items the ledger does not have yet; wrong is nil where it has every one.
func (s *stage) pending(ctx context.Context) (wrong, err error) {
	n, err := s.served.Client().Metric(ctx, "stockd_redis_stock_pending_orders")
	if err == nil && n != 0 {
		wrong = fmt.Errorf("%g orders are pending in the ledger", n)
	}
	return wrong, err
}

// lasting gives a large crowd twice the time: at first it makes its connections.
func lasting(clients int, each time.Duration) time.Duration {
	if clients >= crowd {
		return 2 * each
	}
	return each
}

func sampleOf(r *load.Result) Sample {
	at := func(quantile float64) float64 { return load.Milliseconds(r.Latency, quantile) }
	return Sample{
		Value: float64(r.Sold) / r.Elapsed.Seconds(),
		Busy:  float64(r.Errors["busy"]) / float64(max(1, r.Sent)),
		P50:   at(50), P90: at(90), P95: at(95), P99: at(99), Fastest: at(0), Slowest: at(100),
		Kilobytes: r.KilobytesPerSecond(),
	}
}

// settle waits until the ledger has every sale that was answered, and audits it.
// The figures of a strategy that sells wrongly are worthless.
func (s *stage) settle(ctx context.Context, of *shelf, result *load.Result) error {
	for problem, n := range result.Errors {
		if problem != "busy" {
			return fmt.Errorf("%d of %d requests failed: %s", n, result.Sent, problem)
		}
	}
	if result.Rejected > 0 || result.Duplicates > 0 {
		return fmt.Errorf("%d were rejected with stock left; %d orders were assigned twice", result.Rejected, result.Duplicates)
	}
	return settled(ctx, settlesWithin(len(of.goods)), func() (wrong, err error) { return s.compare(ctx, of) })
}

// settlesWithin bounds the wait for the ledger of so many items, with the time that their audits take.
func settlesWithin(items int) time.Duration { return settleWithin + time.Duration(items)*auditsEach }

// settled waits until a comparison finds nothing wrong.
func settled(ctx context.Context, within time.Duration, compare func() (wrong, err error)) error {
	for end := time.Now().Add(within); ; {
		wrong, err := compare()
		if err != nil {
			return err
		}
		late := time.Now().After(end)
		switch {
		case wrong == nil && late:
			return fmt.Errorf("the ledger had every sale only %s after the last one", (time.Since(end) + within).Round(time.Millisecond))
		case wrong == nil, late:
			return wrong
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// compare audits the items of a sale. The audit itself waits for what is pending, and longer
// than we do. wrong is the first contradiction, or nil.
func (s *stage) compare(ctx context.Context, of *shelf) (wrong, err error) {
	var orders int64
	for _, goodsID := range of.goods {
		audit, err := s.served.Client().Audit(ctx, goodsID)
		if err != nil {
			return nil, err
		}
		if wrong = cmp.Or(wrong, unclean(audit)); wrong == nil {
			orders += audit.Orders
		}
	}
	if answered, unknown := int64(of.sold), int64(of.unknown); wrong == nil && (orders < answered || orders > answered+unknown) {
		wrong = fmt.Errorf("the ledger has %d sales, buyers received %d, and the outcome of %d is unknown", orders, answered, unknown)
	}
	return wrong, nil
}

// unclean is what an audit found, or nil. Every purchase is of one unit.
func unclean(a stock.Audit) error {
	switch {
	case !a.Clean:
		return fmt.Errorf("the audit is not consistent: %d of %d sold, %d oversold, %d updates lost, %d left",
			a.Sold, a.Initial, a.Oversold, a.Lost, a.Stock)
	case a.Sold != a.Orders:
		return fmt.Errorf("the ledger has %d units in %d sales of one unit each", a.Sold, a.Orders)
	default:
		return nil
	}
}
