package handler_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
)

// A path is served as it is written, or it is rejected: nothing is redirected, cleaned or
// decoded into another path, and no header moves it. A proxy that allows some paths has allowed what is served.
func TestNoPathIsTakenForAnother(t *testing.T) {
	o := handler.Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, Reveal: true}
	public, admin := handler.Public(o), handler.Admin(o, admintoken.Single(token))
	change := func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Forwarded-Prefix", "//rebound.example")
		r.Header.Set("X-Forwarded-Host", "rebound.example")
		r.Header.Set("X-Original-Url", "/goods/1")
	}
	for _, c := range []struct {
		name   string
		h      http.Handler
		method string
		paths  []string
	}{
		{"the public API", public, http.MethodPost, []string{
			"/deduct/", "//deduct", "/./deduct", "/deduct/..", "/deduct/../deduct", "/orders/../deduct", "/DEDUCT", "/Deduct", "/deduct//", "/deduct%2f", "/%2e%2e/deduct", "/deduct%00", "/deduct;x=1", "/ded%75ct",
		}},
		{"the public API", public, http.MethodGet, []string{"/goods/1/", "//goods/1", "/goods//1", "/goods/1/../../goods/1", "/GOODS/1", "/goods", "/goods/", "/readyz/", "/healthz/", "//healthz", "/goods/1%2Faudit", "/goods%2F1"}},
		{"the admin API", admin, http.MethodPost, []string{"/goods/", "//goods", "/goods/../goods", "/Goods", "/goods/1/restock/", "/goods//restock/"}},
		{"the admin API", admin, http.MethodGet, []string{"/goods/1/audit/", "//metrics", "/strategies/"}},
	} {
		for _, path := range c.paths {
			got := sendRaw(c.h, c.method, path, change)
			served := got.Code != http.StatusNotFound && got.Code != http.StatusMethodNotAllowed && got.Code != http.StatusBadRequest
			if served || got.Header().Get("Location") != "" {
				t.Errorf("%s: %s %s is answered with %d %v", c.name, c.method, path, got.Code, got.Header())
			}
		}
	}
}
