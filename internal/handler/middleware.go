package handler

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/telemetry"
)

// requestIDHeader identifies a request in the answer, in a problem and in the log. In its
// canonical form it is looked up without an allocation.
const requestIDHeader = "X-Request-Id"

// maxRequestID is the longest request id that is accepted from a client.
const maxRequestID = 128

// identify gives every request an id: the one that the client or the balancer sent, where it
// is fit for a log.
func identify() gin.HandlerFunc {
	prefix := rand.Text()[:13] + "-" // tells this process from all others
	var count atomic.Uint64
	return func(c *gin.Context) {
		id := c.GetHeader(requestIDHeader)
		if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, unfitForID) {
			id = prefix + strconv.FormatUint(count.Add(1), 36)
		}
		c.Header(requestIDHeader, id)
	}
}

// withoutZone lets Gin read the link-local address of a peer: it knows no zones.
func withoutZone(c *gin.Context) {
	address, port, err := net.SplitHostPort(c.Request.RemoteAddr)
	if ip, zone, ok := strings.Cut(address, "%"); err == nil && ok && zone != "" {
		c.Request.RemoteAddr = net.JoinHostPort(ip, port)
	}
}

func unfitForID(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("-._~:/+=@", r)
}

func requestID(c *gin.Context) string {
	return c.Writer.Header().Get(requestIDHeader) //nolint:canonicalheader // it is canonical, and the linter would have ID
}

// about are the attributes of a request in the log, besides its id.
func about(c *gin.Context) []any {
	return []any{"client", c.ClientIP(), "method", shorten(c.Request.Method, maxQuoted), "path", path(c)}
}

// maxPath is how many characters of a path are quoted.
const maxPath = 100

func path(c *gin.Context) string { return shorten(c.Request.URL.Path, maxPath) }

func record(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !log.Enabled(c.Request.Context(), slog.LevelDebug) {
			return
		}
		start := time.Now()
		c.Next()
		log.DebugContext(c.Request.Context(), "served", append(about(c), "status", c.Writer.Status(), "took", time.Since(start))...)
	}
}

// recovery turns a panic into a problem and logs its stack. Where a part of the answer has been
// sent, it cuts the connection, so that no client takes the part for the whole.
func recovery(log *slog.Logger, observer Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // for the server
			}
			observer.Panicked()
			log.ErrorContext(c.Request.Context(), "panic while serving", append(about(c), "cause", cause, "stack", string(debug.Stack()))...)
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			answer(c, newProblem(http.StatusInternalServerError, "internal", "Internal error"))
		}()
		c.Next()
	}
}

// closing ends each connection with its current answer when the replica is about to stop: a
// connection that is closed while idle may already carry the next request.
func closing(stopping func() bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		if stopping() {
			c.Header("Connection", "close")
		}
	}
}

// neverStored keeps an answer out of caches, such as a shared one before the replicas.
func neverStored(c *gin.Context) { c.Header("Cache-Control", "no-store") }

// ReplicaHeader names the replica that gave an answer.
const ReplicaHeader = "X-Stockd-Replica"

// nameReplica sets the header of every answer, problems included, unless the name is empty.
func nameReplica(replica string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if replica != "" {
			c.Header(ReplicaHeader, replica)
		}
	}
}

// limitBody rejects larger bodies. It passes the server's own writer, below Gin's, so that the
// server closes the connection instead of reading the rest.
func limitBody(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.Body == http.NoBody {
			return // readForm is to see that there is nothing to read
		}
		var writer http.ResponseWriter = c.Writer
		if wrapper, ok := writer.(interface{ Unwrap() http.ResponseWriter }); ok {
			writer = wrapper.Unwrap()
		}
		c.Request.Body = http.MaxBytesReader(writer, c.Request.Body, limit)
	}
}

// startTrace gives the context of a request its id and its trace: the caller's, or a new one.
// Without a tracer there are no spans, and the log still has the caller's trace id.
func startTrace(tracer trace.Tracer) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx := telemetry.WithRequestID(c.Request.Context(), requestID(c))
		if c.GetHeader("Traceparent") != "" {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(c.Request.Header))
		}
		if tracer == nil {
			c.Request = c.Request.WithContext(ctx)
			return
		}
		ctx, span := tracer.Start(ctx, c.Request.Method+" "+c.FullPath(), trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		if span.IsRecording() {
			span.SetAttributes(attribute.String("http.request.method", c.Request.Method), attribute.String("http.route", c.FullPath()),
				attribute.Int("http.response.status_code", c.Writer.Status()), attribute.String("stockd.request_id", requestID(c)))
		}
	}
}

// Observer is notified of requests. It is called from any goroutine and must not block.
type Observer interface {
	// Began and Ended are called around each request to a listener, "public" or
	// "admin". The route is its path as it was registered, and empty where there is
	// no such route; so the number of routes is bounded.
	Began(listener string)
	Ended(listener, route string, status int)
	// Shed is called for a purchase that was rejected because the "replica", the "item" or
	// the "strategy" serves as many purchases as it may.
	Shed(full string)
	// RateLimited is called for a request beyond the rate of its "user" or "address", or, by
	// "token", from an address that has sent too many wrong tokens.
	RateLimited(by string)
	// Panicked is called when a request panicked.
	Panicked()
}

// The names of listeners and of limits.
const (
	public    = "public"
	admin     = "admin"
	byUser    = "user"
	byAddress = "address"
	byToken   = "token"
)

// observe notifies the observer of every request, also of one whose connection is cut.
func observe(observer Observer, listener string) gin.HandlerFunc {
	return func(c *gin.Context) {
		observer.Began(listener)
		defer func() { observer.Ended(listener, c.FullPath(), c.Writer.Status()) }()
		c.Next()
	}
}
