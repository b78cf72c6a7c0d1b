package hostile

import (
	"context"
	"net/http"
	"strings"
)

// adminAttacks are attacks on the admin API, by a stranger who can reach its listeners.
func adminAttacks() []Attack {
	return []Attack{
		{Name: "guess the admin token", Row: "8", Weight: 3, Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.adminCall(ctx, map[string]string{"Authorization": pick(a, "Bearer ", "bearer ", "Basic ", "") +
				pick(a, "", strings.Repeat("a", 16), "change-me-change-me", "stockd-admin-token", "secret", a.text(26), a.text(4000))})
		}},
		{Name: "write without a token", Row: "8", Denied: true, do: func(ctx context.Context, a *attacker) []outcome { return a.adminCall(ctx, nil) }},
		{Name: "rebind the admin API", Row: "9", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{
				method: http.MethodGet, path: pick(a, "/goods/1", "/metrics", "/strategies", "/nothing"), admin: true,
				host: pick(a, "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"), header: map[string]string{"Origin": "http://evil.example"},
			})
		}},
		{Name: "learn what is switched on", Row: "11", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{
				method: pick(a, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete), admin: true,
				path: pick(a, "/debug/pprof/", "/metrics", "/lab/faults", "/nothing", "/goods", "/strategies/naive"),
			})
		}},
		{Name: "write on the public API", Row: "8", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{
				method: http.MethodPost, path: pick(a, "/goods", "/goods/"+itoa(a.hot)+"/restock", "/goods/"+itoa(a.hot)+"/recall", "/lab/faults"),
				body: `{"goods_id": 7, "stock": 1000, "quantity": 1000}`, header: map[string]string{"Authorization": "Bearer " + a.text(26)},
			})
		}},
	}
}

// adminCall is a request that writes, or reads what only an admin may.
func (a *attacker) adminCall(ctx context.Context, header map[string]string) []outcome {
	hot := itoa(a.hot)
	return a.send(ctx, pick(a,
		request{method: http.MethodPost, path: "/goods", body: `{"goods_id": ` + a.id() + `, "stock": 1}`, admin: true, header: header},
		request{method: http.MethodPost, path: "/goods/" + hot + "/restock", body: `{"quantity": 1000}`, admin: true, header: header},
		request{method: http.MethodPost, path: "/goods/" + hot + "/recall", body: `{}`, admin: true, header: header},
		request{method: http.MethodPatch, path: "/goods/" + hot, body: `{"per_user": 1000}`, admin: true, header: header},
		request{method: http.MethodPut, path: "/strategies/sql-conditional", body: `{"enabled": false, "reason": "mine"}`, admin: true, header: header},
		request{method: http.MethodGet, path: "/orders?goods_id=" + hot, admin: true, header: header},
		request{method: http.MethodGet, path: "/goods/" + hot + "/audit?full=true", admin: true, header: header},
	))
}
