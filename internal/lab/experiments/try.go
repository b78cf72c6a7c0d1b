package experiments

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
)

// Try is one try of a part: what its function acts on. As a context it ends with the first failure.
type Try struct {
	*flow.Flow

	Supervisor *servers.Supervisor
	// Backends are those of the run, but for those that the stage has of its own.
	Backends *servers.Backends
	// Cluster is nil where the stage has no replicas.
	Cluster *shop.Cluster
	// Item is used by this try alone, as are its locks.
	Item int64
	// Start is when Do began.
	Start time.Time
	// History takes what happens.
	History *history.Writer

	// Proxy is what the stage has put before a server, or nil.
	Proxy *servers.Proxy

	// Pair is a Redis with a replica, and Links stand before the masters for the first replica of the service alone.
	// They are nil until the stage made them.
	Pair  *servers.RedisPair
	Links []*servers.Proxy
	// Own are variables of single replicas, by their number from 1, beside those of
	// the stage.
	Own map[int][]string

	// clock is that of contenders; it stands still but for turn.
	clock   atomic.Int64
	started sync.WaitGroup
	spoilt  bool
	mu      sync.Mutex
	closers []func() error
}

// do is flow.Do, and waits for all that was started.
func (x *Try) do(ctx context.Context, what func(x *Try)) error {
	return flow.Do(ctx, func(f *flow.Flow) {
		x.Flow = f
		defer x.started.Wait()
		what(x)
	})
}

// Alone does the steps of a try that has no stage, and writes down what happens there. What is for later may fail: servers
// were broken.
func Alone(ctx context.Context, to *history.Writer, what func(x *Try)) error {
	x := &Try{History: to}
	err := x.do(ctx, what)
	for _, do := range slices.Backward(x.closers) {
		_ = do()
	}
	return errors.Join(err, to.Close())
}

// start does something in a goroutine of its own; wait waits for all that was started.
func (x *Try) start(do func()) { x.started.Go(do) }

func (x *Try) wait() {
	x.started.Wait()
	x.Must(context.Cause(x))
}

// Client speaks to the replicas through their balancer.
func (x *Try) Client() shop.Client { return x.Cluster.Client() }

// URL is where a buyer goes: to one of the replicas, from 1, or with 0 to the
// balancer.
func (x *Try) URL(replica int) string {
	if replica == 0 {
		return x.Cluster.URL
	}
	return x.Cluster.Replicas[replica-1].URL
}

// Mark writes down that something was done, now.
func (x *Try) Mark(who, what string) {
	x.Add(history.Line{Mark: &history.Mark{At: time.Now(), Who: who, What: what}})
}

// Figure writes down a number.
func (x *Try) Figure(name string, value float64) {
	x.Add(history.Line{Figure: &history.Figure{Name: name, Value: value}})
}

// Figures write down numbers in the order of their names.
func (x *Try) Figures(numbers map[string]float64) {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		x.Figure(name, numbers[name])
	}
}

// Add writes down a line of evidence.
func (x *Try) Add(line history.Line) { x.Must(x.History.Add(line)) }

// Spoil tells that the replicas cannot serve another try: one was killed, or its
// servers are not what they were.
func (x *Try) Spoil() { x.spoilt = true }

// Later has something done at the end of the try, whatever comes of it, the last
// one first.
func (x *Try) Later(do func() error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closers = append(x.closers, do)
}

// provisioner makes the experiments of a plan, and sets up the environment of each try. Replicas serve every try in a row that
// has the same stage, unless one of them spoilt them.
type provisioner struct {
	shop     *shop.Shop
	plan     Plan
	lastItem int64 // the last that an environment got, where the plan names none

	cluster *shop.Cluster
	stage   Stage          // of the cluster
	galera  *servers.Nodes // nil until a stage had nodes
}

func (t *provisioner) lacks(stage Stage) string {
	if stage.Nodes > 0 {
		if _, _, err := servers.FindGalera(); err != nil {
			return err.Error()
		}
	}
	for _, need := range stage.Needs {
		if need == MySQL {
			if t.shop.Embedded() {
				return "needs MySQL or MariaDB: SQLite has neither row locks nor connections that wait for them"
			}
			continue
		}
		if reason, missing := t.shop.Servers.Missing[string(need)]; missing {
			return reason
		}
	}
	return ""
}

func (t *provisioner) execute(ctx context.Context, p Part, file string) (err error) {
	writer, err := history.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	backends := *t.shop.Servers
	s := &Try{Supervisor: t.shop.Supervisor, Backends: &backends, Item: t.nextItem(), History: writer}
	s.clock.Store(int64(clockStart))
	defer func() { err = errors.Join(err, t.tearDown(context.WithoutCancel(ctx), s)) }()
	if err := t.set(ctx, s, p.Stage); err != nil {
		return err
	}
	s.Start = time.Now()
	attempt := attemptOf(s, file)
	over := t.plan.Progress.Attempt(attempt)
	err = s.do(ctx, p.Do)
	if over(); err != nil {
		s.Spoil() // a replica may be paused
		return err
	}
	for _, record := range attempt.Files[1:] { // what the replicas recorded since the try began
		err = errors.Join(err, writer.Copy(record, s.Start))
	}
	return err
}

func (t *provisioner) nextItem() int64 {
	if t.plan.NextItem != nil {
		return t.plan.NextItem()
	}
	t.lastItem++
	return t.lastItem
}

// set starts everything that the stage needs.
func (t *provisioner) set(ctx context.Context, s *Try, stage Stage) error {
	var env []string
	s.Own = stage.Own
	if stage.Servers != nil {
		if err := s.do(ctx, func(x *Try) { env = stage.Servers(x) }); err != nil {
			return err
		}
		s.Spoil() // its servers end with the try
	}
	if stage.Nodes > 0 {
		if err := t.writeToNodes(ctx, s, stage); err != nil {
			return err
		}
	}
	if stage.Replicas == 0 {
		return nil
	}
	if t.cluster != nil && (s.spoilt || !stage.same(t.stage)) {
		if err := t.close(ctx); err != nil {
			return err
		}
	}
	if t.cluster == nil {
		c, err := t.shop.Start(ctx, shop.Replicas{
			// What stands later wins.
			Count: stage.Replicas, Env: slices.Concat(stage.Env, env), Own: s.Own, Lab: stage.Lab,
		})
		if err != nil {
			return err
		}
		t.cluster, t.stage = c, stage
	}
	s.Cluster = t.cluster
	return nil
}

// writeToNodes has each replica write to one of the nodes, and starts them where they do not run.
func (t *provisioner) writeToNodes(ctx context.Context, s *Try, stage Stage) (err error) {
	if t.galera == nil {
		t.plan.Progress.Say("starting three nodes of Galera")
		if t.galera, err = servers.StartGalera(ctx, t.shop.Supervisor, false); err != nil {
			return err
		}
	}
	s.Own = make(map[int][]string, stage.Replicas)
	for i := range stage.Replicas {
		s.Own[i+1] = slices.Concat(stage.Own[i+1], t.galera.Nodes[i%stage.Nodes].Env())
	}
	return nil
}

// end closes what serves more than one try.
func (t *provisioner) end(ctx context.Context) error {
	err := t.close(ctx)
	if t.galera != nil {
		err = errors.Join(err, t.galera.Close(ctx))
	}
	return err
}

// same tells whether one cluster serves both stages.
func (a Stage) same(b Stage) bool {
	return a.Replicas == b.Replicas && a.Nodes == b.Nodes && a.Lab == b.Lab && slices.Equal(a.Env, b.Env) && a.Own == nil && b.Own == nil
}

func (t *provisioner) tearDown(ctx context.Context, s *Try) error {
	var errs []error
	for _, do := range slices.Backward(s.closers) {
		errs = append(errs, do())
	}
	if s.spoilt {
		errs = append(errs, t.close(ctx))
	}
	return errors.Join(errs...)
}

func (t *provisioner) close(ctx context.Context) error {
	if t.cluster == nil {
		return nil
	}
	err := t.cluster.Close(ctx)
	t.cluster = nil
	return err
}
