package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Machine is a replica or a server, with what can be done to it by hand.
type Machine struct {
	Name string `json:"name"`
	// Kind is "replica" or "server".
	Kind string `json:"kind"`
	// Title says what it is, with its version.
	Title string `json:"title"`
	// Status is one of those below.
	Status string `json:"status"`
	// Why says why nothing can be done to its process, where that is so.
	Why string `json:"why,omitempty"`
	// Can is what else can be done to it.
	Can []string `json:"can,omitempty"`
	// Link is how the way to it is: whole, slow or cut; empty where nothing can be done to it.
	Link string `json:"link,omitempty"`

	run   runner         // nil: nothing can be done to its process
	proxy *servers.Proxy // before it; nil: there is none
}

// The statuses of a machine.
const (
	running = "running"
	paused  = "paused"
	down    = "down"
	working = "working" // something is being done to it
)

// runner is a process of a replica or of a server.
type runner interface {
	Kill(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Restart(ctx context.Context) error
}

// layout is what the replicas are started with: where it changes, they are started anew.
type layout struct {
	replicas int
	ttl      time.Duration
	room     float64 // admissions a second; 0: none
}

const (
	// lockWait is how long a purchase waits for a lock: less than in a shop, so that a lock
	// that is not released shows.
	lockWait = 3 * time.Second
	// deductTimeout is how long a purchase may take: more than in a shop, so that there is
	// time to see one that is paused, and less than the balancer waits.
	deductTimeout = 15 * time.Second
)

// actWithin bounds what is done to a machine. It is longer than the start of a server.
const actWithin = 90 * time.Second

// stage is the servers and the replicas behind the balancer.
type stage struct {
	shop   *shop.Shop // nil until it is open
	store  *repo.Store
	hub    *hub
	follow *follower

	pair *servers.RedisPair // nil: Redis is as elsewhere
	env  []string           // of the replicas, through the proxies where there are any

	changing sync.Mutex // held while a replica is added or removed, or all end
	mu       sync.Mutex
	layout   layout
	cluster  *shop.Cluster // nil while the replicas are started anew
	machines []Machine     // servers first
	// work is the failpoint that every replica has armed, also one that is started again.
	work failpoint.Fault
}

// open starts the servers, and replicas that wait for a sale.
func (s *stage) open(ctx context.Context, o Options, l layout) (err error) {
	choice := o.Servers
	if o.RedisFaults {
		choice.Redis = servers.None
	}
	if s.shop, err = shop.Open(ctx, shop.Options{Servers: choice, Progress: o.Progress}); err != nil {
		return err
	}
	if o.RedisFaults {
		if err := s.startSpare(ctx, o); err != nil {
			return err
		}
	}
	if err := s.addServers(o.Proxies); err != nil {
		return err
	}
	s.offerSpare()
	o.Progress("starting replicas on " + s.shop.Servers.Database.String())
	if err := s.arrange(ctx, l); err != nil {
		return err
	}
	s.store, err = s.shop.Servers.Database.Open(ctx, "live", 1)
	return err
}

// withoutFailpoint are the strategies that read and write in one step of a server: no purchase of theirs can be
// held or paused between the two.
func withoutFailpoint() []string { return []string{"redis-stock", "sql-procedure"} }

// check rejects work for a sale that has no failpoint to wait at, and a room without a Redis for its line.
func (s *stage) check(to Settings) error {
	if to.Room > 0 && s.shop.Servers.Redis == nil {
		return fmt.Errorf("%w: room: the line is in Redis, and there is none, so that it can be 0 alone", errInput)
	}
	if to.WorkMillis != 0 && slices.Contains(withoutFailpoint(), to.Strategy) {
		return fmt.Errorf("%w: work_ms: %s has no failpoint, so that it can be 0 alone", errInput, to.Strategy)
	}
	return nil
}

func (s *stage) lenses() (list map[string]*lens, err error) {
	list = make(map[string]*lens)
	for name := range s.shop.Servers.Infos() {
		if list[name], err = lensOf(s.shop.Servers, name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// correct takes the units off the row that do not exist by the ledger, as far as it has them. It is no correction of the
// shop's, which the ledger would have, too: the ledger is right.
func (s *stage) correct(ctx context.Context, item int64) (by int64, err error) {
	audit, err := s.store.Audit(ctx, item)
	if err != nil || audit.Lost <= 0 {
		return 0, err
	}
	err = s.store.InTx(ctx, func(tx *repo.Tx) error {
		row, err := tx.GoodsForUpdate(ctx, item) // it is sold meanwhile
		by = min(audit.Lost, row.Stock)
		if err != nil || by <= 0 {
			return err
		}
		return tx.SetStock(ctx, row, row.Stock-by)
	})
	return max(by, 0), err
}

func (s *stage) audit(ctx context.Context, item int64) (stock.Audit, error) {
	return s.store.Audit(ctx, item)
}

func (s *stage) show(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Servers = s.cluster.Infos()
	state.WithoutFailpoint, state.CannotPause = withoutFailpoint(), servers.CanPause() != nil
}

// quit ends the replicas.
func (s *stage) quit(ctx context.Context) error {
	if s.shop == nil {
		return nil
	}
	return s.closeCluster(ctx)
}

// close ends the servers, as far as they were started.
func (s *stage) close(ctx context.Context) error {
	var errs []error
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.pair != nil {
		errs = append(errs, s.pair.Close(ctx))
	}
	if s.shop != nil {
		errs = append(errs, s.shop.Close(ctx))
	}
	return errors.Join(errs...)
}

// prepare arranges the replicas, and gives the purchases of the item work.
func (s *stage) prepare(ctx context.Context, item int64, settings Settings) error {
	if err := s.arrange(ctx, settings.layout()); err != nil {
		return err
	}
	return s.setWork(ctx, item, time.Duration(settings.WorkMillis)*time.Millisecond)
}

// arrange starts the replicas as a layout says, unless they run like that; what was killed
// or paused by hand runs again afterwards.
func (s *stage) arrange(ctx context.Context, l layout) error {
	s.mu.Lock()
	list, same := slices.Clone(s.machines), s.cluster != nil && s.layout == l && !s.follow.full()
	s.mu.Unlock()
	for _, m := range list {
		if m.Kind == "replica" && !same {
			continue
		}
		if err := s.heal(ctx, m); err != nil {
			return err
		}
	}
	if same {
		return nil
	}
	return s.restart(ctx, l)
}

// heal has a machine run again, and the way to it whole. The process of one that was replaced stays as it is.
func (s *stage) heal(ctx context.Context, m Machine) (err error) {
	if what := map[string]string{paused: Resume, down: Start}[m.Status]; what != "" && m.Why == "" {
		err = s.act(ctx, m.Name, what)
	}
	if what := map[string]string{cut: Mend, slow: Fast}[m.Link]; what != "" {
		err = errors.Join(err, s.act(ctx, m.Name, what))
	}
	return err
}

// restart ends the replicas and starts others.
func (s *stage) restart(ctx context.Context, l layout) error {
	if err := s.closeCluster(ctx); err != nil {
		return err
	}
	c, err := s.shop.Start(ctx, shop.Replicas{
		Count: l.replicas, Lab: true, Servers: s.env,
		Env: append(l.roomEnv(), "STOCKD_LOCK_TTL="+l.ttl.String(), "STOCKD_LOCK_WAIT="+lockWait.String(), "STOCKD_DEDUCT_TIMEOUT="+deductTimeout.String()),
	})
	if err != nil {
		return fmt.Errorf("start replicas: %w", err)
	}
	files := make([]string, len(c.Replicas))
	s.mu.Lock()
	s.cluster, s.layout, s.work = c, l, failpoint.Fault{}
	for i, r := range c.Replicas {
		files[i] = r.History()
		s.enter(r)
	}
	s.mu.Unlock()
	s.follow.files(files)
	s.publish()
	return nil
}

// closeCluster ends replicas and balancer.
func (s *stage) closeCluster(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	c := s.cluster
	s.cluster = nil
	s.machines = slices.DeleteFunc(s.machines, func(m Machine) bool { return m.Kind == "replica" })
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	s.publish()
	s.follow.files(nil)
	for _, r := range c.Replicas { // one that is paused would not end
		_ = r.Resume(ctx) // it may have ended
	}
	err := c.Close(ctx)
	for _, r := range c.Replicas { // what is recorded may be large
		if gone := os.Remove(r.History()); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// watch notices the end of a replica that was not asked for. The caller holds mu.
func (s *stage) watch(r *shop.Replica) {
	done, c := r.Done(), s.cluster
	go func() {
		<-done
		at := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cluster != c { // the replicas were ended together
			return
		}
		s.follow.died(r.Name, at)
		if s.set(r.Name, down, running, paused) {
			s.hub.publish(Mark{At: millis(at), Who: r.Name, What: "ended"})
			s.publishLocked()
		}
	}()
}

// machine is the one with a name, or nil; the caller holds mu.
func (s *stage) machine(name string) *Machine {
	for i := range s.machines {
		if s.machines[i].Name == name {
			return &s.machines[i]
		}
	}
	return nil
}

// set changes the status of a machine that has one of the others; the caller holds mu.
func (s *stage) set(name, to string, from ...string) bool {
	m := s.machine(name)
	if m == nil || !slices.Contains(from, m.Status) {
		return false
	}
	m.Status = to
	return true
}

// replicas are those that sell, running or not; the caller holds mu.
func (s *stage) replicas() (list []*shop.Replica) {
	for _, m := range s.machines {
		if r, ok := m.run.(*shop.Replica); ok {
			list = append(list, r)
		}
	}
	return list
}

func (s *stage) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked()
}

func (s *stage) publishLocked() { s.hub.publish(machines(slices.Clone(s.machines))) }

// errConflict tells a command that does not fit the state.
var errConflict = errors.New("this cannot be done now")

// faults arms a replica with these, and no others. Work that takes no time is none.
func faults(ctx context.Context, c shop.Client, list ...failpoint.Fault) error {
	if err := c.ClearFaults(ctx); err != nil {
		return err
	}
	for _, f := range list {
		if f.Do == failpoint.Hold && f.For == 0 {
			continue
		}
		if err := c.SetFault(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// trapped notices that a replica has stopped itself.
func (s *stage) trapped(name string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set(name, paused, running) {
		s.hub.publish(Mark{At: millis(at), Who: name, What: "trapped"})
		s.publishLocked()
	}
}

// arm gives a replica the failpoint that every one has, and no other.
func (s *stage) arm(ctx context.Context, c *shop.Cluster, r *shop.Replica) error {
	s.mu.Lock()
	work := s.work
	s.mu.Unlock()
	return faults(ctx, c.ClientTo(r), work)
}

// maxWork is how many purchases of a replica can be given work: as many as a fault takes.
const maxWork = 1_000_000

// setWork has every purchase of an item take time between its read and its write.
func (s *stage) setWork(ctx context.Context, item int64, d time.Duration) error {
	s.mu.Lock()
	c, replicas := s.cluster, s.replicas()
	s.work = failpoint.Fault{Do: failpoint.Hold, GoodsID: item, For: d, Times: maxWork}
	s.mu.Unlock()
	for _, r := range replicas {
		if err := s.arm(ctx, c, r); err != nil {
			return err
		}
	}
	return nil
}

// client goes through the balancer, and to the admin API of a replica that runs.
func (s *stage) client() (shop.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		if r, ok := m.run.(*shop.Replica); ok && m.Status == running {
			c := s.cluster.ClientTo(r)
			c.URL = s.cluster.URL
			return c, nil
		}
	}
	return shop.Client{}, fmt.Errorf("%w: no replica runs", errConflict)
}

// addServers lists the servers, each behind a proxy where there are proxies and an address leads to it. To one in
// this process nothing can be done.
func (s *stage) addServers(proxies bool) error {
	list, err := s.shop.Servers.Members()
	if err != nil {
		return err
	}
	s.env = s.shop.Servers.Env()
	var links map[string]*servers.Proxy
	if proxies {
		if links, s.env, err = s.shop.Links(); err != nil {
			return err
		}
	}
	for _, server := range list {
		m := Machine{Name: server.Name, Kind: "server", Title: server.String(), Status: running, run: server, proxy: links[server.Name]}
		if server.Started == servers.Embedded {
			m.Why, m.run = "embedded", nil
		}
		if m.proxy != nil {
			m.Link = whole
		}
		s.machines = append(s.machines, m)
	}
	return nil
}

// ground is what a sale takes place on: servers and replicas of our own, or replicas that
// others run.
type ground interface { //nolint:interfacebloat // what is done to a sale stands in one place
	// check names the first setting that is not possible here.
	check(s Settings) error
	// prepare has replicas as the settings say for the sale of an item, and every purchase of
	// it take time between its read and its write.
	prepare(ctx context.Context, item int64, s Settings) error
	// client reaches the replicas through their balancer.
	client() (shop.Client, error)
	// audit compares row and ledger of an item, without waiting for what is pending.
	audit(ctx context.Context, item int64) (stock.Audit, error)
	// correct takes the units off the row of an item that the ledger has not, and returns how many.
	correct(ctx context.Context, item int64) (by int64, err error)
	// act does something to a machine, and returns when it is done.
	act(ctx context.Context, name, what string) error
	// experiment makes experiments of the lab on the servers.
	experiment(ctx context.Context, plan experiments.Plan) error
	// lenses are the ways to look at the servers, by their names.
	lenses() (map[string]*lens, error)
	// show says where the sale takes place.
	show(state *State)
	// quit ends the replicas of our own, and with them the requests.
	quit(ctx context.Context) error
	// close ends what is left.
	close(ctx context.Context) error
}
