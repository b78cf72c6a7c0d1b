package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// adminWrite is the audit record of a request that may change something.
type adminWrite struct {
	token         string // the name of the token; empty: the request was rejected
	asked         map[string]string
	before, after any
	problem       string
}

// maxAudited bounds one field of the audit log, in characters.
const maxAudited = 200

// adminWriteKey is its key in the context of a request.
const adminWriteKey = "admin write"

// auditWrites logs every write of the admin API, whatever its outcome, as one line at any
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

// log bypasses the level of the log, which is not for the audit.
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
	_ = h.Handle(context.WithoutCancel(c.Request.Context()), r) // there is nowhere else to report it
}

// asJSON makes a JSON log contain the value itself, and a text log its JSON.
func asJSON(v any) json.RawMessage {
	content, err := json.Marshal(v)
	if err != nil { // what is answered can be marshalled
		panic(err)
	}
	return content
}

func note(c *gin.Context, change func(w *adminWrite)) {
	if w, ok := c.Value(adminWriteKey).(*adminWrite); ok {
		change(w)
	}
}

func noteToken(c *gin.Context, name string)  { note(c, func(w *adminWrite) { w.token = name }) }
func noteBefore(c *gin.Context, before any)  { note(c, func(w *adminWrite) { w.before = before }) }
func noteAfter(c *gin.Context, after any)    { note(c, func(w *adminWrite) { w.after = after }) }
func noteProblem(c *gin.Context, typ string) { note(c, func(w *adminWrite) { w.problem = typ }) }

// readAdminForm is readForm, and puts the known fields and the key into the audit record.
func readAdminForm(c *gin.Context, known ...string) *form {
	f := readForm(c.Request, known...)
	note(c, func(w *adminWrite) {
		w.asked = make(map[string]string, len(f.values))
		for name, v := range f.values {
			w.asked[name] = shorten(v.text, maxAudited)
			if v.kind == jsonNull {
				w.asked[name] = "null"
			}
		}
		if key := c.GetHeader("Idempotency-Key"); key != "" {
			w.asked["idempotency_key"] = shorten(key, maxAudited)
		}
	})
	return f
}
