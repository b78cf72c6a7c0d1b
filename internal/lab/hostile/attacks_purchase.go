package hostile

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// largestProblem is the most bytes of an answer that says what is wrong.
const largestProblem = 8 << 10

// identities are attacks by whom and what a purchase is for.
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

// stolenKeys are attacks by keys.
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

func itoa(id int64) string { return strconv.FormatInt(id, 10) }

// accountField is the field of an account that the attacker has: user_id where a buyer is who
// it says it is, and else a token.
const accountField = "account"

// account is one of many.
func (a *attacker) account() string { return "attacker-" + strconv.Itoa(a.IntN(1000)) }

// identify says who buys, in a field or in a header.
func (a *attacker) identify(user string) (fields, header map[string]string) {
	if a.issuer.secret == "" {
		return map[string]string{"user_id": user}, nil
	}
	return nil, map[string]string{"Authorization": "Bearer " + a.issuer.token(user)}
}

// signed is the header of a request whose body says nothing of the buyer.
func (a *attacker) signed() map[string]string {
	_, header := a.identify(a.account())
	return header
}

// buy sends a purchase; an empty value is not sent.
func (a *attacker) buy(ctx context.Context, fields, header map[string]string) []outcome {
	values, headers := url.Values{}, maps.Clone(header)
	if user := fields[accountField]; user != "" {
		field, identity := a.identify(user)
		if headers == nil {
			headers = make(map[string]string)
		}
		maps.Copy(headers, identity)
		values.Set("user_id", field["user_id"])
	}
	for name, value := range fields {
		if value != "" && name != accountField {
			values.Set(name, value)
		}
	}
	if values.Get("user_id") == "" {
		values.Del("user_id")
	}
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
