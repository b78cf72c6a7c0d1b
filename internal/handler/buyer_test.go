package handler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/should"
)

const buyersSecret = "a secret of thirty-two bytes and more"

// withTokens serves the same replica to buyers with signed tokens.
func (a api) withTokens(t *testing.T, change func(o *handler.Options)) api {
	t.Helper()
	source := must.Get(buyer.NewSecret([]byte(buyersSecret), "shop"))(t)
	return a.with(t, func(o *handler.Options) {
		o.Buyers = source
		change(o)
	})
}

// tokenOf is a token of a buyer for a minute; more overrides its claims.
func tokenOf(t *testing.T, sub string, more map[string]any) string {
	t.Helper()
	claims := map[string]any{"sub": sub, "aud": "shop", "exp": time.Now().Add(time.Minute).Unix()}
	maps.Copy(claims, more)
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(buyersSecret)}, nil))(t)
	return must.Get(jwt.Signed(signer).Claims(claims).Serialize())(t)
}

// as sends a request with headers, which are pairs of name and value.
func (a api) as(t *testing.T, method, path string, headers ...string) answer {
	t.Helper()
	r := request(t, method, a.public.URL+path, "", "")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return send(t, r)
}

func TestATokenIdentifiesTheBuyer(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withTokens(t, func(o *handler.Options) {
		o.BuyerRequired, o.Log = true, slog.New(slog.NewTextHandler(&log, nil))
	})
	good := "Bearer " + tokenOf(t, "u-1", nil)
	for _, c := range []struct {
		path, token, problem, field, detail string
	}{
		{"/deduct?goods_id=1", good, "", "", ""},
		{"/deduct?goods_id=1&user_id=u-1", good, "", "", ""},
		{"/deduct?goods_id=1&user_id=u-2", good, "invalid-request", "user_id", "verified buyer"},
		{"/deduct?goods_id=1", "", "unauthorized", "", "the buyer is missing"},
		{"/deduct?goods_id=1", "Bearer " + tokenOf(t, "u-1", map[string]any{"exp": 1}), "unauthorized", "", "has expired"},
		{"/deduct?goods_id=1", "Bearer x", "unauthorized", "", "no JWT"},
		{"/deduct?goods_id=1", "Bearer " + tokenOf(t, "u-1", map[string]any{"goods_id": 1}), "", "", ""},
		{"/deduct?goods_id=1", "Bearer " + tokenOf(t, "u-1", map[string]any{"goods_id": "2"}), "token-bound", "", "goods_id 2 alone"},
		{"/orders?request_id=k", "", "unauthorized", "", "the buyer is missing"},
		{"/orders/1", "", "unauthorized", "", "the buyer is missing"},
		{"/reservations/1", "", "unauthorized", "", "the buyer is missing"},
		{"/reservations/1", good, "unknown-reservation", "", ""},
		{"/orders?request_id=k&user_id=u-2", good, "invalid-request", "user_id", ""},
	} {
		method, headers := http.MethodPost, []string(nil)
		if !strings.HasPrefix(c.path, "/deduct") {
			method = http.MethodGet
		}
		if c.token != "" {
			headers = []string{"Authorization", c.token}
		}
		got := a.as(t, method, c.path, headers...)
		detail, _ := got.body["detail"].(string)
		if got.problem() != c.problem || got.field() != c.field || !strings.Contains(detail, c.detail) {
			t.Errorf("%s with %.40q is answered with %d %s, want %q", c.path, c.token, got.status, got.text, c.problem)
		}
		want := map[bool]string{true: `Bearer error="invalid_token"`, false: `Bearer realm="stockd"`}[c.token != ""]
		if said := got.header.Get("WWW-Authenticate"); c.problem == "unauthorized" && said != want {
			t.Errorf("%s with %.40q: WWW-Authenticate is %q, want %q", c.path, c.token, said, want)
		}
	}
	if a.public.Close(); log.Len() > 0 {
		t.Errorf("the log has %s", &log)
	}
}

// A buyer's keys and orders are its own.
func TestABuyerSeesItsOwnAlone(t *testing.T) {
	a := serveSQLite(t).withTokens(t, func(o *handler.Options) { o.Reveal = true })
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 2}`, http.StatusOK)
	mine, other := "Bearer "+tokenOf(t, "u-1", nil), "Bearer "+tokenOf(t, "u-2", nil)
	buy := func(token, query string) answer {
		return a.post(t, "/deduct?goods_id=1"+query, "Authorization", token, "Idempotency-Key", "checkout")
	}
	first := buy(mine, "&quantity=2")
	if again := buy(other, "&quantity=2"); again.status != http.StatusOK || again.body["order_id"] == first.body["order_id"] {
		t.Errorf("another buyer with the key is answered with %d %s", again.status, again.text)
	}
	number := fmt.Sprint(first.body["order_id"])
	for _, path := range []string{"/orders?request_id=checkout", "/orders/" + number} {
		got, others := a.as(t, http.MethodGet, path, "Authorization", mine), a.as(t, http.MethodGet, path, "Authorization", other)
		if got.body["order_id"] != number || others.body["order_id"] == number {
			t.Errorf("%s shows its buyer %s, and another one %s", path, got.text, others.text)
		}
		a.get(t, path).is(t, "unknown-order")
	}
	limit := a.post(t, "/deduct?goods_id=1", "Authorization", mine)
	limit.is(t, "user-limit", "has", 2.0)
	concealed := a.with(t, func(o *handler.Options) { o.Reveal = false })
	concealed.post(t, "/deduct?goods_id=1", "Authorization", mine).is(t, "user-limit", "has", 2.0)
	a.post(t, "/deduct?goods_id=1").is(t, "unauthorized")
}

// Where buyers are verified, the number of a reservation is not enough.
func TestABuyerEndsItsOwnReservationAlone(t *testing.T) {
	unverified := serveSQLite(t)
	_, unowned := unverified.reserve(t, "goods_id=1", http.StatusCreated)
	a := unverified.withTokens(t, func(*handler.Options) {})
	mine, other := "Bearer "+tokenOf(t, "u-1", nil), "Bearer "+tokenOf(t, "u-2", nil)
	a.as(t, http.MethodGet, "/reservations/"+unowned, "Authorization", mine).is(t, "unknown-reservation")
	path := "/reservations/" + fmt.Sprint(a.post(t, "/reservations?goods_id=1", "Authorization", mine).body["reservation_id"])
	for who, headers := range map[string][]string{"another buyer": {"Authorization", other}, "a client without a token": nil} {
		for _, got := range []answer{
			a.as(t, http.MethodGet, path, headers...), a.post(t, path+"/extend?ttl=60", headers...), a.post(t, path+"/release", headers...),
			a.post(t, path+"/confirm?payment_reference=p", headers...),
		} {
			should.Be(t, got.problem(), "unknown-reservation", "is answered", who, got.status, got.text)
		}
	}
	for _, asked := range []string{path, "/reservations/none"} { // which of them exists is not said
		a.as(t, http.MethodGet, asked, "Authorization", mine+"x").is(t, "unauthorized")
	}
	a.post(t, path+"/release", "Authorization", mine).is(t, "")
}

// A client that asserts a user does not learn the user's holdings.
func TestAnAssertedUserRevealsNothing(t *testing.T) {
	for reveal, want := range map[bool]any{true: 2.0, false: nil} {
		a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = reveal })
		a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 2}`, http.StatusOK)
		a.buy(t, "goods_id=1&user_id=u-1&quantity=2")
		got := a.buy(t, "goods_id=1&user_id=u-1")
		if detail := fmt.Sprint(got.body["detail"]); got.problem() != "user-limit" || got.body["has"] != want || got.body["per_user"] != 2.0 || strings.Contains(detail, "has 2") != reveal {
			t.Errorf("with http.reveal %v the limit is answered with %d %s", reveal, got.status, got.text)
		}
	}
}

func TestAHeaderOfATrustedProxyIdentifiesTheBuyer(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct{ proxy, header, query, problem, field string }{
		{"127.0.0.1/32", "u-1", "", "", ""},
		{"127.0.0.1/32", "u-1", "&user_id=u-1", "", ""},
		{"127.0.0.1/32", "u-1", "&user_id=u-2", "invalid-request", "user_id"},
		{"127.0.0.1/32", "u-1 \u2028", "", "invalid-request", "X-Stockd-Buyer"},
		{"127.0.0.1/32", "", "", "unauthorized", ""},
		{"192.0.2.0/24", "u-1", "", "unauthorized", ""},
		{"192.0.2.0/24", "u-1", "&user_id=u-1", "invalid-request", "user_id"},
	} {
		source := buyer.NewHeader("X-Stockd-Buyer", []netip.Prefix{netip.MustParsePrefix(c.proxy)})
		a := a.with(t, func(o *handler.Options) { o.Buyers, o.BuyerRequired = source, true })
		got := a.post(t, "/deduct?goods_id=1"+c.query, "X-Stockd-Buyer", c.header, "X-Forwarded-For", "192.0.2.1")
		got.is(t, c.problem)
		got.names(t, c.field)
	}
}

// Leaving the name out does not get round the rate of users.
func TestARateOfUsersNeedsAUser(t *testing.T) {
	once := rate.Rate{PerSecond: onceOnly, Burst: 1}
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.User = once })
	a.buy(t, "goods_id=1").names(t, "user_id")
	required := a.with(t, func(o *handler.Options) { o.Limits, o.BuyerRequired = handler.Limits{}, true })
	required.buy(t, "goods_id=1").names(t, "user_id")
	tokens := a.withTokens(t, func(o *handler.Options) { o.Limits.User = once })
	for _, want := range []string{"", "rate-limited"} {
		tokens.post(t, "/deduct?goods_id=1", "Authorization", "Bearer "+tokenOf(t, "u-1", nil)).is(t, want)
	}
	tokens.post(t, "/deduct?goods_id=1", "Authorization", "Bearer "+tokenOf(t, "u-2", nil)).is(t, "")
}
