package replica

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// What the store tells of is counted in a replica, and not only where a test asks for it.
func TestTheStoreIsHeard(t *testing.T) {
	c := config.Config{Replica: "r", Log: config.Log{Level: "info"}}
	observed := must.Get(observe(t.Context(), c, io.Discard, nil))(t)
	observed.storeOptions(c).Retried("mutex")
	w := httptest.NewRecorder()
	observed.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if want := `stockd_transaction_retries_total{strategy="mutex"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("the scrape lacks %s", want)
	}
}

// instant sells without a database, under a lock or not: what is left is what
// every purchase costs.
type instant struct{}

func (instant) Deduct(_ context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return []stock.Outcome{{Order: stock.Order{GoodsID: goodsID, Quantity: batch[0].Quantity}}}, nil
}

// What a purchase costs unobserved, with metrics, and with traces.
func BenchmarkWatched(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it takes what it gets
	}))
	defer collector.Close()
	for _, c := range []struct {
		name            string
		metrics, traced bool
		sample          float64
	}{
		{name: "unobserved"},
		{name: "by-metrics", metrics: true},
		{name: "by-metrics-and-traces-of-none", metrics: true, traced: true},
		{name: "by-metrics-and-traces-of-all", metrics: true, traced: true, sample: 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			settings := config.Config{Replica: "r", Log: config.Log{Level: "info"}}
			if c.traced {
				settings.Trace = config.Trace{Endpoint: collector.URL, Sample: c.sample}
			}
			observed := must.Get(observe(b.Context(), settings, io.Discard, nil))(b)
			defer observed.Close() //nolint:errcheck // what is left is of no use
			benchmarkPurchases(b, observed, c.metrics)
		})
	}
}

func benchmarkPurchases(b *testing.B, observed observation, counted bool) {
	b.Helper()
	gin.SetMode(gin.ReleaseMode)
	store := must.Get(repo.Open(b.Context(), backend.SQLOptions{
		Driver: repo.SQLite, DSN: filepath.Join(b.TempDir(), "s.db"), MaxOpen: 1, LockWait: time.Second, ConnectTimeout: time.Second,
	}, repo.Options{}))(b)
	defer store.Close() //nolint:errcheck // the benchmark is over
	deps := strategy.Deps{Store: store, Lock: lock.Deps{Clients: &backend.Clients{}}}
	options := handler.Options{Replica: "r", Choose: true, Reveal: true, MaxBody: 1024, Log: slog.New(slog.DiscardHandler), Tracer: observed.tracer()}
	if counted {
		deps.Observe, options.Observer = observed.metrics.Strategy, observed.metrics
	}
	options.Catalogue = service.NewCatalogue(b.Context(), []strategy.Entry{{
		Name: "instant", New: func(strategy.Deps) strategy.Strategy { return instant{} },
	}}, deps, time.Minute)
	must.Do(b, options.Catalogue.SetDefault(service.Mode{Strategy: "instant"}))
	public := handler.Public(options)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		public.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/deduct?goods_id=1", http.NoBody))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
