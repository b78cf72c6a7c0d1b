package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/testlog"
	"github.com/stockd/stockd/pkg/client"
)

// ran is a replica in this process.
type ran struct {
	client.Client

	log  *testlog.Lines
	stop func() error // and what Run returned
}

const token = "a token of this test"

// runs serves with a replica on SQLite until the test ends.
func runs(t *testing.T, o Options, env ...string) ran {
	t.Helper()
	r := ran{Client: client.Client{Token: token}, log: &testlog.Lines{}}
	c := configuration(t, append(append(impatiently(t), "STOCKD_HTTP_LISTEN=127.0.0.1:0", "STOCKD_ADMIN_LISTEN=127.0.0.1:0", "STOCKD_ADMIN_TOKEN="+token), env...))
	ctx, cancel := context.WithCancel(t.Context())
	listens, ended := make(chan struct{}), make(chan error, 1)
	o.Listening = func(public, admin string) {
		r.URL, r.AdminURL = public, admin
		close(listens)
	}
	go func() { ended <- Run(ctx, c, r.log, o) }()
	r.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = r.stop() }) // the test may have asked
	select {
	case <-listens:
	case err := <-ended:
		ended <- err
		t.Fatalf("it ended with %v\n%s", err, r.log.String())
	}
	return r
}

// What the log holds back is written before a replica ends, however it ends.
func TestNoLineOfTheLogIsLostWithTheReplica(t *testing.T) {
	var log testlog.Lines
	broken := errors.New("no failpoints")
	err := Run(t.Context(), configuration(t, impatiently(t)), &log, Options{
		Open: func(ctx context.Context, _ config.Config, log *slog.Logger) (Failpoints, error) {
			for range 3 {
				log.WarnContext(ctx, "it happens again")
			}
			return nil, broken
		},
	})
	if !errors.Is(err, broken) || strings.Count(log.String(), "it happens again") != 2 || !strings.Contains(log.String(), "repeated=1") {
		t.Errorf("it ends with %v and the log\n%s", err, log.String())
	}
}

func (r ran) get(t *testing.T, url string) cmdtest.Answer {
	t.Helper()
	request := cmdtest.Ask(t, http.MethodGet, url)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Close = true
	return cmdtest.Do(request)
}

// scrape reads the metrics.
func (r ran) scrape(t *testing.T) string {
	t.Helper()
	request := cmdtest.Ask(t, http.MethodGet, r.AdminURL+"/metrics")
	request.Header.Set("Authorization", "Bearer "+r.Token)
	request.Close = true
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	text := must.Get(io.ReadAll(response.Body))(t)
	return string(text)
}

func TestAReplicaServesBothAPIsUntilItIsStopped(t *testing.T) {
	r := runs(t, Options{}, "STOCKD_REPLICA=shop-1", "STOCKD_HTTP_MAX_DEDUCTIONS=77", "STOCKD_DEDUCT_MAX_QUANTITY=3", "STOCKD_ADMIN_TOKEN=abababababababab",
		"STOCKD_REDIS_ADDRESSES=127.0.0.1:1", "STOCKD_REDLOCK_ADDRESSES=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "STOCKD_REDIS_MAX_OPEN=7")
	r.Token = "abababababababab"
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 5}))(t)
	sale, err := r.Deduct(t.Context(), client.Purchase{GoodsID: 1})
	if err != nil || sale.Replica != "shop-1" || sale.Remaining != 4 {
		t.Errorf("it sells %+v, %v", sale, err)
	}
	should.Reject(r.Deduct(t.Context(), client.Purchase{GoodsID: 1, Quantity: 4}))(t, client.ErrInvalid, "more than deduct.max_quantity is answered with")
	should.Contain(t, r.scrape(t),
		"stockd_config_lock_wait_seconds 3\n", "stockd_config_max_deductions 77\n", `stockd_build_info{`, `replica="shop-1"`, "stockd_stopping 0\n",
		`stockd_pool_connections_max{pool="stock"} 16`, `stockd_pool_connections_max{pool="locks"} 8`, `stockd_deductions_total{`,
		`stockd_pool_connections_max{pool="redis"} 7`, `stockd_pool_connections_max{pool="redlock"} 21`,
	)
	if !r.log.Contains("insecure configuration") {
		t.Errorf("the log does not name the weak token:\n%s", r.log.String())
	}
	should.Do(t, r.stop())
	for _, url := range []string{r.URL, r.AdminURL} {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://")); err == nil {
			conn.Close() //nolint:errcheck // it is one too many
			t.Errorf("%s is still served", url)
		}
		if want := "address=" + strings.TrimPrefix(url, "http://"); !r.log.Contains(want) {
			t.Errorf("the log lacks %s:\n%s", want, r.log.String())
		}
	}
}

// Without a token there is no admin API, and with a certificate it is served by TLS.
func TestTheAdminAPIIsServedAsConfigured(t *testing.T) {
	r := runs(t, Options{}, "STOCKD_ADMIN_TOKEN=")
	if r.AdminURL != "" || !r.log.Contains("admin API off") || r.get(t, r.URL+"/healthz").Status != http.StatusOK {
		t.Errorf("without a token the admin API is at %q, and the log is\n%s", r.AdminURL, r.log.String())
	}
	authority := must.Get(servers.NewAuthority(t.TempDir()))(t)
	issued := must.Get(authority.Issue("admin"))(t)
	r = runs(t, Options{}, "STOCKD_ADMIN_TLS_CERT_FILE="+issued.CertFile, "STOCKD_ADMIN_TLS_KEY_FILE="+issued.KeyFile)
	r.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // whose certificate it is, is tested elsewhere
	defer r.HTTP.CloseIdleConnections()
	if !strings.HasPrefix(r.AdminURL, "https://") || !strings.HasPrefix(r.URL, "http://") {
		t.Errorf("the APIs are at %s and %s", r.URL, r.AdminURL)
	}
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 5}))(t)
}

// Tokens that are replaced in their file are read while the replica goes on.
func TestTheTokensOfTheAdminAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	must.Do(t, os.WriteFile(file, []byte("alice 0123456789abcdef-alice\n"), 0o600))
	r := runs(t, Options{}, "STOCKD_ADMIN_TOKEN=", "STOCKD_ADMIN_TOKENS_FILE="+file)
	must.Do(t, os.WriteFile(file, []byte("bob 0123456789abcdef-bob\n"), 0o600))
	labtest.Await(t, "the new tokens", 10*time.Second, func() bool { return r.log.Contains("admin tokens reloaded") })
}

// failpoints are those of an experiment.
type failpoints struct{ events chan string }

func (f failpoints) Record(_ string, l lock.Locker) lock.Locker { return l }

func (f failpoints) Between(ctx context.Context, strategy string, _ int64) context.Context {
	f.events <- "between " + strategy
	return ctx
}

func (f failpoints) Routes() []handler.Route {
	return []handler.Route{{Method: http.MethodGet, Path: "/lab/here", Status: http.StatusOK, Serve: func(handler.Form) func() any { return func() any { return "here" } }}}
}

func (f failpoints) Close() error {
	f.events <- "closed"
	return nil
}

// What a program adds is there, and is closed with the replica.
func TestFailpointsAreOpenedServedAndClosed(t *testing.T) {
	f := failpoints{make(chan string, 9)}
	changed := false
	r := runs(t, Options{
		Open: func(_ context.Context, c config.Config, _ *slog.Logger) (Failpoints, error) {
			f.events <- "opened by " + c.Replica
			return f, nil
		},
		Strategies: func(_ config.Config, d strategy.Deps) strategy.Deps { changed = true; return d },
	}, "STOCKD_REPLICA=r")
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 5}))(t)
	must.Get(r.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "naive"}))(t)
	if got := r.get(t, r.AdminURL+"/lab/here"); got.Status != http.StatusOK || r.get(t, r.URL+"/lab/here").Status != http.StatusNotFound {
		t.Errorf("their route is answered with %d, and is not the public's", got.Status)
	}
	should.Do(t, r.stop())
	should.Be(t, changed, true, "the strategies were changed")
	close(f.events)
	var events []string
	for event := range f.events {
		events = append(events, event)
	}
	should.Be(t, strings.Join(events, ", "), "opened by r, between naive, closed", "the failpoints")
}

// A mistake in the configuration ends a replica before it listens; it is no failure.
func TestAMistakeInTheConfigurationEndsAReplica(t *testing.T) {
	for name, c := range map[string]struct {
		env   []string
		says  string
		usage bool
	}{
		"an unknown lock":            {[]string{"STOCKD_REDIS_GET_SET_LOCK=none"}, "redis_get_set.lock: ", true},
		"a lock that is not safe":    {[]string{"STOCKD_REDIS_GET_SET_LOCK=redis-getset", "STOCKD_STRATEGIES_ONLY_SAFE=true"}, "strategies.only_safe is set", true},
		"a default that is unsafe":   {[]string{"STOCKD_STRATEGIES_ONLY_SAFE=true", "STOCKD_DEDUCT_STRATEGY=naive"}, "deduct.strategy: ", true},
		"a default that is denied":   {[]string{"STOCKD_STRATEGIES_DENY=sql-conditional"}, "deduct.strategy: ", true},
		"a default without a fence":  {[]string{"STOCKD_DEDUCT_STRATEGY=sql-conditional", "STOCKD_DEDUCT_FENCE=true"}, "deduct.fence: ", true},
		"an old schema":              {[]string{"STOCKD_DATABASE_MIGRATE=false"}, "the schema lacks ", false},
		"an address in use":          {[]string{"STOCKD_ADMIN_LISTEN=" + taken(t), "STOCKD_ADMIN_TOKEN=" + token}, "admin.listen: listen tcp ", false},
		"a file that is no database": {[]string{"STOCKD_DATABASE_DSN=run_test.go"}, "open database.dsn: sqlite: ping: file is not a database", false},
		"a public address in use":    {[]string{"STOCKD_HTTP_LISTEN=" + taken(t)}, "http.listen: listen tcp ", false},
	} {
		listened := false
		o := Options{Listening: func(string, string) { listened = true }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := Run(ctx, configuration(t, append(append(impatiently(t), "STOCKD_HTTP_LISTEN=127.0.0.1:0"), c.env...)), io.Discard, o)
		cancel()
		if _, usage := errors.AsType[UsageError](err); err == nil || usage != c.usage || !strings.Contains(err.Error(), c.says) || listened {
			t.Errorf("%s: %v, want one that says %q", name, err, c.says)
		}
	}
}

// A name that is no strategy is found before a database is made for it.
func TestAWrongNameOpensNothing(t *testing.T) {
	for env, says := range map[string]string{
		"STOCKD_STRATEGIES_DENY=none":  `strategies.deny: "none" is not a strategy; there are naive, `,
		"STOCKD_DEDUCT_STRATEGY=hope":  `deduct.strategy: "hope" is not a strategy; there are naive, `,
		"STOCKD_STRATEGIES_DENY=mutex": "", // the one that there is opens the database
	} {
		path := filepath.Join(t.TempDir(), "stockd.db")
		ctx, cancel := context.WithCancel(t.Context())
		err := Run(ctx, configuration(t, append(impatiently(t), "STOCKD_DATABASE_DSN="+path, "STOCKD_HTTP_LISTEN=127.0.0.1:0", env)), io.Discard, Options{Listening: func(string, string) { cancel() }})
		cancel()
		_, missing := os.Stat(path)
		if wrong := says != ""; wrong != (err != nil) || wrong && !strings.HasPrefix(err.Error(), says) || wrong != os.IsNotExist(missing) {
			t.Errorf("%s: %v, and the database: %v", env, err, missing)
		}
	}
}

// A replica that cannot have both of its listeners leaves none behind.
func TestAFailedStartLeavesNoListener(t *testing.T) {
	free := must.Get(servers.FreePort())(t)
	public := servers.Loopback(free)
	env := append(impatiently(t), "STOCKD_HTTP_LISTEN="+public, "STOCKD_ADMIN_LISTEN="+taken(t), "STOCKD_ADMIN_TOKEN="+token)
	if err := Run(t.Context(), configuration(t, env), io.Discard, Options{}); err == nil {
		t.Fatal("it runs without its admin API")
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", public); err == nil {
		conn.Close() //nolint:errcheck // it is one too many
		t.Error("its public listener is open")
	}
}

// taken is the address of a listener of the test's.
func taken(t *testing.T) string {
	t.Helper()
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	return l.Addr().String()
}

// What a replica does by itself it does from its start on: it ends reservations, audits, and follows the
// switches that another replica sets.
func TestAReplicaDoesByItselfWhatNoRequestAsksFor(t *testing.T) {
	t.Parallel()
	dsn := "STOCKD_DATABASE_DSN=" + filepath.Join(t.TempDir(), "shared.db")
	r, other := runs(t, Options{}, dsn, "STOCKD_AUDIT_EVERY=1s"), runs(t, Options{}, dsn, "STOCKD_AUDIT_EVERY=0s")
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 5}))(t)
	held := must.Get(r.Reserve(t.Context(), client.Purchase{GoodsID: 1, Quantity: 2}, time.Second))(t)
	must.Do(t, other.SwitchOff(t.Context(), "mutex", "for a test"))
	late := runs(t, Options{}, dsn)
	should.Reject(late.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "mutex"}))(t, client.ErrRefused, "a replica that has just started sells through what is switched off")
	labtest.Await(t, "the reservation to end", 20*time.Second, func() bool {
		now, err := r.Goods(t.Context(), 1)
		return err == nil && now.Stock == 5
	})
	should.Be(t, must.Get(r.Reservation(t.Context(), held.ReservationID))(t).State, client.Expired, "the reservation is")
	labtest.Await(t, "the switch", 20*time.Second, func() bool {
		_, err := r.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "mutex"})
		return errors.Is(err, client.ErrRefused)
	})
	labtest.Await(t, "an audit", 20*time.Second, func() bool {
		return strings.Contains(r.scrape(t), "stockd_audit_goods 1\n")
	})
	if strings.Contains(other.scrape(t), "stockd_audit_goods 1\n") {
		t.Error("a replica audits without audit.every")
	}
}

// While a replica drains, a balancer sees that it is not ready, and every purchase is served still, as the
// switches say by then.
func TestADrainingReplicaIsNotReadyAndSells(t *testing.T) {
	t.Parallel()
	dsn := "STOCKD_DATABASE_DSN=" + filepath.Join(t.TempDir(), "shared.db")
	r, other := runs(t, Options{}, dsn, "STOCKD_HTTP_DRAIN_DELAY=6s"), runs(t, Options{}, dsn)
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 5}))(t)
	got := r.get(t, r.URL+"/readyz")
	must.Be(t, got.Status, http.StatusOK, "it is answered with", got.Text)
	r.HTTP = &http.Client{Transport: &http.Transport{}}
	stopped := make(chan error)
	go func() { stopped <- r.stop() }()
	labtest.Await(t, "the drain", time.Second, func() bool { return r.get(t, r.URL+"/readyz").Status == http.StatusServiceUnavailable })
	if _, err := r.Deduct(t.Context(), client.Purchase{GoodsID: 1}); err != nil {
		t.Errorf("a purchase is answered with %v", err)
	}
	if !strings.Contains(r.scrape(t), "stockd_stopping 1\n") {
		t.Error("the metrics do not say that it stops")
	}
	must.Do(t, other.SwitchOff(t.Context(), "mutex", "for a test"))
	labtest.Await(t, "the switch", 5*time.Second, func() bool {
		_, err := r.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "mutex"})
		return errors.Is(err, client.ErrRefused)
	})
	should.Do(t, <-stopped)
}

// What outlasts the drain is cancelled as busy, and its answer is still sent; until then it is not.
func TestAListenerCancelsWhatOutlastsItsDrain(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	c := config.Config{HTTP: config.HTTP{Drain: 50 * time.Millisecond}, Deduct: config.Deduct{Timeout: time.Minute}}
	listener := must.Get(openListener(ctx, "test", "127.0.0.1:0"))(t)
	serveOn(ctx, group, c, slog.New(slog.DiscardHandler), "public", listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop()
		<-r.Context().Done()
		should.Fail(t, context.Cause(r.Context()), stock.ErrBusy, "the cause of the cancelled request")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, `{}`) // the client notices
	}), func(string, string) {})
	request := cmdtest.Ask(t, http.MethodGet, "http://"+listener.Addr().String()+"/")
	got := cmdtest.Do(request)
	should.Be(t, got.Status, http.StatusTeapot, "the request that was cancelled is answered with", got.Text)
	if err := group.Wait(); err == nil || !strings.Contains(err.Error(), "drain public: requests were cancelled") {
		t.Errorf("it ends with %v, want what did not end by itself", err)
	}
}

// A lock or an item that the replica must not sell through is found at its start.
func TestAReplicaKnowsAtItsStartWhatItCannotSell(t *testing.T) {
	dsn := "STOCKD_DATABASE_DSN=" + filepath.Join(t.TempDir(), "shared.db")
	r := runs(t, Options{}, dsn)
	must.Get(r.Create(t.Context(), client.NewItem{GoodsID: 7, Stock: 5, Choice: &client.Choice{Strategy: "mutex"}}))(t)
	if other := runs(t, Options{}, dsn, "STOCKD_STRATEGIES_DENY=mutex"); !other.log.Contains("items cannot be sold by this replica") {
		t.Errorf("the log does not name an item whose strategy is denied:\n%s", other.log.String())
	}
	c := config.Config{GetSet: config.GetSet{Lock: "sql-row-lock"}}
	err := enforce(t.Context(), c, "a node of Galera", nil, nil)
	if _, usage := errors.AsType[UsageError](err); !usage || !strings.Contains(err.Error(), `"sql-row-lock" is a lock of one server, and the database is a node of Galera`) {
		t.Errorf("a lock of one server of several: %v", err)
	}
}

// An audit that fails is counted and logged.
func TestAnAuditThatFailsIsReported(t *testing.T) {
	p := startInnards(t, nil)
	var log testlog.Lines
	watch := observed(t, config.Config{Replica: "r", Log: config.Log{Level: "info"}})
	inventory := service.NewInventory(p.store, p.catalogue)
	defer closed(t, inventory)
	defer inBackground(t.Context(), func(ctx context.Context) {
		keepAuditing(ctx, config.Audit{Every: time.Millisecond, Timeout: time.Nanosecond}, inventory, watch.metrics, slog.New(slog.NewTextHandler(&log, nil)))
	})()
	labtest.Await(t, "a line of the log", 10*time.Second, func() bool { return log.Contains("items were not audited") })
	if text := scraped(t, watch); strings.Contains(text, "stockd_audit_failures_total 0\n") || !strings.Contains(text, "stockd_audit_failures_total ") {
		t.Error("the failure is not counted")
	}
}

// A schema is changed where that is allowed, and the log says by what; one that is up to date is not.
func TestASchemaIsBroughtUpToDate(t *testing.T) {
	c := configuration(t, impatiently(t))
	store := must.Get(OpenStore(t.Context(), c))(t)
	defer closed(t, store)
	var out testlog.Lines
	log := slog.New(slog.NewTextHandler(&out, nil))
	list, err := store.Migrations(t.Context())
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for _, allowed := range []bool{true, true, false} {
		c.Database.Migrate = allowed
		should.Fail(t, bringUpToDate(t.Context(), c, store, log), nil, "migrate=…", allowed)
	}
	if changes := strings.Count(out.String(), `msg="schema changed"`); changes != len(list) || !out.Contains("migration="+list[0].File) {
		t.Errorf("the log has %d of %d changes:\n%s", changes, len(list), out.String())
	}
}

func TestGarbageIsCollectedAsTheOperatorSays(t *testing.T) {
	for gogc, want := range map[string]int{"": garbagePercent, "50": 50} {
		before := debug.SetGCPercent(50) // as Go does for GOGC=50
		t.Setenv("GOGC", gogc)
		prepareProcess()
		should.Be(t, debug.SetGCPercent(before), want, "with GOGC=", gogc)
	}
}
