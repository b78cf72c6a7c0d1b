package handler_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/telemetry"
)

func TestTheAdminSwitchesAStrategyOffAndOn(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPut, "/strategies/naive", `{"enabled": false, "reason": "it oversells"}`, http.StatusOK)
	got := a.buy(t, "goods_id=1&strategy=naive")
	if got.status != http.StatusForbidden || got.problem() != "strategy-refused" || !strings.Contains(got.text, "it oversells") {
		t.Errorf("a purchase is answered with %d %s", got.status, got.text)
	}
	if s := a.described(t, "naive"); s["enabled"] != false || s["available"] != false || s["note"] != "rejected here: it is switched off: it oversells" {
		t.Errorf("it is described as %v", s)
	}
	if s := a.described(t, "mutex"); s["enabled"] != true {
		t.Errorf("mutex is described as %v", s)
	}
	a.asAdmin(t, http.MethodPut, "/strategies/naive?enabled=true", "", http.StatusOK)
	if got := a.buy(t, "goods_id=1&strategy=naive"); got.status != http.StatusOK {
		t.Errorf("after it was switched on: %d %s", got.status, got.text)
	}
}

// described is a strategy as the admin sees it.
func (a api) described(t *testing.T, name string) map[string]any {
	t.Helper()
	list, _ := a.asAdmin(t, http.MethodGet, "/strategies", "", http.StatusOK).body["strategies"].([]any)
	for _, s := range list {
		if s, ok := s.(map[string]any); ok && s["name"] == name {
			return s
		}
	}
	t.Fatalf("%s is not described", name)
	return nil
}

// Who looks into the log for why a strategy is off finds the request that did it.
func TestTheLogNamesTheRequestOfASwitch(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.Log = slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil))) })
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "naive"}`, http.StatusOK)
	got := a.asAdmin(t, http.MethodPut, "/strategies/naive", `{"enabled": false, "reason": "it oversells"}`, http.StatusOK)
	a.admin.Close() // so that all of the log is written
	for _, want := range []string{`msg="strategy switched"`, "strategy=naive enabled=false", `reason="it oversells"`, "items=1", "request_id=" + got.header.Get("X-Request-ID")} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
}

func TestSwitchesThatAreRejected(t *testing.T) {
	a := serveSQLite(t)
	if err := a.options.Catalogue.Enforce(service.Policy{Deny: []string{"naive"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, strategy, body string
		status               int
		problem, says        string
	}{
		{"the default", "sql-conditional", `{"enabled": false, "reason": "r"}`, http.StatusConflict, "default-strategy", "deduct.strategy"},
		{"off: no such strategy", "hope", `{"enabled": false, "reason": "r"}`, http.StatusBadRequest, "unknown-strategy", "hope"},
		{"on: no such strategy", "hope", `{"enabled": true}`, http.StatusBadRequest, "unknown-strategy", "hope"},
		{"on: the configuration forbids it", "naive", `{"enabled": true}`, http.StatusForbidden, "strategy-refused", "strategies.deny"},
		{"neither on nor off", "mutex", `{"reason": "r"}`, http.StatusBadRequest, "invalid-request", "enabled"},
		{"off for no reason", "mutex", `{"enabled": false}`, http.StatusBadRequest, "invalid-request", "reason"},
		{"on for a reason", "mutex", `{"enabled": true, "reason": "r"}`, http.StatusBadRequest, "invalid-request", "reason"},
		{"a reason too long", "mutex", `{"enabled": false, "reason": "` + strings.Repeat("x", 201) + `"}`, http.StatusBadRequest, "invalid-request", "reason"},
	} {
		got := a.asAdmin(t, http.MethodPut, "/strategies/"+c.strategy, c.body, c.status)
		if got.problem() != c.problem || !strings.Contains(got.text, c.says) {
			t.Errorf("%s: answered with %s, want %s that tells of %s", c.name, got.text, c.problem, c.says)
		}
	}
	if s := a.described(t, "mutex"); s["enabled"] != true {
		t.Errorf("a rejected request has switched: %v", s)
	}
}

func TestProfilesAreForTheAdminWhereEnabled(t *testing.T) {
	const path = "/debug/pprof/goroutine?debug=1"
	a := serveSQLite(t)
	if got := a.asAdmin(t, http.MethodGet, path, "", http.StatusNotFound); got.problem() != "not-found" {
		t.Errorf("without admin.pprof: %s", got.text)
	}
	a = a.withAdmin(t, func(o *handler.Options) { o.Pprof = true })
	if got := send(t, request(t, http.MethodGet, a.admin.URL+path, "", "")); got.status != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", got.status, got.text)
	}
	if got := a.get(t, path); got.status != http.StatusNotFound {
		t.Errorf("on the buyers' listener: %d %s", got.status, got.text)
	}
	for path, want := range map[string]string{
		path: "goroutine profile:", "/debug/pprof/": "goroutine", "/debug/pprof/profile?seconds=1": "\x1f\x8b",
		"/debug/pprof/trace?seconds=0.01": "go 1", "/debug/pprof/symbol": "num_symbols: 1",
	} {
		if status, text := a.ownersText(t, path); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s with the token: %d %.200q", path, status, text)
		}
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/hope"} {
		if got := a.asAdmin(t, http.MethodGet, path, "", http.StatusNotFound); got.problem() != "not-found" {
			t.Errorf("%s: %s", path, got.text)
		}
	}
}
