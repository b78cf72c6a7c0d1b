// Package handler serves the HTTP APIs: routes, parsing of requests, and RFC 9457 problems. It
// knows neither SQL nor locks.
package handler

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	profiles "runtime/pprof"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/api"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/room"
)

// Options are what the routes need.
type Options struct {
	Catalogue *service.Catalogue
	Inventory *service.Inventory
	Feed      *service.Feed
	// Reservations are those of both APIs. TTL is how long one is held that does not say, and
	// LongestTTL how long at most, in whole seconds.
	Reservations    *service.Reservations
	TTL, LongestTTL time.Duration
	// MaxHeld is how many units one buyer may hold at the same time; 0 means unlimited.
	MaxHeld int64
	// PerUser is the limit per buyer of items that are created without one; 0 means unlimited.
	PerUser int64
	// PublicConfirm has the public API confirm reservations.
	PublicConfirm bool
	// Replica names this process in answers.
	Replica string
	// Choose lets purchases ask for a strategy, group or fence other than the item's.
	Choose bool
	// Reveal makes the public API show stock, replicas and lock times: see http.reveal.
	Reveal bool
	// MaxBody bounds the body of a request, in bytes.
	MaxBody int64
	// Timeout limits every request except purchases, which the service limits, and full
	// audits; 0 means unlimited.
	Timeout time.Duration
	// AuditTimeout limits a full audit; 0 means unlimited.
	AuditTimeout time.Duration
	// MaxDeductions limits concurrent purchases, of which one item has at most half; 0 means
	// unlimited.
	MaxDeductions int
	// Room is the waiting room; nil: no item has one.
	Room *room.Room
	// Buyers verifies buyers; nil trusts the field user_id.
	Buyers buyer.Source
	// BuyerRequired rejects purchases without a buyer.
	BuyerRequired bool
	Limits        Limits
	// TrustedProxies are the networks whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// AdminHosts are the names, in lower case, that the admin API answers to beside IP
	// addresses and localhost; * is any name.
	AdminHosts []string
	// Stopping reports that the replica is about to stop; nil means never.
	Stopping func() bool
	Log      *slog.Logger
	Observer Observer
	// Tracer starts the trace of a request; nil disables tracing.
	Tracer trace.Tracer
	// Metrics serves GET /metrics of the admin API; nil removes the route.
	Metrics http.Handler
	// Routes are added to the admin API.
	Routes []Route
	// Pprof has the admin API serve profiles of this process.
	Pprof bool
}

func (o Options) stopping() bool { return o.Stopping != nil && o.Stopping() }

// Public returns the routes of the public API.
func Public(o Options) http.Handler {
	s := sale{o, service.NewShop(o.Catalogue, o.Reservations, service.Admission{Choose: o.Choose, Purchases: o.MaxDeductions, Buyer: o.Limits.User, Held: o.MaxHeld, Room: o.Room})}
	g, placed, held := goods{options: o}, orders{options: o}, reservations{options: o}
	e := newEngine(o, public)
	limited := e.Group("/", limitAddresses(rate.New(o.Limits.Address), o.Observer))
	buyers := limited.Group("/", neverStored)
	buyers.POST("/deduct", s.deduct)
	buyers.POST("/reservations", s.reserve)
	buyers.GET("/reservations/:id", o.ok(held.read))
	buyers.POST("/reservations/:id/release", o.ok(held.release))
	buyers.POST("/reservations/:id/extend", o.ok(held.extend))
	if o.PublicConfirm {
		buyers.POST("/reservations/:id/confirm", o.ok(held.confirm))
	}
	buyers.POST("/orders", s.order)
	buyers.GET("/orders", o.ok(placed.find))
	buyers.POST("/queue", o.ok(line{o}.join))
	buyers.GET("/queue/:ticket", o.ok(line{o}.look))
	limited.GET("/strategies", o.ok(s.strategies))
	if o.Reveal {
		buyers.GET("/orders/:id", o.ok(placed.read))
		limited.GET("/goods/:id/audit", o.ok(ofItem(g.audit)))
	}
	limited.GET("/goods/:id", o.serve(http.StatusOK, ofItem(g.watch)))
	limited.GET("/openapi.yaml", description)
	e.GET("/healthz", healthz)
	e.GET("/readyz", neverStored, o.ok(g.readyz))
	return e
}

// Admin returns the routes of the admin API. Every path except /healthz and /readyz, known or not,
// requires a bearer token.
func Admin(o Options, tokens Tokens) http.Handler {
	o.Reveal = true
	s, g, placed := sale{options: o}, goods{options: o}, orders{options: o, private: true}
	held := reservations{options: o, private: true}
	e := newEngine(o, admin)
	e.GET("/healthz", healthz)
	e.GET("/readyz", o.ok(g.readyz)) // a crowd may have all connections of the public API
	// The gate also precedes the answers to unknown paths and methods.
	e.Use(onlyHosts(o.AdminHosts), newGate(tokens, o).admit)
	e.POST("/goods", within(o.Timeout, o.serve(http.StatusCreated, g.create)))
	e.GET("/goods", o.ok(g.list))
	e.POST("/goods/import", o.ok(g.importItems))
	e.POST("/goods/:id/restock", o.ok(ofItem(g.restock)))
	e.POST("/goods/:id/correct", o.ok(ofItem(g.correct)))
	e.POST("/goods/:id/close", o.ok(ofItem(g.close)))
	e.POST("/goods/:id/recall", o.ok(ofItem(g.recall)))
	e.GET("/goods/:id", o.ok(ofItem(g.read)))
	e.PATCH("/goods/:id", o.ok(ofItem(g.change)))
	e.GET("/goods/:id/audit", o.serve(http.StatusOK, ofItem(g.adminAudit)))
	e.GET("/goods/:id/drift", o.ok(ofItem(g.drift)))
	e.GET("/goods/:id/queue", o.ok(ofItem(line{o}.show)))
	e.GET("/orders", o.ok(placed.findOrList))
	e.GET("/orders/:id", o.ok(placed.read))
	e.POST("/orders/:id/return", o.ok(placed.giveBack))
	e.GET("/reservations/:id", o.ok(held.read))
	e.POST("/reservations/:id/confirm", o.ok(held.confirm))
	e.POST("/reservations/:id/release", o.ok(held.release))
	e.POST("/reservations/:id/extend", o.ok(held.extend))
	e.GET("/strategies", o.ok(s.strategies))
	e.PUT("/strategies/:name", o.ok(s.switchStrategy))
	if o.Metrics != nil {
		e.GET("/metrics", gin.WrapH(o.Metrics))
	}
	if o.Pprof {
		e.GET("/debug/pprof/*profile", profile)
	}
	for _, r := range o.Routes {
		r.add(e, o)
	}
	return e
}

func newEngine(o Options, listener string) *gin.Engine {
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false // the API description has no redirects
	e.UseRawPath = true             // %2F in a path must not become a slash that a proxy has not seen
	// By default Gin trusts these headers from any client.
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	proxies := make([]string, len(o.TrustedProxies))
	for i, network := range o.TrustedProxies {
		proxies[i] = network.String()
	}
	if err := e.SetTrustedProxies(proxies); err != nil { // impossible: networks that are printed
		panic(err)
	}
	replica := o.Replica
	if !o.Reveal {
		replica = ""
	}
	e.Use(withoutZone, observe(o.Observer, listener), nameReplica(replica), identify(), startTrace(o.Tracer), record(o.Log))
	if listener == admin {
		e.Use(auditWrites(o.Log), neverStored)
	}
	e.Use(recovery(o.Log, o.Observer), closing(o.stopping), limitBody(o.MaxBody))
	e.NoRoute(func(c *gin.Context) {
		answer(c, newProblem(http.StatusNotFound, "not-found", "Not found").
			detail("there is no %s here", path(c)))
	})
	e.NoMethod(func(c *gin.Context) {
		answer(c, newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "Method not allowed").
			detail("%s takes %s, not %s", path(c), c.Writer.Header().Get("Allow"), shorten(c.Request.Method, maxQuoted)))
	})
	return e
}

func description(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", api.Description) }

func healthz(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }

// profile serves GET /debug/pprof/*profile of the admin API. There is no cmdline: flags may
// hold secrets. What net/http/pprof registers by itself is served nowhere, because no listener
// serves http.DefaultServeMux.
func profile(c *gin.Context) {
	switch name := c.Param("profile")[1:]; {
	case name == "profile":
		pprof.Profile(c.Writer, c.Request)
	case name == "trace":
		pprof.Trace(c.Writer, c.Request)
	case name == "symbol":
		pprof.Symbol(c.Writer, c.Request)
	case name == "":
		pprof.Index(c.Writer, c.Request)
	case profiles.Lookup(name) != nil:
		pprof.Handler(name).ServeHTTP(c.Writer, c.Request)
	default:
		answer(c, newProblem(http.StatusNotFound, "not-found", "Not found").
			detail("there is no profile of this name"))
	}
}
