package handler

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

// operation is a route: it returns the body of its answer, or an error that becomes a problem.
type operation func(c *gin.Context) (any, error)

// serve answers with the result of an operation.
func (o Options) serve(status int, op operation) gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := op(c)
		if err != nil {
			p := problemOf(err)
			logFailure(c, o.Log, p, err)
			answer(c, p)
			return
		}
		noteAfter(c, body)
		c.JSON(status, body)
	}
}

// ok serves an operation within the usual time limit.
func (o Options) ok(op operation) gin.HandlerFunc {
	return within(o.Timeout, o.serve(http.StatusOK, op))
}

// ofItem reads the id of an operation's path. One item has one path, which a cache or a balancer may go by.
func ofItem(op func(*gin.Context, int64) (any, error)) operation {
	return func(c *gin.Context) (any, error) {
		text := c.Param("id")
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 || strconv.FormatInt(id, 10) != text {
			return nil, invalid(fieldError{"goods_id", "must be a whole number from 1 to " +
				strconv.FormatInt(math.MaxInt64, 10) + " without a sign or leading zeros, not " + quote(value{text: text})})
		}
		return op(c, id)
	}
}

// hasNoFields reads a request that takes no fields.
func hasNoFields(c *gin.Context) error {
	f, err := readAdminForm(c)
	if err != nil {
		return err
	}
	return f.err()
}

// logFailure logs what needs an operator: a backend that fails or an internal error.
func logFailure(c *gin.Context, log *slog.Logger, p problem, err error) {
	_, meant := errors.AsType[problem](err) // such as that this replica is about to stop
	if p.Status >= http.StatusInternalServerError && !meant && p.Type != TypePrefix+busy {
		log.ErrorContext(c.Request.Context(), "request failed", append(about(c), "problem", p.Type, "backend", p.Backend, "error", err)...)
	}
}

// within gives a route a time limit; 0 means none.
func within(limit time.Duration, serve gin.HandlerFunc) gin.HandlerFunc {
	if limit == 0 {
		return serve
	}
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		serve(c)
	}
}

// sendWithin is how long an answer that took long may take to send.
const sendWithin = 5 * time.Second

// extendWrite lets an answer be written for as long as the context of its request lasts,
// beyond what the server allows from the header of a request to the end of its answer.
func extendWrite(c *gin.Context) {
	if deadline, ok := c.Request.Context().Deadline(); ok {
		// A writer that has no deadlines has none to extend.
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(deadline.Add(sendWithin))
	}
}
