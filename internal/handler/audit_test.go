package handler_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// auditLine is a line of the audit log.
type auditLine struct {
	Message   string            `json:"msg"`
	Audit     bool              `json:"audit"`
	Token     string            `json:"token"`
	Client    string            `json:"client"`
	Method    string            `json:"method"`
	Route     string            `json:"route"`
	Path      string            `json:"path"`
	Asked     map[string]string `json:"asked"`
	Before    map[string]any    `json:"before"`
	After     map[string]any    `json:"after"`
	Status    int               `json:"status"`
	Problem   string            `json:"problem"`
	RequestID string            `json:"request_id"`
}

// auditLines are those of a log in JSON.
func auditLines(t *testing.T, log string) (list []auditLine) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line auditLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line.Audit {
			list = append(list, line)
		}
	}
	return list
}

// Each write is one line, whatever came of it, also where the log is for errors alone.
func TestEveryAdminWriteIsInTheAuditLog(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))
		o.Routes = openLab(t).Routes()
	})
	_, number := a.reserve(t, "goods_id=1&quantity=2&user_id=u-1", http.StatusCreated)
	for _, c := range []struct {
		method, path, body  string
		status              int
		route, problem      string
		asked, before, want map[string]any // of what is noted; nil is not looked at
	}{
		{"POST", "/goods", `{"goods_id": 7, "stock": 100, "per_user": 2}`, 201, "/goods", "", map[string]any{"goods_id": "7", "stock": "100", "per_user": "2"}, nil, map[string]any{"goods_id": 7.0, "stock": 100.0, "per_user": 2.0}},
		{"POST", "/goods", `{"goods_id": 7, "stock": 1}`, 409, "/goods", "goods-exist", map[string]any{"goods_id": "7", "stock": "1"}, nil, nil},
		{"POST", "/goods/7/restock", `{"quantity": 5}`, 200, "/goods/:id/restock", "", map[string]any{"quantity": "5"}, nil, map[string]any{"stock": 105.0}},
		{"POST", "/goods/8/restock", `{"quantity": 5}`, 404, "/goods/:id/restock", "unknown-goods", map[string]any{"quantity": "5"}, nil, nil},
		{"PATCH", "/goods/7", `{"per_user": 9, "strategy": "mutex"}`, 200, "/goods/:id", "", map[string]any{"per_user": "9", "strategy": "mutex"}, map[string]any{"per_user": 2.0}, map[string]any{"per_user": 9.0, "strategy": "mutex"}},
		{"PATCH", "/goods/7", `{"strategy": null}`, 200, "/goods/:id", "", map[string]any{"strategy": "null"}, map[string]any{"strategy": "mutex"}, map[string]any{"per_user": 9.0}},
		{"PATCH", "/goods/7", `{"per_user": "many"}`, 400, "/goods/:id", "invalid-request", map[string]any{"per_user": "many"}, nil, nil},
		{"POST", "/goods/7/recall", `{}`, 200, "/goods/:id/recall", "", nil, nil, map[string]any{"goods_id": 7.0, "returned": 0.0}},
		{"PUT", "/strategies/naive", `{"enabled": false, "reason": "it oversells"}`, 200, "/strategies/:name", "", map[string]any{"enabled": "false", "reason": "it oversells"}, map[string]any{"enabled": true}, map[string]any{"enabled": false, "reason": "it oversells"}},
		{"PUT", "/strategies/naive", `{"enabled": true}`, 200, "/strategies/:name", "", nil, map[string]any{"enabled": false, "reason": "it oversells"}, map[string]any{"enabled": true}},
		{"POST", "/reservations/" + number + "/extend", `{"ttl": 60}`, 200, "/reservations/:id/extend", "", map[string]any{"ttl": "60"}, nil, map[string]any{"state": "held", "user_id": "u-1"}},
		{"POST", "/reservations/" + number + "/confirm", `{"payment_reference": "pay-1"}`, 200, "/reservations/:id/confirm", "", map[string]any{"payment_reference": "pay-1"}, nil, map[string]any{"state": "confirmed"}},
		{"POST", "/reservations/" + number + "/release", "", 409, "/reservations/:id/release", "reservation-confirmed", nil, nil, nil},
		{"POST", "/orders/" + number + "/return", `{"quantity": 1}`, 200, "/orders/:id/return", "", map[string]any{"quantity": "1"}, nil, map[string]any{"quantity": 1.0, "goods_id": 1.0}},
		{"POST", "/lab/faults", `{"do": "pause"}`, 201, "/lab/faults", "", map[string]any{"do": "pause"}, nil, map[string]any{"do": "pause"}},
	} {
		log.Reset()
		got := a.asAdmin(t, c.method, c.path, c.body, c.status)
		lines := auditLines(t, log.String())
		must.Be(t, len(lines), 1, c.method, c.path, "the lines of", log.String())
		l := lines[0]
		if l.Message != "admin write" || l.Token != "owner" || l.Client != "127.0.0.1" || l.Method != c.method || l.Route != c.route || l.Path != c.path ||
			l.Status != c.status || l.RequestID != got.header.Get("X-Request-ID") || strings.TrimPrefix(l.Problem, handler.TypePrefix) != c.problem {
			t.Errorf("%s %s is logged as %s", c.method, c.path, &log)
		}
		asked := make(map[string]any, len(l.Asked))
		for name, text := range l.Asked {
			asked[name] = text
		}
		for what, pair := range map[string][2]map[string]any{"asked": {asked, c.asked}, "before": {l.Before, c.before}, "after": {l.After, c.want}} {
			for field, want := range pair[1] {
				should.Be(t, pair[0][field], want, c.method, c.path, what, pair[0], field)
			}
		}
		if (c.status >= 400) != (l.After == nil) {
			t.Errorf("%s %s: answered with %d, and after is %v", c.method, c.path, c.status, l.After)
		}
	}
}

// What is read is not logged. Writes of unknown paths, and those that end in a panic, are.
func TestTheAuditLogHasUnknownPathsAndPanics(t *testing.T) {
	var log bytes.Buffer
	// Without an inventory, to create an item is a panic.
	admin := handler.Admin(handler.Options{Log: slog.New(slog.NewJSONHandler(&log, nil)), MaxBody: 1024, Observer: metrics.New(metrics.Build{})}, admintoken.Single(token))
	for _, c := range []struct {
		method, path string
		status, line int
		problem      string
	}{
		{"GET", "/nowhere", http.StatusNotFound, 0, ""},
		{"HEAD", "/nowhere", http.StatusNotFound, 0, ""},
		{"DELETE", "/nowhere/" + strings.Repeat("x", 1000), http.StatusNotFound, 1, "not-found"},
		{"DELETE", "/goods", http.StatusMethodNotAllowed, 1, "method-not-allowed"},
		{"POST", "/goods?goods_id=1&stock=1", http.StatusInternalServerError, 1, "internal"},
	} {
		log.Reset()
		got := sendRaw(admin, c.method, c.path, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
		lines := auditLines(t, log.String())
		if got.Code != c.status || len(lines) != c.line {
			t.Fatalf("%.40s is answered with %d, want %d, and logged in %d lines, want %d: %s", c.path, got.Code, c.status, len(lines), c.line, &log)
		}
		if got := sendRaw(admin, c.method, c.path, func(*http.Request) {}); got.Code != http.StatusUnauthorized || len(auditLines(t, log.String())) != c.line {
			t.Errorf("%.40s without a token is answered with %d, and logged: %s", c.path, got.Code, &log)
		}
		if c.line == 1 && (lines[0].Status != c.status || lines[0].Problem != handler.TypePrefix+c.problem || len(lines[0].Path) > 210) {
			t.Errorf("%.40s is logged as %+v", c.path, lines[0])
		}
	}
}

func TestTheKeyOfAnAdminWriteIsInTheAuditLog(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewJSONHandler(&log, nil)))
	})
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 5}`, http.StatusOK)
	a.ownerKeyed(t, "restock-1", "/goods/1/restock?quantity=5").is(t, "")
	long := strings.Repeat("9", 300)
	a.ownerKeyed(t, long, "/goods/1/restock?quantity="+long)
	lines := auditLines(t, log.String())
	must.Be(t, len(lines), 3, "the lines of", log.String())
	if _, ok := lines[0].Asked["idempotency_key"]; ok || lines[1].Asked["idempotency_key"] != "restock-1" {
		t.Errorf("the keys are logged as %v and %v", lines[0].Asked, lines[1].Asked)
	}
	if short := long[:200] + "…"; lines[2].Asked["idempotency_key"] != short || lines[2].Asked["quantity"] != short {
		t.Errorf("what is too long is logged as %v", lines[2].Asked)
	}
}
