package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// adminWrite is what the audit log says of a request that may change something.
type adminWrite struct {
	token         string // the name of the token; empty: the request was not let through
	asked         map[string]string
	before, after any
	problem       string
}

// mostAudited bounds what the audit log says of one field, in characters.
const mostAudited = 200

// adminWriteKey is where a request keeps it.
const adminWriteKey = "admin write"

// auditWrites logs every write of the admin API, whatever comes of it: one line, at any
// log.level. It wraps the middleware that turns panics into answers.
func auditWrites(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
			return
		}
		w := new(adminWrite)
		c.Set(adminWriteKey, w)
		defer func() {
			if w.token != "" {
				w.log(c, log.Handler())
			}
		}()
		c.Next()
	}
}

// log writes past the level of the log, which is for operation and not for the audit.
func (w *adminWrite) log(c *gin.Context, h slog.Handler) {
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "admin write", 0)
	r.Add("audit", true, "token", w.token, "client", c.ClientIP(), "method", c.Request.Method, "route", c.FullPath(),
		"path", path(c), "asked", asJSON(w.asked))
	if w.before != nil {
		r.Add("before", asJSON(w.before))
	}
	if w.after != nil {
		r.Add("after", asJSON(w.after))
	}
	r.Add("status", c.Writer.Status())
	if w.problem != "" {
		r.Add("problem", w.problem)
	}
	_ = h.Handle(context.WithoutCancel(c.Request.Context()), r) // there is no other place to report it
}

// asJSON has a log in JSON contain the value as it is, and one in text its JSON.
func asJSON(v any) json.RawMessage {
	content, err := json.Marshal(v)
	if err != nil { // what is answered can be marshalled
		panic(err)
	}
	return content
}

// writeOf is nil where the request is no write of the admin API.
func writeOf(c *gin.Context) *adminWrite {
	w, _ := c.Value(adminWriteKey).(*adminWrite)
	return w
}

func noteToken(c *gin.Context, name string) {
	if w := writeOf(c); w != nil {
		w.token = name
	}
}

// noteBefore notes what a write is about to change.
func noteBefore(c *gin.Context, before any) {
	if w := writeOf(c); w != nil {
		w.before = before
	}
}

// noteAfter notes what a write is answered with.
func noteAfter(c *gin.Context, after any) {
	if w := writeOf(c); w != nil {
		w.after = after
	}
}

func noteProblem(c *gin.Context, kind string) {
	if w := writeOf(c); w != nil {
		w.problem = kind
	}
}

// readAdminForm is readForm, and notes the known fields and the key.
func readAdminForm(c *gin.Context, known ...string) (*form, error) {
	f, err := readForm(c.Request, known...)
	w := writeOf(c)
	if f == nil || w == nil {
		return f, err
	}
	w.asked = make(map[string]string, len(f.values))
	for name, v := range f.values {
		w.asked[name] = shorten(v.text, mostAudited)
		if v.kind == jsonNull {
			w.asked[name] = "null"
		}
	}
	if key := c.GetHeader("Idempotency-Key"); key != "" {
		w.asked["idempotency_key"] = shorten(key, mostAudited)
	}
	return f, err
}
