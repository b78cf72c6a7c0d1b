package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/lab/walk"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

// walkSeed names the variable that holds the seed of the walks, or the first and the last
// seed, as in 100-199.
const walkSeed = "STOCKD_SEED"

// Random walks over all that can be done to an item while it is on sale, with faults: one
// through each strategy that is exclusive across replicas, and mixed ones of the others.
// The seeds are fixed, and make prove walks new ones: a change is held to what was green
// before it. Under the seeds of these, strategies that wrote what they had
// computed from an earlier read lost a restock in every run of 4 and 28, and doubled the
// units that were moved beside them in nearly every run of 8 and in some of 100.
func TestRandomWalks(t *testing.T) {
	t.Parallel()
	names := exclusiveStrategies(servers.MariaDB)
	for half := range slices.Chunk(names, (len(names)+1)/2) { // each on a stage of its own, or this test takes longest
		t.Run("from "+half[0], func(t *testing.T) {
			t.Parallel()
			s := startWalks(t, servers.MariaDB)
			if half[0] == names[0] {
				s.mixed(t, seedsOr(t, 4, 28, 8, 100)...)
			}
			s.throughEach(t, half, seedsOr(t)...)
		})
	}
}

// The same over one replica with a database and a Redis of its own.
func TestRandomWalksOnSQLite(t *testing.T) {
	t.Parallel()
	s := startWalks(t, servers.SQLite)
	s.throughEach(t, []string{"sql-optimistic", "redis-stock"}, seedsOr(t)...)
}

// fixedSeeds are those of the walks through a strategy.
func fixedSeeds(strategy string) []uint64 {
	switch strategy {
	case "redlock":
		return []uint64{34, 36}
	case "zk-herd":
		return []uint64{10}
	case "zk-sequential":
		return []uint64{2}
	case "etcd":
		return []uint64{77, 82}
	default:
		return []uint64{1}
	}
}

// worksOn tells whether a strategy works on a database; beside SQLite there is no server of
// locks but Redis.
func worksOn(database string, entry strategy.Entry) bool {
	if database == servers.OnVitess {
		return entry.NotOnShards == ""
	}
	return database != servers.SQLite || !slices.ContainsFunc(entry.Needs, func(need backend.Name) bool {
		return need == backend.MySQL || need == backend.ZooKeeper || need == backend.Etcd
	})
}

// exclusiveStrategies are those that are exclusive across replicas, and work on a database.
func exclusiveStrategies(database string) (names []string) {
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas && worksOn(database, entry) {
			names = append(names, entry.Name)
		}
	}
	return names
}

// seedsOr are the seeds of the environment, or others where it has none.
func seedsOr(t *testing.T, others ...uint64) (seeds []uint64) {
	t.Helper()
	text := os.Getenv(walkSeed)
	if text == "" {
		return others
	}
	first, last, found := strings.Cut(text, "-")
	if !found {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 32)
	to, failed := strconv.ParseUint(last, 10, 32)
	if err := errors.Join(err, failed); err != nil {
		t.Fatalf("%s: %v", walkSeed, err)
	}
	for seed := from; seed <= to; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

// walkStage is where walks happen, one after the other.
type walkStage struct {
	lab testLab
	// database is the kind that the replicas are on.
	database string
	// paths are those of each replica to a backend: a proxy for each server of it.
	paths []map[backend.Name][]*servers.Proxy
	// restart restarts a server, which keeps its data, or one of several that are a backend.
	restart map[backend.Name]func(context.Context) error
	// shrinking is the time that was spent on shorter walks.
	shrinking time.Duration
}

// startWalks starts every backend, and replicas.
func startWalks(t *testing.T, database string) *walkStage {
	t.Helper()
	choice, replicas := servers.Choice{Mode: servers.Local, Database: database}, walk.Replicas
	if database == servers.SQLite {
		choice, replicas = servers.Choice{Mode: servers.Embedded}, 1
	} else {
		cmdtest.NeedLocal(t)
		cmdtest.NeedDatabase(t, database)
		cmdtest.NeedRedis(t)
	}
	return startWalkers(t, openShop(t, choice), database, replicas)
}

// startWalkers starts three replicas, or one on SQLite, and a proxy before each backend for each replica.
func startWalkers(t *testing.T, opened *shop.Shop, database string, replicas int) *walkStage {
	t.Helper()
	s := &walkStage{database: database, restart: make(map[backend.Name]func(context.Context) error)}
	if !opened.Embedded() {
		s.keepData(t, opened.Supervisor, opened.Servers)
	}
	own := make(map[int][]string)
	for i := range replicas {
		paths, env := pathsTo(t, opened)
		s.paths, own[i+1] = append(s.paths, paths), env
	}
	s.lab = startReplicas(t, opened, shop.Replicas{Count: replicas, Own: own, Lab: true, Env: []string{
		"STOCKD_LOCK_TTL=" + walk.LeaseTTL.String(), "STOCKD_LOCK_WAIT=2s", "STOCKD_LOCK_RETRY=2ms", "STOCKD_DEDUCT_TIMEOUT=5s",
		"STOCKD_DATABASE_LOCK_WAIT=3s",
		"STOCKD_LAB_WITHOUT=pool", // so that an item is sold from more than one fill
	}})
	return s
}

// keepData has the Redis keep its data, and lists what can be restarted.
func (s *walkStage) keepData(t *testing.T, k *servers.Supervisor, b *servers.Backends) {
	t.Helper()
	durable := must.Get(servers.StartDurableRedis(t.Context(), k))(t)
	must.Do(t, b.Redis.Close(t.Context()))
	b.Redis = durable
	for _, member := range must.Get(b.Members())(t) { // one of Redlock has another name: none is restarted
		s.restart[backend.Name(member.Name)] = member.Restart
	}
}

// pathsTo puts proxies before the backends, and returns the configuration of a replica
// that reaches them so.
func pathsTo(t *testing.T, opened *shop.Shop) (paths map[backend.Name][]*servers.Proxy, env []string) {
	t.Helper()
	links, env, err := opened.Links()
	must.Do(t, err)
	paths = make(map[backend.Name][]*servers.Proxy)
	for _, server := range slices.Sorted(maps.Keys(links)) {
		name, _, _ := strings.Cut(server, "-") // the masters of Redlock are numbered
		paths[backend.Name(name)] = append(paths[backend.Name(name)], links[server])
	}
	return paths, env
}

// mixed walks through strategies that the seeds pick.
func (s *walkStage) mixed(t *testing.T, seeds ...uint64) {
	t.Helper()
	t.Run("mixed", func(t *testing.T) {
		for _, seed := range seeds {
			s.check(t, walk.Random(seed))
		}
	})
}

// throughEach walks through each strategy with each seed, or with its fixed seeds where there is none.
func (s *walkStage) throughEach(t *testing.T, names []string, seeds ...uint64) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s.need(t, name)
			seeds := seeds
			if len(seeds) == 0 {
				seeds = fixedSeeds(name)
			}
			for _, seed := range seeds {
				s.check(t, s.through(name, seed))
			}
		})
	}
}

func (s *walkStage) through(name string, seed uint64) walk.Plan {
	var reached []backend.Name
	for _, name := range []backend.Name{backend.Database, backend.Redis, backend.Redlock, backend.ZooKeeper, backend.Etcd} {
		if s.paths[0][name] != nil {
			reached = append(reached, name)
		}
	}
	return walk.Through(name, seed, reached...)
}

// need skips the walk through a strategy whose backend this machine does not have.
func (s *walkStage) need(t *testing.T, name string) {
	t.Helper()
	for _, entry := range strategy.Registry() {
		for _, need := range entry.Needs {
			if entry.Name == name {
				s.lab.needBackend(t, string(need))
			}
		}
	}
}

const (
	// shrinkWithin bounds the searches of one stage for shorter walks that fail. A walk that
	// fails now and then counts as failing where it does so in one of shrinkTries.
	shrinkWithin = 2 * time.Minute
	shrinkTries  = 3
	// maxFaults bounds what is said of one walk: the first faults explain the others.
	maxFaults = 5
)

// check walks, and shows the shortest walk that it can find where that fails. A plan with a
// strategy that does not work on the database is left out.
func (s *walkStage) check(t *testing.T, plan walk.Plan) {
	t.Helper()
	for _, entry := range strategy.Registry() {
		if slices.Contains(plan.Strategies, entry.Name) && !worksOn(s.database, entry) {
			t.Logf("%s: %s does not work on %s", &plan, entry.Name, s.database)
			return
		}
	}
	begun := time.Now()
	run, faults, err := s.walk(t.Context(), plan)
	if err != nil {
		t.Fatalf("%s: %v", &plan, err)
	}
	t.Logf("%s: %s in %s", &plan, run.Tally(), time.Since(begun).Round(time.Millisecond))
	if len(faults) == 0 {
		return
	}
	run, faults = s.shrink(t.Context(), run, faults)
	picture := filepath.Join(t.ArtifactDir(), "walk.html")
	must.Do(t, run.Draw(picture))
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	t.Errorf("%s\nThe shortest walk that was seen to fail has %d of %d steps, over %d units and limits %v:\n%s"+
		"Repeat the search with\n\t%s=%d go test -race -tags prove -count 5 -run '^%s$' ./cmd/stocklab\n"+
		"The steps are the same each time, and their timing is not. With -artifacts their order is drawn in %s.",
		strings.Join(faults, "\n"), run.Length(), plan.Length(), run.Units, run.Limits, run.Steps(),
		walkSeed, plan.Seed, strings.ReplaceAll(t.Name(), "/", "$/^"), picture)
}

// shrink looks for a shorter walk that fails, while the stage has time left for that.
func (s *walkStage) shrink(ctx context.Context, run *walk.Run, faults []string) (*walk.Run, []string) {
	begun := time.Now()
	defer func() { s.shrinking += time.Since(begun) }()
	walk.Shrink(run.Plan, func(shorter walk.Plan) bool {
		for try := 0; try < shrinkTries && s.shrinking+time.Since(begun) < shrinkWithin; try++ {
			again, found, err := s.walk(ctx, shorter)
			if err == nil && len(found) > 0 {
				run, faults = again, found
				return true
			}
		}
		return false
	})
	return run, faults
}

// walking is a walk over one item of the stage.
type walking struct {
	*walk.Run
	*walkStage

	beside int64 // the other item of baskets
}

// walkWithin bounds a walk, which takes seconds: a replica that never answers again is an
// error with a seed, and not a test that hangs.
const walkWithin = 5 * time.Minute

// walk puts an item on sale, lets all actors go, and judges what they saw. Its error is
// about the stage, and not about what was found.
func (s *walkStage) walk(ctx context.Context, plan walk.Plan) (*walk.Run, []string, error) {
	w := walking{&walk.Run{Plan: plan, Item: s.lab.goods.Add(1), Sharded: s.database == servers.OnVitess}, s, s.lab.goods.Add(1)}
	query := url.Values{"goods_id": {strconv.FormatInt(w.Item, 10)}, "stock": {strconv.FormatInt(w.Units, 10)}}
	if len(w.Limits) > 0 {
		query.Set("per_user", strconv.FormatInt(w.Limits[0], 10))
	}
	other := url.Values{"goods_id": {strconv.FormatInt(w.beside, 10)}, "stock": {"1000"}}
	for key, item := range map[string]url.Values{"create": query, "beside": other} {
		created := w.ask(ctx, http.MethodPost, s.lab.cluster.Replicas[0].AdminURL+"/goods?"+item.Encode(), w.FullKey(key))
		if created.Outcome != history.Sold {
			return nil, nil, fmt.Errorf("create item: %s %s", created.Outcome, created.Problem)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, walkWithin, fmt.Errorf("the walk does not end within %s", walkWithin))
	defer cancel()
	var actors sync.WaitGroup
	failed := make([]error, len(w.Actors))
	for i, steps := range w.Actors {
		actors.Go(func() {
			for _, step := range steps {
				time.Sleep(step.Pause)
				failed[i] = errors.Join(failed[i], w.take(ctx, step))
			}
		})
	}
	actors.Wait()
	if err := errors.Join(errors.Join(failed...), context.Cause(ctx)); err != nil {
		return nil, nil, err
	}
	faults, err := w.end(ctx)
	return w.Run, faults, err
}

// end sells what is left, waits until nothing is pending, and judges.
func (w walking) end(ctx context.Context) (faults []string, err error) {
	first := w.lab.cluster.ClientOf(0)
	if fault := w.expire(ctx); fault != "" {
		return []string{fault}, nil
	}
	w.reopen(ctx, 0)
	if fault := w.sellOut(ctx); fault != "" {
		return []string{fault}, nil
	}
	if w.Audit, err = answered(ctx, w.Item, first.Audit); err != nil {
		return []string{fmt.Sprintf("audit: %v", err)}, nil
	}
	if w.Full, err = answered(ctx, w.Item, first.AuditInFull); err != nil {
		return []string{fmt.Sprintf("audit in full: %v", err)}, nil
	}
	if w.Ledger, err = readLedger(ctx, w.lab.database, w.Item); err != nil {
		return nil, err
	}
	if w.Beside, err = readLedger(ctx, w.lab.database, w.beside); err != nil {
		return nil, err
	}
	return w.Faults(), nil
}

// expireWithin bounds how long units are held when all faults are over. Those of a basket that a replica
// left in the middle are held for longer than a request may take.
const expireWithin = time.Minute

// expire waits until nothing is held. All faults are over.
func (w walking) expire(ctx context.Context) (fault string) {
	end := time.Now().Add(expireWithin)
	for {
		audit, err := w.lab.cluster.ClientOf(0).AuditNow(ctx, w.Item)
		switch {
		case err == nil && audit.Held == 0:
			return ""
		case time.Now().After(end):
			return fmt.Sprintf("what is held does not end within %s: %+v (%v)", expireWithin, audit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// reserve makes a reservation, and ends it as the step says.
func (w walking) reserve(ctx context.Context, s walk.Step) {
	held := w.sendUntilKnown(ctx, s)
	if held.Outcome != history.Sold || s.Ends == "" {
		return
	}
	if s.Extends {
		w.follow(ctx, s, walk.Extend, held.Order, s.Quantity)
	}
	time.Sleep(s.Keeps)
	if w.follow(ctx, s, s.Ends, held.Order, s.Quantity).Outcome == history.Sold && s.Returns > 0 {
		var copies sync.WaitGroup
		for range 2 {
			copies.Go(func() { w.follow(ctx, s, walk.Return, held.Order, s.Returns) })
		}
		copies.Wait()
	}
}

// follow takes a step of a reservation until it is known what has become of it.
func (w walking) follow(ctx context.Context, s walk.Step, do walk.Action, order string, units int64) walk.Record {
	path, key := fmt.Sprintf("/reservations/%s/%s?", order, do), ""
	if do == walk.Confirm {
		path += "payment_reference=" + order
	}
	if do == walk.Extend {
		path += fmt.Sprintf("ttl=%d", walk.ReserveTTL/time.Second)
	}
	if do == walk.Return {
		path, key = fmt.Sprintf("/orders/%s/return?quantity=%d&restock=%t", order, units, !s.Damaged), "return-"+order
	}
	as := walk.Step{Do: do, Replica: s.Replica, Quantity: units, Strategy: s.Strategy, Damaged: do == walk.Return && s.Damaged}
	return w.untilKnown(ctx, walk.Record{Step: as, Order: order}, http.MethodPost, path, key)
}

// untilKnown asks the admin API until it is known what has become of it, and adds each answer to a record.
func (w walking) untilKnown(ctx context.Context, as walk.Record, method, path, key string) (last walk.Record) {
	for range tries {
		last = w.ask(ctx, method, w.replicaOf(as.Step).AdminURL+path, w.FullKey(key))
		last.Step, last.Order, last.Starts = as.Step, as.Order, as.Starts
		w.Add(last)
		if last.Outcome != history.Unknown && last.Problem != "busy" && last.Problem != "backend-unavailable" {
			break
		}
		time.Sleep(50 * time.Millisecond)
		as.Step = w.elsewhere(as.Step)
	}
	return last
}

// turn closes the sale for a while, or delays its start.
func (w walking) turn(ctx context.Context, s walk.Step) {
	delay := walk.Record{Step: s, Starts: time.Now().Add(s.Lasts).Truncate(time.Millisecond)}
	var copies sync.WaitGroup
	for range s.Copies {
		copies.Go(func() {
			if s.Do == walk.Close {
				w.untilKnown(ctx, walk.Record{Step: s}, http.MethodPost, fmt.Sprintf("/goods/%d/close", w.Item), "")
			} else {
				w.untilKnown(ctx, delay, http.MethodPatch, fmt.Sprintf("/goods/%d?starts_at=%s", w.Item, delay.Starts.UTC().Format(time.RFC3339Nano)), "")
			}
		})
	}
	copies.Wait()
	time.Sleep(s.Lasts)
	if s.Do == walk.Close {
		w.reopen(ctx, s.Replica)
	}
}

func (w walking) reopen(ctx context.Context, replica int) {
	w.untilKnown(ctx, walk.Record{Step: walk.Step{Do: walk.Reopen, Replica: replica}}, http.MethodPatch, fmt.Sprintf("/goods/%d?starts_at=&ends_at=", w.Item), "")
}

// answerTries bounds the questions after the faults: connections that they ended fail once.
const answerTries = 5

// answered asks about an item until there is an answer.
func answered[A any](ctx context.Context, item int64, ask func(context.Context, int64) (A, error)) (answer A, err error) {
	for range answerTries {
		if answer, err = ask(ctx, item); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return answer, err
}

// sellWithin bounds the sale of what is left when all faults are over. A lock of a holder that died is
// free again within a lease.
const sellWithin = 20 * time.Second

// sellOut sells what is left, through each strategy in turn and the rest through one that
// guarantees to sell everything: wherever the walk has left the units, none is stranded.
func (w walking) sellOut(ctx context.Context) (fault string) {
	last := w.SellsAll()
	if last == "" {
		return ""
	}
	end := time.Now().Add(sellWithin)
	for n, name := range append(slices.Clone(w.Strategies), last) {
		item, err := answered(ctx, w.Item, w.lab.cluster.ClientOf(0).Goods)
		if err != nil {
			return fmt.Sprintf("what is left: %v", err)
		}
		if n < len(w.Strategies) {
			w.sendUntilKnown(ctx, walk.Step{Do: walk.Buy, Strategy: name, Quantity: max(1, item.Stock/3), Key: fmt.Sprintf("share-%d", n), Replica: n})
			continue
		}
		// What is pending counts as stock: it may be less.
		for quantity, try := max(1, item.Stock), 0; quantity > 0; try++ {
			got := w.sendUntilKnown(ctx, walk.Step{Do: walk.Buy, Strategy: name, Quantity: quantity, Key: fmt.Sprintf("rest-%d", try), Replica: try})
			switch {
			case got.Outcome == history.Rejected:
				quantity /= 2
			case got.Problem == "sale-closed": // a close without an answer came late
				w.reopen(ctx, 0)
			case got.Outcome != history.Sold && time.Now().After(end):
				return fmt.Sprintf("%s sells nothing for %s after all faults: %s %s", name, sellWithin, got.Outcome, got.Problem)
			}
		}
	}
	w.SoldOut = true
	return ""
}

func (w walking) take(ctx context.Context, s walk.Step) error {
	switch s.Do {
	case walk.Buy, walk.Restock, walk.Correct:
		w.sendCopies(ctx, s)
		return nil
	case walk.Reserve:
		w.reserve(ctx, s)
		return nil
	case walk.Order:
		w.sendUntilKnown(ctx, s)
		return nil
	case walk.Close, walk.Delay:
		w.turn(ctx, s)
		return nil
	case walk.ChangeLimit, walk.ReadItem, walk.ReadAudit, walk.Recall:
		w.Add(w.look(ctx, s))
		return nil
	default:
		if err := w.fault(ctx, s); err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
		return nil
	}
}

// fault begins a fault, and ends it.
func (w walking) fault(ctx context.Context, s walk.Step) error {
	replica := w.replicaOf(s)
	switch s.Do {
	case walk.Kill:
		if err := w.kill(ctx, s); err != nil {
			return err
		}
		time.Sleep(s.Lasts)
		return replica.Start(ctx)
	case walk.Pause:
		return w.pause(ctx, s)
	case walk.Restart:
		if restart := w.restart[s.Backend]; restart != nil { // an embedded one would lose its data
			return restart(ctx)
		}
		return nil
	default:
		return w.disturb(s)
	}
}

// middleWithin bounds the wait for a purchase that reaches its failpoint: there may be none.
const middleWithin = 300 * time.Millisecond

func (w walking) kill(ctx context.Context, s walk.Step) error {
	if s.Middle {
		armed := w.arm(ctx, s, failpoint.Fault{Do: failpoint.Crash, GoodsID: w.Item})
		select {
		case <-w.replicaOf(s).Done():
		case <-time.After(middleWithin):
			select {
			case err := <-armed:
				if err != nil {
					return err
				}
			default:
			}
		}
	}
	return w.replicaOf(s).Kill(ctx)
}

// arm sets a fault that stops or ends its replica, which a purchase may reach before the replica
// has answered.
func (w walking) arm(ctx context.Context, s walk.Step, f failpoint.Fault) <-chan error {
	armed := make(chan error, 1)
	go func() { armed <- w.client(s).SetFault(ctx, f) }()
	return armed
}

// pause has a purchase that is late go on to its write, where that is fenced.
func (w walking) pause(ctx context.Context, s walk.Step) error {
	if !s.Middle {
		if err := w.replicaOf(s).Pause(ctx); err != nil {
			return err
		}
		time.Sleep(s.Lasts)
		return w.replicaOf(s).Resume(ctx)
	}
	armed := w.arm(ctx, s, failpoint.Fault{Do: failpoint.Pause, GoodsID: w.Item, IgnoreCancel: s.Lasts > walk.LeaseTTL})
	time.Sleep(s.Lasts)
	// It may stop itself after this: then it does so until its failpoints are gone.
	cleared := make(chan error, 1)
	go func() { cleared <- errors.Join(<-armed, w.client(s).ClearFaults(ctx)) }()
	for {
		if err := w.replicaOf(s).Resume(ctx); err != nil {
			return err
		}
		select {
		case err := <-cleared:
			return errors.Join(err, w.replicaOf(s).Resume(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// slowBy is the delay of each direction of a slow path.
const slowBy = 20 * time.Millisecond

// disturb does something to the path from a replica to a backend for a while.
func (w walking) disturb(s walk.Step) (err error) {
	path := w.paths[s.Replica%len(w.paths)][s.Backend]
	for _, proxy := range path {
		switch s.Do {
		case walk.Cut:
			proxy.Cut()
		case walk.Slow:
			proxy.Slow(slowBy)
		case walk.Freeze:
			proxy.Freeze()
		case walk.FreezeReplies, walk.Lose:
			proxy.FreezeReplies()
		default:
		}
	}
	time.Sleep(s.Lasts)
	for _, proxy := range path {
		if s.Do == walk.Lose {
			proxy.Break()
		}
		proxy.Slow(0)
		proxy.Thaw()
		err = errors.Join(err, proxy.Mend())
	}
	return err
}

// replicaOf is the replica of a step: there may be fewer than it was planned for.
func (w walking) replicaOf(s walk.Step) *shop.Replica {
	return w.lab.cluster.Replicas[s.Replica%len(w.lab.cluster.Replicas)]
}

func (w walking) client(s walk.Step) shop.Client {
	return w.lab.cluster.ClientOf(s.Replica % len(w.lab.cluster.Replicas))
}

// look changes the limit, recalls units or reads the item; without an answer it is not done again.
func (w walking) look(ctx context.Context, s walk.Step) walk.Record {
	r := walk.Record{Step: s, Start: time.Now(), Outcome: history.Sold}
	var err error
	switch s.Do {
	case walk.ReadItem:
		item, failure := w.client(s).Goods(ctx, w.Item)
		r.Remaining, err = item.Stock, failure
	case walk.ReadAudit:
		r.Audit, err = w.client(s).AuditNow(ctx, w.Item)
	case walk.Recall:
		_, err = w.client(s).Recall(ctx, w.Item)
	default:
		admin := w.client(s).Shop()
		admin.Tries = 1
		_, err = admin.Change(ctx, w.Item, client.Change{PerUser: &s.Quantity})
	}
	r.End = time.Now()
	if err != nil {
		r.Outcome, r.Problem = history.Unknown, err.Error()
	}
	return r
}

// sendCopies sends a purchase or a restock until an answer is there, and once more
// where the step says so.
func (w walking) sendCopies(ctx context.Context, s walk.Step) {
	var copies sync.WaitGroup
	for range s.Copies {
		copies.Go(func() { w.sendUntilKnown(ctx, s) })
	}
	copies.Wait()
	if s.Again {
		w.sendUntilKnown(ctx, w.elsewhere(s))
	}
}

// tries bounds how often a step is sent. It outlasts the restart of a replica or a server.
const tries = 60

// sendUntilKnown sends a step with a key again while its outcome is unknown. Where a backend
// did not answer it is sent under another key: nothing may have happened under the first.
func (w walking) sendUntilKnown(ctx context.Context, s walk.Step) (last walk.Record) {
	for range tries {
		last = w.send(ctx, s)
		w.Add(last)
		failed := last.Problem == "backend-unavailable"
		if !failed && (last.Outcome != history.Unknown || s.Key == "") {
			break
		}
		if failed && s.Key != "" && s.Copies == 1 {
			s.Key += "+"
		}
		time.Sleep(50 * time.Millisecond)
		s = w.elsewhere(s)
	}
	return last
}

// elsewhere is the same step at the next replica that may do it.
func (w walking) elsewhere(s walk.Step) walk.Step {
	if s.ByAdmin() || w.Kind != walk.OneReplica {
		s.Replica = (s.Replica + 1) % walk.Replicas
	}
	return s
}

func (w walking) send(ctx context.Context, s walk.Step) walk.Record {
	replica, query := w.replicaOf(s), url.Values{"quantity": {strconv.FormatInt(s.Quantity, 10)}}
	target := fmt.Sprintf("%s/goods/%d/%s?", replica.AdminURL, w.Item, s.Do)
	if s.Do == walk.Correct {
		query = url.Values{"by": query["quantity"], "reason": {"walk"}}
	}
	if !s.ByAdmin() {
		target = replica.URL + "/deduct?"
		if s.Do == walk.Reserve {
			target = replica.URL + "/reservations?"
			query.Set("ttl", strconv.Itoa(int(walk.ReserveTTL/time.Second)))
		}
		if s.Do == walk.Order {
			target = replica.URL + "/orders?"
			query = url.Values{"lines": {fmt.Sprintf("%d:%d,%d", w.Item, s.Quantity, w.beside)}}
		} else {
			query.Set("goods_id", strconv.FormatInt(w.Item, 10))
		}
		query.Set("strategy", s.Strategy)
		query.Set("group", strconv.FormatBool(s.Group))
		query.Set("fence", strconv.FormatBool(s.Fence))
		if s.User != "" {
			query.Set("user_id", s.User)
		}
	}
	r := w.ask(ctx, http.MethodPost, target+query.Encode(), w.FullKey(s.Key))
	r.Step = s
	return r
}

// ask sends one request. What is not answered may have been sent: the transport
// itself sends a request with a key again whose connection was closed.
func (w walking) ask(ctx context.Context, method, target, key string) (r walk.Record) {
	r = walk.Record{Start: time.Now(), Outcome: history.Unknown}
	defer func() { r.End = time.Now() }()
	request, err := http.NewRequestWithContext(ctx, method, target, http.NoBody)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	request.Header.Set("Authorization", "Bearer "+w.lab.cluster.Client().Token)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		r.Problem = "no-answer"
		return r
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	var answer struct {
		Type          string `json:"type"`
		OrderID       string `json:"order_id"`
		ReservationID string `json:"reservation_id"`
		Remaining     int64  `json:"remaining"`

		Audit stock.Audit `json:"audit"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		r.Problem = "no-answer"
		return r
	}
	r.Audit = answer.Audit
	r.Order, r.Remaining, r.Problem = cmp.Or(answer.ReservationID, answer.OrderID), answer.Remaining, strings.TrimPrefix(answer.Type, handler.TypePrefix)
	switch {
	case response.StatusCode < http.StatusBadRequest:
		r.Outcome = history.Sold
	case r.Problem == "insufficient-stock":
		r.Outcome = history.Rejected
	case r.Problem != "outcome-unknown" && r.Problem != "internal":
		r.Outcome = history.Failed
	}
	return r
}

// readLedger reads what the replicas have written of an item.
func readLedger(ctx context.Context, d *servers.Database, item int64) (rows []walk.Row, err error) {
	db, _, err := d.Pool(1, time.Second)
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // it was only read
	found, err := db.QueryContext(ctx, `SELECT COALESCE(order_no, CAST(id AS CHAR)),
		kind, request_id, COALESCE(user_id, ''), strategy, quantity, remaining FROM tb_stock_ledger WHERE goods_id = ? AND kind NOT IN ('limit', 'strategy', 'sale')`, item)
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // what went wrong is in found.Err
	for found.Next() {
		var r walk.Row
		if err := found.Scan(&r.Order, &r.Kind, &r.Request, &r.User, &r.Strategy, &r.Quantity, &r.Remaining); err != nil {
			return nil, err
		}
		r.Request = stock.KeyOf(r.Request)
		rows = append(rows, r)
	}
	return rows, found.Err()
}
