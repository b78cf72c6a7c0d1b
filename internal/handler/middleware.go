package handler

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/gin-gonic/gin"
)

// recovery turns a panic into a problem, and logs where it came from.
func recovery(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			if cause := recover(); cause != nil {
				log.ErrorContext(c, "panic while serving", "path", c.Request.URL.Path, "cause", cause, "stack", string(debug.Stack()))
				answer(c, newProblem(http.StatusInternalServerError, "internal", "Something went wrong here"))
			}
		}()
		c.Next()
	}
}

// ReplicaHeader names in every answer the replica that gave it.
const ReplicaHeader = "X-Stockd-Replica"

// named has every answer tell whose it is, those of problems included.
func named(replica string) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header(ReplicaHeader, replica)
		c.Next()
	}
}

// limitBody refuses to read more of a body than anybody needs.
func limitBody(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
		c.Next()
	}
}

// bearer lets only those through who know the token. Hashes are compared, so
// that the time it takes tells nothing of the token, its length included.
func bearer(token string) gin.HandlerFunc {
	want := sha256.Sum256([]byte(token))
	return func(c *gin.Context) {
		scheme, given, _ := strings.Cut(c.GetHeader("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			c.Header("WWW-Authenticate", `Bearer realm="stockd"`)
			answer(c, newProblem(http.StatusUnauthorized, "unauthorized", "A bearer token is required"))
		}
	}
}
