package hostile

import (
	"context"
	"fmt"
	"strings"
)

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

// purchase is one as it goes over the wire.
func (a *attacker) purchase(item int64, key string) string {
	fields, header := a.identify(a.account())
	body := fmt.Sprintf(`{"goods_id": %d}`, item)
	if user := fields["user_id"]; user != "" {
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

// smuggle sends a request whose end two servers may see at different places: the one
// inside must not be served.
func smuggle(ctx context.Context, a *attacker) []outcome {
	inside := fmt.Sprintf("POST /deduct?goods_id=%d&quantity=5000 HTTP/1.1\r\nHost: shop\r\nX-Smuggled: %s\r\n\r\n", a.hot, a.text(8))
	head := "POST /deduct?goods_id=" + a.id() + " HTTP/1.1\r\nHost: shop\r\n"
	return a.write(ctx, a.public, head+pick(a,
		fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(inside)+5, inside),
		fmt.Sprintf("Content-Length: 4\r\nContent-Length: %d\r\n\r\n%s", len(inside), inside),
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"+inside,
		"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"+inside,
		"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"+inside,
		"Content-Length: -1\r\n\r\n"+inside, "Content-Length: +0\r\n\r\n"+inside,
		"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"+inside,
	), 2)
}
