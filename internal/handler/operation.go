package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// operation is a route: it returns the body of its answer, or an error that becomes a problem, or neither where it has
// answered.
type operation func(c *gin.Context) (any, error)

func (o Options) serve(status int, op operation) gin.HandlerFunc {
	return func(c *gin.Context) {
		body, err := op(c)
		if err != nil {
			p := problemOf(err)
			logFailure(c, o.Log, p, err)
			answer(c, p)
			return
		}
		if body == nil {
			return
		}
		noteAfter(c, body)
		c.JSON(status, body)
	}
}

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

func hasNoFields(c *gin.Context) error { return readAdminForm(c).err() }

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

// Route is one more route of the admin API: a program that runs a replica may add some.
type Route struct {
	Method, Path string
	// Fields are those that a request may have; nil: they are not read.
	Fields []string
	// Serve reads the fields, and returns what the request does. That is called unless a
	// field is wrong, and returns the body of the answer; nil: there is none.
	Serve func(Form) (do func() any)
	// Status is that of the answer.
	Status int
}

func (r Route) add(e *gin.Engine, o Options) {
	e.Handle(r.Method, r.Path, func(c *gin.Context) {
		f := &form{}
		if r.Fields != nil {
			f = readAdminForm(c, r.Fields...)
		}
		do := r.Serve(Form{f, o.Catalogue.Names})
		if err := f.err(); err != nil {
			answer(c, err)
			return
		}
		body := do()
		if body == nil {
			c.Status(r.Status)
			return
		}
		noteAfter(c, body)
		c.JSON(r.Status, body)
	})
}

// Form holds the fields of a request to a Route. A field that is wrong rejects the request.
type Form struct {
	form       *form
	strategies func() []string
}

// OneOf reads one of these words.
func (f Form) OneOf(name string, words ...string) string {
	allowed := "one of " + strings.Join(words, ", ")
	f.form.require(name, allowed)
	return f.form.oneOf(name, allowed, words...)
}

// Whole reads a whole number; where the field is missing it is otherwise.
func (f Form) Whole(name string, otherwise, least, most int64) int64 {
	return f.form.wholeOr(name, otherwise, least, most)
}

// Flag reads true or false; where the field is missing it is false.
func (f Form) Flag(name string) bool { return f.form.flag(name) }

// Duration reads a duration such as 2s.
func (f Form) Duration(name string, least, most time.Duration) time.Duration {
	allowed := fmt.Sprintf("a duration from %s to %s", least, most)
	f.form.require(name, allowed)
	return read(f.form, name, words(allowed+" such as 2s or 250ms"), jsonText, func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= least && d <= most
	})
}

// Without rejects a field that has no effect because of another one.
func (f Form) Without(name, because string) { f.form.without(name, because) }

// Strategy reads the name of a strategy, or an empty text.
func (f Form) Strategy(name string) string {
	v, given := f.form.values[name]
	if !given || v.text == "" && v.kind != jsonNull {
		return ""
	}
	if !slices.Contains(f.strategies(), v.text) {
		f.form.failf(name, "must be empty or the name of a strategy, not %s", quote(v))
	}
	return v.text
}
