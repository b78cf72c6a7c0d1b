package client_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/telemetry/metrics"
	"github.com/stockd/stockd/pkg/client"
)

// openShop serves a replica of its own on SQLite, and puts units of item 1 on sale. The examples run
// on it.
func openShop(units int64) (shop client.Client, shut func()) {
	gin.SetMode(gin.ReleaseMode)
	ctx := context.Background()
	folder := must(os.MkdirTemp("", "stockd-example-"))
	database := backend.SQLOptions{Driver: repo.SQLite, DSN: filepath.Join(folder, "stock.db"), MaxOpen: 4, LockWait: time.Second, ConnectTimeout: time.Second}
	store := must(repo.Open(ctx, database, repo.Options{Replica: "replica-1"}))
	must(store.MigrateUp(ctx))
	deps := strategy.Deps{Store: store, LockWait: time.Second, Group: strategy.Group{Batch: 5, Units: 1000, Queue: 40}}
	deps.Lock.Clients = &backend.Clients{}
	catalogue := service.NewCatalogue(ctx, strategy.Registry(), deps, 5*time.Second)
	must(0, catalogue.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	options := handler.Options{
		Catalogue: catalogue, Inventory: service.NewInventory(store, catalogue), Feed: service.NewFeed(store),
		Reservations: service.NewReservations(store, catalogue, time.Hour, metrics.New(metrics.Build{})),
		TTL:          15 * time.Minute, LongestTTL: time.Hour, Replica: "replica-1", Reveal: true, MaxBody: 4096,
		Log: slog.New(slog.DiscardHandler), Observer: metrics.New(metrics.Build{}),
	}
	const token = "token of the admin"
	public, admin := httptest.NewServer(handler.Public(options)), httptest.NewServer(handler.Admin(options, admintoken.Single(token)))
	shop = client.Client{URL: public.URL, AdminURL: admin.URL, Token: token}
	must(shop.Create(ctx, client.NewItem{GoodsID: 1, Stock: units}))
	return shop, func() {
		public.Close()
		admin.Close()
		for _, part := range []io.Closer{catalogue, store} {
			must(0, part.Close())
		}
		must(0, os.RemoveAll(folder))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// losing loses the next answer, after stockd has sent it.
type losing struct{ lose bool }

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && l.lose {
		l.lose = false
		answer.Body = io.NopCloser(io.MultiReader()) // it is cut off after its header
	}
	return answer, err
}
