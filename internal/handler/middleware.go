package handler

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
)

// requestIDHeader names a request: in the answer, in its problem and in the log.
// It is looked up for every request, and in this form without making a copy.
const requestIDHeader = "X-Request-Id"

// mostRequestID bounds the names that are taken from outside.
const mostRequestID = 128

// identify names every request, as the client does, or the balancer before us,
// where the name is fit for a log.
func identify() gin.HandlerFunc {
	prefix := rand.Text()[:13] + "-" // tells this process from all others
	var count atomic.Uint64
	return func(c *gin.Context) {
		id := c.GetHeader(requestIDHeader)
		if id == "" || len(id) > mostRequestID || strings.ContainsFunc(id, unfitForID) {
			id = prefix + strconv.FormatUint(count.Add(1), 36)
		}
		c.Header(requestIDHeader, id)
	}
}

func unfitForID(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("-._~:/+=@", r)
}

// requestID is what identify named the request.
func requestID(c *gin.Context) string {
	return c.Writer.Header().Get(requestIDHeader) //nolint:canonicalheader // it is canonical, and the linter would have ID
}

// about is what the log says of a request, beside its name.
func about(c *gin.Context) []any {
	return []any{"client", c.ClientIP(), "method", shorten(c.Request.Method, mostQuoted), "path", path(c)}
}

// mostPath is how many characters of a path are quoted.
const mostPath = 100

func path(c *gin.Context) string { return shorten(c.Request.URL.Path, mostPath) }

// record logs every request, where somebody wants that much.
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

// recovery turns a panic into a problem, and logs where it came from. Where half
// of an answer is on its way the connection is cut, so that nobody takes it for
// a whole one.
func recovery(log *slog.Logger, heard Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, is := cause.(error); is && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // it is meant for the server
			}
			heard.Panicked()
			log.ErrorContext(c.Request.Context(), "panic while serving", append(about(c), "cause", cause, "stack", string(debug.Stack()))...)
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			answer(c, newProblem(http.StatusInternalServerError, "internal", "Something went wrong here"))
		}()
		c.Next()
	}
}

// closing ends each connection with the answer that it is waiting for, when the
// replica is about to stop: a connection that is closed while it is idle may
// carry the next request already.
func closing(stopping func() bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		if stopping != nil && stopping() {
			c.Header("Connection", "close")
		}
	}
}

// ReplicaHeader names in every answer the replica that gave it.
const ReplicaHeader = "X-Stockd-Replica"

// named has every answer tell whose it is, those of problems included. Without a name
// none does.
func named(replica string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if replica != "" {
			c.Header(ReplicaHeader, replica)
		}
		c.Next()
	}
}

// limitBody refuses to read more of a body than anybody needs. The server's own
// writer is told of it, below Gin's: it would read a good deal of the rest
// before it answers.
func limitBody(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		var writer http.ResponseWriter = c.Writer
		if gins, is := writer.(interface{ Unwrap() http.ResponseWriter }); is {
			writer = gins.Unwrap()
		}
		c.Request.Body = http.MaxBytesReader(writer, c.Request.Body, limit)
	}
}
