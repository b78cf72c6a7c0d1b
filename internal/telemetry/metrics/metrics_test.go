package metrics_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// scrape is what Prometheus would read.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	must.Be(t, w.Code, http.StatusOK, "a scrape is answered with", w.Body)
	return w.Body.String()
}

// wants fails where a scrape lacks a line.
func wants(t *testing.T, scraped string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+scraped, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("the scrape lacks %s; it has\n%s", line, strings.Join(about(scraped, name), "\n"))
		}
	}
}

func about(scraped, name string) (lines []string) {
	for line := range strings.Lines(scraped) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestEveryOutcomeIsCountedByItsKind(t *testing.T) {
	mysql := &stock.BackendError{Backend: "mysql", Err: errors.New("gone")}
	for _, c := range []struct {
		want    string
		outcome stock.Outcome
		err     error
	}{
		{want: "accepted"},
		{want: "replayed", outcome: stock.Outcome{Replayed: true}},
		{want: "sold-out", outcome: stock.Outcome{Rejected: stock.ErrInsufficientStock}},
		{want: "user-limit", outcome: stock.Outcome{Rejected: stock.ErrUserLimit}},
		{want: "user-missing", outcome: stock.Outcome{Rejected: stock.ErrUserUnknown}},
		{want: "stock-limit", err: stock.ErrStockLimit},
		{want: "unknown-goods", err: fmt.Errorf("goods 1: %w", stock.ErrUnknownGoods)},
		{want: "key-reused", err: stock.ErrKeyReused},
		{want: "busy", err: stock.ErrBusy},
		{want: "busy", err: fmt.Errorf("wait: %w", context.DeadlineExceeded)},
		{want: "cancelled", err: fmt.Errorf("wait: %w", context.Canceled)},
		{want: "fenced", err: stock.ErrFenced},
		{want: "lease-lost", err: stock.ErrLeaseLost},
		{want: "backend-failure", err: mysql},
		{want: "unknown", err: fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, mysql)},
		{want: "unknown", err: fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, context.DeadlineExceeded)},
		{want: "failed", err: errors.New("a mistake")},
	} {
		m := metrics.New(metrics.Build{})
		observer := m.Strategy("mutex")
		wants(t, scrape(t, m), fmt.Sprintf(`stockd_deductions_total{outcome=%q,strategy="mutex"} 0`, c.want))
		observer.Deducted(c.outcome, c.err, 20*time.Millisecond)
		scraped := scrape(t, m)
		wants(t, scraped, fmt.Sprintf(`stockd_deductions_total{outcome=%q,strategy="mutex"} 1`, c.want),
			`stockd_deduction_duration_seconds_bucket{strategy="mutex",le="0.01"} 0`,
			`stockd_deduction_duration_seconds_bucket{strategy="mutex",le="0.025"} 1`)
		failures := 0
		if errors.Is(c.err, mysql) {
			failures = 1
		}
		// A stranger can ask for a strategy that this shop has no server for: nothing
		// has failed.
		wants(t, scraped, fmt.Sprintf(`stockd_backend_failures_total{backend="mysql"} %d`, failures), `stockd_backend_failures_total{backend="etcd"} 0`)
	}
}

func TestWhatHappensUnderALockIsCounted(t *testing.T) {
	m := metrics.New(metrics.Build{})
	observer := m.Strategy("redis-lua")
	observer.TriedInVain()
	observer.Waited(3 * time.Second)
	observer.Held(time.Second, false)
	observer.Held(time.Second, false)
	observer.Held(10*time.Second, true)
	observer.Fenced()
	observer.RaceLost()
	observer.Batched(3)
	wants(t, scrape(t, m),
		`stockd_lock_tries_in_vain_total{lock="redis-lua"} 1`, `stockd_lock_wait_seconds_sum{lock="redis-lua"} 3`,
		`stockd_lock_hold_seconds_count{lock="redis-lua"} 3`, `stockd_lock_hold_seconds_sum{lock="redis-lua"} 12`,
		`stockd_lock_hold_seconds_bucket{lock="redis-lua",le="1"} 2`, `stockd_lock_hold_seconds_bucket{lock="redis-lua",le="10"} 3`, `stockd_locks_lost_total{lock="redis-lua"} 1`,
		`stockd_fenced_writes_total{lock="redis-lua"} 1`, `stockd_optimistic_races_lost_total{strategy="redis-lua"} 1`,
		`stockd_group_batch_size_sum{strategy="redis-lua"} 3`)
}

// The alert about long waits compares with the last bucket: it knows where the buckets end.
func TestTheAlertAboutWaitsKnowsTheLastBucket(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Strategy("redis-lua").Waited(45 * time.Second)
	buckets := about(scrape(t, m), "stockd_lock_wait_seconds_bucket")
	if len(buckets) < 3 || !strings.Contains(buckets[len(buckets)-3], `le="30"} 0`) {
		t.Fatalf("a wait of 45s is counted in %q", buckets)
	}
	last := regexp.MustCompile(`le="(.*)"`).FindStringSubmatch(buckets[len(buckets)-2])[1]
	rules, err := os.ReadFile("../../../deploy/stockd.rules.yml")
	if want := "clamp_max(min(stockd_config_lock_wait_seconds), " + last + ")"; err != nil || !strings.Contains(string(rules), want) {
		t.Errorf("no rule has %q (%v)", want, err)
	}
}

// An alert compares with a series from the start: what has not happened yet is 0.
func TestWhatHasNotHappenedIsZero(t *testing.T) {
	m := metrics.New(metrics.Build{Replica: "r", Version: "v", Commit: "c", GoVersion: "g"})
	lua, locked, weak := m.Strategy("redis-lua"), m.Strategy("redis-get-set-locked"), m.Strategy("redis-setnx")
	for line, happens := range map[string]func(){
		`stockd_http_requests_rate_limited_total{by="user"}`:                   func() { m.RateLimited("user") },
		`stockd_http_requests_rate_limited_total{by="address"}`:                func() { m.RateLimited("address") },
		`stockd_http_requests_rate_limited_total{by="token"}`:                  func() { m.RateLimited("token") },
		`stockd_http_requests_shed_total{full="replica"}`:                      func() { m.Shed("replica") },
		`stockd_http_requests_shed_total{full="item"}`:                         func() { m.Shed("item") },
		`stockd_http_requests_shed_total{full="strategy"}`:                     func() { m.Shed("strategy") },
		`stockd_connections_rejected_total{by="rate",listener="public"}`:       func() { m.ConnectionRejected("public", "rate") },
		`stockd_connections_rejected_total{by="connections",listener="admin"}`: func() { m.ConnectionRejected("admin", "connections") },
		`stockd_redis_stock_orders_put_aside_total`:                            m.Strategy("redis-stock").DeadLettered,
		`stockd_redis_stock_repairs_total`:                                     m.Strategy("redis-list").Repaired,
		`stockd_redis_stock_orders_written_total`:                              func() { m.Strategy("redis-decr").Written(1) },
		`stockd_redis_stock_drift_units`:                                       func() { m.Strategy("mutex").Compared(1) },
		`stockd_panics_total`:                                                  m.Panicked,
		`stockd_locks_lost_total{lock="redis-lua"}`:                            func() { lua.Held(time.Second, true) },
		`stockd_locks_lost_total{lock="redis-get-set-locked"}`:                 func() { locked.Held(time.Second, true) },
		`stockd_lock_releases_failed_total{lock="redis-lua"}`:                  lua.ReleaseFailed,
		`stockd_fenced_writes_total{lock="redis-lua"}`:                         lua.Fenced,
		`stockd_fenced_writes_total{lock="redis-setnx"}`:                       weak.Fenced,
	} {
		wants(t, scrape(t, m), line+" 0")
		happens()
		wants(t, scrape(t, m), line+" 1")
	}
	wants(t, scrape(t, m), `stockd_build_info{commit="c",go_version="g",replica="r",version="v"} 1`)
	if scraped := scrape(t, m); !strings.Contains(scraped, "\ngo_goroutines ") || !strings.Contains(scraped, "\nprocess_cpu_seconds_total ") {
		t.Error("the scrape lacks what Go and the process use")
	}
}

func TestARequestIsInFlightUntilItEnds(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Began("public")
	m.Began("public")
	m.Ended("public", "", http.StatusNotFound)
	wants(t, scrape(t, m), `stockd_http_requests_in_flight{listener="public"} 1`, `stockd_http_requests_total{listener="public",route="none",status="404"} 1`)
}

func TestTransactionsThatAreRunAgainAreCounted(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Strategy("mutex")
	wants(t, scrape(t, m), `stockd_transaction_retries_total{strategy="mutex"} 0`)
	m.Retried("mutex")
	m.Retried("") // the owner's
	wants(t, scrape(t, m), `stockd_transaction_retries_total{strategy="mutex"} 1`, `stockd_transaction_retries_total{strategy="none"} 1`)
}

func TestPanicsAreCountedWhereverTheyAreCaught(t *testing.T) {
	m := metrics.New(metrics.Build{})
	var out bytes.Buffer
	log := slog.New(m.Log(slog.NewTextHandler(&out, nil))).With("a", "b").WithGroup("c")
	m.Panicked()
	if err := background.Guard(t.Context(), log, "test", func() error { panic("out of ink") }); err == nil {
		t.Error("the panic is no error")
	}
	for range 3 {
		log.WarnContext(t.Context(), "beware")
	}
	wants(t, scrape(t, m), `stockd_panics_total 2`, `stockd_log_messages_total{level="error"} 1`, `stockd_log_messages_total{level="warn"} 3`)
	should.Be(t, strings.Count(out.String(), "beware"), 3, "of 3 lines that were counted are written")
}

// state is what a scrape finds where every backend is asked.
func state() metrics.State {
	return metrics.State{
		Stopping: func() bool { return true },
		Backends: func(context.Context) ([]service.Backend, error) {
			return []service.Backend{
				{Name: "mysql", Status: service.Down},
				{Name: "redis", Status: service.Rejecting},
				{Name: "zookeeper", Status: service.Up},
				{Name: "etcd", Status: service.NotConfigured},
			}, errors.New("the database does not answer")
		},
		Waiting: func() map[string]int { return map[string]int{"mutex": 7} },
		Lag: func(context.Context) (redisstock.Lag, error) {
			return redisstock.Lag{Orders: 5, Oldest: 3 * time.Second}, nil
		},
		Reservations: func(context.Context) (repo.Reservations, error) {
			return repo.Reservations{Open: 8, Overdue: 2, Lag: 6 * time.Second}, nil
		},
		Readers: func(context.Context) (map[string]time.Duration, error) {
			return map[string]time.Duration{"shipping": 90 * time.Second}, nil
		},
		Lines: func(context.Context) (room.Line, error) {
			return room.Line{Waiting: 4000, Admitted: 30, Admissions: 500, Left: 70, Wait: 90 * time.Second}, nil
		},
		Pools: []metrics.Pool{{Name: "stock", Stats: func() metrics.PoolStats {
			return metrics.PoolStats{Max: 16, InUse: 3, Idle: 2, Waits: 9, Waited: 4 * time.Second, Timeouts: 1}
		}}},
	}
}

func TestAScrapeAsksForTheState(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.Watch(state())
	scraped := scrape(t, m)
	wants(t, scraped, `stockd_stopping 1`, `stockd_backend_up{backend="mysql"} 0`, `stockd_backend_writable{backend="mysql"} 0`,
		`stockd_backend_up{backend="redis"} 1`, `stockd_backend_writable{backend="redis"} 0`,
		`stockd_backend_up{backend="zookeeper"} 1`, `stockd_backend_writable{backend="zookeeper"} 1`,
		`stockd_group_queue_depth{strategy="mutex"} 7`, `stockd_redis_stock_pending_orders 5`,
		`stockd_redis_stock_oldest_pending_seconds 3`, `stockd_pool_connections{pool="stock",state="in_use"} 3`,
		`stockd_pool_connections{pool="stock",state="idle"} 2`, `stockd_pool_connections_max{pool="stock"} 16`,
		`stockd_pool_waits_total{pool="stock"} 9`, `stockd_pool_wait_seconds_total{pool="stock"} 4`,
		`stockd_pool_timeouts_total{pool="stock"} 1`,
		`stockd_reservations_held 8`, `stockd_reservations_overdue 2`, `stockd_reservations_overdue_seconds 6`,
		`stockd_feed_reader_behind_seconds{reader="shipping"} 90`, `stockd_room_buyers{state="waiting"} 4000`, `stockd_room_buyers{state="admitted"} 30`,
		"stockd_room_admissions_total 500", "stockd_room_left_total 70", "stockd_room_wait_seconds 90")
	if strings.Contains(scraped, `backend_up{backend="etcd"}`) || strings.Contains(scraped, `backend_writable{backend="etcd"}`) {
		t.Error("a backend that is not configured is down")
	}
}

// What is not known has no value, and what a scrape asks for has to come within two seconds.
func TestAScrapeHasNoSeriesOfWhatIsUnknown(t *testing.T) {
	m, s, gone := metrics.New(metrics.Build{}), state(), errors.New("it does not answer")
	within := func(ctx context.Context) {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Second {
			t.Errorf("a scrape may take until %s, %v", deadline, ok)
		}
	}
	s.Stopping = func() bool { return false }
	s.Backends = func(ctx context.Context) ([]service.Backend, error) { within(ctx); return nil, gone }
	s.Lag = func(ctx context.Context) (redisstock.Lag, error) { within(ctx); return redisstock.Lag{Orders: 1}, gone }
	s.Reservations = func(ctx context.Context) (repo.Reservations, error) {
		within(ctx)
		return repo.Reservations{Open: 1}, gone
	}
	s.Readers = func(ctx context.Context) (map[string]time.Duration, error) {
		within(ctx)
		return map[string]time.Duration{"shipping": 1}, gone
	}
	s.Lines = func(ctx context.Context) (room.Line, error) { within(ctx); return room.Line{Waiting: 1}, gone }
	m.Watch(s)
	m.Limit("stockd_config_lock_wait_seconds", "The configured lock.wait.", 2.5)
	scraped := scrape(t, m)
	wants(t, scraped, `stockd_stopping 0`, `stockd_config_lock_wait_seconds 2.5`)
	for _, unknown := range []string{"stockd_backend_up", "stockd_backend_writable", "stockd_redis_stock_pending_orders", "stockd_redis_stock_oldest", "stockd_reservations_held", "stockd_reservations_overdue", "stockd_feed_reader", "stockd_room"} {
		lines := about(scraped, unknown)
		should.Be(t, len(lines), 0, "what is unknown is", lines)
	}
}

func TestReservationsAreCountedByTheirEnd(t *testing.T) {
	m := metrics.New(metrics.Build{})
	m.ReservationsEnded(stock.Expired, 3)
	m.PaidLate()
	wants(t, scrape(t, m), `stockd_reservations_ended_total{state="confirmed"} 0`, `stockd_reservations_ended_total{state="released"} 0`,
		`stockd_reservations_ended_total{state="expired"} 3`, `stockd_reservations_paid_late_total 1`)
}

func TestAnAuditThatFailsLeavesWhatTheLastOneFound(t *testing.T) {
	const at = "stockd_audit_last_success_timestamp_seconds"
	m := metrics.New(metrics.Build{})
	m.Audited(stock.Audits{}, errors.New("the database does not answer"))
	wants(t, scrape(t, m), at+` 0`, `stockd_audit_failures_total 1`)
	before := time.Now().Unix()
	m.Audited(stock.Audits{Goods: 3, Oversold: 2, Lost: 1, Vanished: 4}, nil)
	found := about(scrape(t, m), at+" ")
	var last float64
	if _, err := fmt.Sscan(strings.Fields(found[0])[1], &last); err != nil || int64(last) < before {
		t.Errorf("the last audit was at %v (%v), want %d or later", last, err, before)
	}
	m.Audited(stock.Audits{}, errors.New("the database does not answer"))
	wants(t, scrape(t, m), found[0], `stockd_audit_goods 3`, `stockd_audit_oversold_units 2`, `stockd_audit_lost_units 1`,
		`stockd_audit_vanished_units 4`, `stockd_audit_failures_total 2`)
}

// all has every metric there is, with a series of each.
func all(t *testing.T) *metrics.Metrics {
	t.Helper()
	m := metrics.New(metrics.Build{Replica: "r"})
	m.Watch(state())
	m.Limit("stockd_config_lock_wait_seconds", "The configured lock.wait.", 5)
	m.Limit("stockd_config_max_deductions", "The configured http.max_deductions.", 4096)
	m.Log(slog.DiscardHandler)
	m.Began("public")
	m.Ended("public", "/deduct", http.StatusOK)
	observer := m.Strategy("mutex")
	observer.Deducted(stock.Outcome{}, nil, time.Second)
	observer.Waited(time.Second)
	observer.Batched(1)
	observer.RaceLost()
	m.Strategy("redis-stock").Written(1)
	return m
}

// The table of docs/observation.md has the metrics that are served, with their types and labels.
func TestTheTableOfMetricsIsTrue(t *testing.T) {
	content := must.Get(os.ReadFile("../../../docs/observation.md"))(t)
	served := served(t, scrape(t, all(t)))
	row := regexp.MustCompile("(?m)^\\| `(stockd_\\w+)` \\| (\\w+) \\| ([\\w, ]*) \\|")
	for _, found := range row.FindAllStringSubmatch(string(content), -1) {
		if want, ok := served[found[1]]; !ok || found[2]+" "+found[3] != want {
			t.Errorf("%s has the type and labels %q, and is served with %q", found[1], found[2]+" "+found[3], want)
		}
		delete(served, found[1])
	}
	should.Be(t, len(served), 0, "no row describes", served)
}

// served are the types and labels of the metrics of a scrape, by their names.
func served(t *testing.T, scraped string) map[string]string {
	t.Helper()
	metrics := make(map[string]string)
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (stockd_\w+) (\w+)`).FindAllStringSubmatch(scraped, -1) {
		name, labels := found[1], make(map[string]bool)
		series := regexp.MustCompile(`(?m)^` + name + `(?:_bucket|_sum|_count)?\{(.*)\} `)
		for _, one := range series.FindAllStringSubmatch(scraped, -1) {
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(one[1], -1) {
				labels[label[1]] = true
			}
		}
		delete(labels, "le")
		metrics[name] = found[2] + " " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return metrics
}

// The cost of metrics for a purchase.
func BenchmarkObserver(b *testing.B) {
	m := metrics.New(metrics.Build{})
	observer := m.Strategy("redis-lua")
	b.ReportAllocs()
	for b.Loop() {
		m.Began("public")
		observer.Waited(time.Millisecond)
		observer.Held(time.Millisecond, false)
		observer.Deducted(stock.Outcome{}, nil, time.Millisecond)
		m.Ended("public", "/deduct", http.StatusOK)
	}
}

// pooled is a client with a pool in some state.
type pooled struct {
	redis.UniversalClient

	stats redis.PoolStats
}

func (p pooled) PoolStats() *redis.PoolStats { return &p.stats }

func TestThePoolsOfMastersAreOne(t *testing.T) {
	one := pooled{stats: redis.PoolStats{TotalConns: 5, IdleConns: 2, WaitCount: 7, WaitDurationNs: int64(time.Second), Timeouts: 1}}
	other := pooled{stats: redis.PoolStats{TotalConns: 4, IdleConns: 4, WaitCount: 1, WaitDurationNs: 5, Timeouts: 2}}
	want := metrics.PoolStats{Max: 20, InUse: 3, Idle: 6, Waits: 8, Waited: time.Second + 5, Timeouts: 3}
	should.Be(t, metrics.RedisPool("redlock", 10, one, other).Stats(), want)
}

func TestThePoolOfADatabase(t *testing.T) {
	stats := sql.DBStats{MaxOpenConnections: 16, InUse: 3, Idle: 2, WaitCount: 9, WaitDuration: time.Second}
	want := metrics.PoolStats{Max: 16, InUse: 3, Idle: 2, Waits: 9, Waited: time.Second}
	should.Be(t, metrics.SQLPool("stock", func() sql.DBStats { return stats }).Stats(), want, "the statistics")
}
