package handler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

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

// add mounts the route.
func (r Route) add(e *gin.Engine, o Options) {
	e.Handle(r.Method, r.Path, func(c *gin.Context) {
		f := &form{}
		if r.Fields != nil {
			var err error
			if f, err = readAdminForm(c, r.Fields...); err != nil {
				answer(c, err)
				return
			}
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
