// Package handler speaks HTTP: routes, the reading of requests, and problems
// as RFC 9457 has them. It knows nothing of SQL or of locks.
package handler

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/api"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/service"
)

// Options are what the routes need.
type Options struct {
	Catalogue *service.Catalogue
	Inventory *service.Inventory
	// Replica names this process in answers.
	Replica string
	// Choose lets purchases ask for another strategy, group or fence than the item's.
	Choose bool
	// Reveal has the public API tell what a buyer need not know: see http.reveal.
	Reveal bool
	// MaxBody bounds the body of a request, in bytes.
	MaxBody int64
	// Timeout bounds every request but a purchase, which its service bounds, and a full
	// audit; 0 sets no bound.
	Timeout time.Duration
	// AuditTimeout bounds a full audit; 0 sets no bound.
	AuditTimeout time.Duration
	// MaxDeductions bounds the purchases that are served at a time, of which one item
	// has at most half; 0 sets no bound.
	MaxDeductions int
	// Buyers verifies who buys; nil: the field user_id tells.
	Buyers buyer.Source
	// BuyerRequired rejects purchases that do not tell who buys.
	BuyerRequired bool
	// Limits bound how often somebody may ask.
	Limits Limits
	// TrustedProxies are the addresses and networks whose X-Forwarded-For tells
	// who a client is; nobody's where it is empty. They must be well formed.
	TrustedProxies []string
	// AdminHosts are the names, in lower case, that the admin API answers to beside IP
	// addresses and localhost; * is any name.
	AdminHosts []string
	// Stopping tells that the replica is about to stop; nil: it never is.
	Stopping func() bool
	Log      *slog.Logger
	// Observer hears how requests fare; nil: nobody does.
	Observer Observer
	// Tracer begins the trace of a request; nil: nothing is traced.
	Tracer trace.Tracer
	// Metrics answers the owner's GET /metrics; nil: there is no such route.
	Metrics http.Handler
	// Routes are added to the admin API.
	Routes []Route
	// Pprof has the owner's listener serve profiles of this process.
	Pprof bool
}

// Public returns the routes for buyers.
func Public(o Options) http.Handler {
	sale := sale{options: o, places: newPlaces(o.MaxDeductions), users: newLimiter(o.Limits.User)}
	goods, orders := goods{options: o}, orders{options: o}
	engine := engine(o, public)
	buyers := engine.Group("/", limitAddresses(newLimiter(o.Limits.Address), o.heard()))
	buyers.POST("/deduct", sale.deduct)
	buyers.GET("/orders", within(o.Timeout, orders.find))
	buyers.GET("/strategies", within(o.Timeout, sale.strategies))
	if o.Reveal {
		buyers.GET("/orders/:id", within(o.Timeout, orders.read))
		buyers.GET("/goods/:id", within(o.Timeout, goods.read))
		buyers.GET("/goods/:id/audit", within(o.Timeout, goods.audit))
	} else {
		buyers.GET("/goods/:id", within(o.Timeout, goods.readConcealed))
	}
	buyers.GET("/openapi.yaml", description)
	engine.GET("/healthz", healthz)
	engine.GET("/readyz", within(o.Timeout, goods.readyz))
	return engine
}

// Admin returns the routes of the admin API. But for /healthz, every path, known or not,
// is behind a bearer token.
func Admin(o Options, tokens Tokens) http.Handler {
	o.Reveal = true
	sale, goods, orders := sale{options: o}, goods{options: o}, orders{options: o, private: true}
	engine := engine(o, admin)
	engine.GET("/healthz", healthz)
	// It is before the answers to unknown paths and methods as well.
	engine.Use(onlyHosts(o.AdminHosts), newGate(tokens, o).admit)
	engine.POST("/goods", within(o.Timeout, goods.create))
	engine.POST("/goods/:id/restock", within(o.Timeout, goods.restock))
	engine.POST("/goods/:id/recall", within(o.Timeout, goods.recall))
	engine.GET("/goods/:id", within(o.Timeout, goods.read))
	engine.PATCH("/goods/:id", within(o.Timeout, goods.change))
	engine.GET("/goods/:id/audit", goods.auditForOwner)
	engine.GET("/goods/:id/drift", within(o.Timeout, goods.drift))
	engine.GET("/orders", within(o.Timeout, orders.findOrList))
	engine.GET("/orders/:id", within(o.Timeout, orders.read))
	engine.GET("/strategies", within(o.Timeout, sale.strategies))
	engine.PUT("/strategies/:name", within(o.Timeout, sale.switchStrategy))
	if o.Metrics != nil {
		engine.GET("/metrics", gin.WrapH(o.Metrics))
	}
	if o.Pprof {
		engine.GET("/debug/pprof/*profile", profile)
	}
	for _, r := range o.Routes {
		r.add(engine, o)
	}
	return engine
}

func engine(o Options, listener string) *gin.Engine {
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false // a redirect is no answer that is described
	e.UseRawPath = true             // so that %2F within a path is no slash that a proxy has not seen
	// Gin believes everybody who says who somebody else is, unless it is told.
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := e.SetTrustedProxies(o.TrustedProxies); err != nil {
		panic(err) // the configuration has been checked
	}
	replica := o.Replica
	if listener == public && !o.Reveal {
		replica = ""
	}
	e.Use(observed(o.heard(), listener), named(replica), identify(), follow(o.Tracer), record(o.Log))
	if listener == admin {
		e.Use(auditWrites(o.Log))
	}
	e.Use(recovery(o.Log, o.heard()), closing(o.Stopping), limitBody(o.MaxBody))
	e.NoRoute(func(c *gin.Context) {
		answer(c, newProblem(http.StatusNotFound, "not-found", "Nothing here").
			detail("there is no %s here", path(c)))
	})
	e.NoMethod(func(c *gin.Context) {
		answer(c, newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "Not this method").
			detail("%s takes no %s", path(c), shorten(c.Request.Method, mostQuoted)))
	})
	return e
}

func description(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", api.Description) }

func healthz(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }
