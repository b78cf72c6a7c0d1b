package buyer_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

const secret = "a secret of thirty-two bytes and more"

// sign makes a token; kid may be empty.
func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	options := new(jose.SignerOptions).WithType("JWT")
	if kid != "" {
		options = options.WithHeader("kid", kid)
	}
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options))(t)
	return must.Get(jwt.Signed(signer).Claims(claims).Serialize())(t)
}

func bySecret(t *testing.T, claims map[string]any) string {
	t.Helper()
	return sign(t, jose.HS256, []byte(secret), "", claims)
}

// from sends a token, as the value of Authorization.
func from(s buyer.Source, authorization ...string) (buyer.Buyer, error) {
	r := httptest.NewRequest(http.MethodPost, "/deduct", nil) //nolint:noctx // it is not sent
	r.Header["Authorization"] = authorization
	return s.From(r)
}

// rejected checks that a token is rejected for a reason.
func rejected(t *testing.T, s buyer.Source, name, reason string, authorization ...string) {
	t.Helper()
	who, err := from(s, authorization...)
	if wrong, ok := errors.AsType[*buyer.TokenError](err); !ok || !strings.Contains(wrong.Reason, reason) || who != (buyer.Buyer{}) {
		t.Errorf("%s: %+v, %v; want %q", name, who, err, reason)
	}
}

func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func TestASignedTokenIsItsSubject(t *testing.T) {
	s := must.Get(buyer.NewSecret([]byte(secret), "shop"))(t)
	longest := strings.Repeat("é", 64)
	for want, claims := range map[buyer.Buyer]map[string]any{
		{ID: longest, GoodsID: 1}:   {"sub": longest, "exp": in(time.Minute), "aud": "shop", "goods_id": 1},
		{ID: "u-2", GoodsID: 7}:     {"sub": "u-2", "exp": in(time.Minute), "aud": []string{"other", "shop"}, "goods_id": 7},
		{ID: "u-3", GoodsID: 8}:     {"sub": "u-3", "exp": in(-2 * time.Second), "nbf": in(2 * time.Second), "aud": "shop", "goods_id": "8"},
		{ID: "Andr\u00e9"}:          {"sub": "Andre\u0301", "exp": in(time.Minute), "aud": "shop"},
		{ID: "7", GoodsID: 1 << 62}: {"sub": "7", "exp": in(time.Minute), "aud": "shop", "goods_id": int64(1 << 62)},
	} {
		should.Be(t, must.Get(from(s, "bearer "+bySecret(t, claims)))(t), want, claims, "is")
	}
	should.Be(t, must.Get(from(s))(t), (buyer.Buyer{}), "without a token the buyer is")
	if _, err := buyer.NewSecret([]byte(secret)[:buyer.MinSecret-1], ""); err == nil {
		t.Error("a secret of 31 bytes is taken")
	}
	if _, err := buyer.NewSecret([]byte(secret)[:buyer.MinSecret], ""); err != nil {
		t.Errorf("a secret of 32 bytes: %v", err)
	}
}

// A claim that is missing, over or wrong, by a token whose signature is right.
func TestAClaimThatIsWrong(t *testing.T) {
	s := must.Get(buyer.NewSecret([]byte(secret), "shop"))(t)
	good := func() map[string]any { return map[string]any{"sub": "u-1", "exp": in(time.Minute), "aud": "shop"} }
	for _, c := range []struct {
		claim  string
		value  any
		reason string
	}{
		{"exp", nil, "no exp"},
		{"exp", in(-time.Minute), "has expired"},
		{"exp", "soon", "cannot be read"},
		{"nbf", in(time.Minute), "not valid yet"},
		{"aud", nil, "another audience"},
		{"aud", "shopping", "another audience"},
		{"aud", []string{"a", "b"}, "another audience"},
		{"sub", nil, "sub"},
		{"sub", " u-1", "begin or end with a space"},
		{"sub", 7, "cannot be read"},
		{"sub", "a\nb", "printable"},
		{"sub", strings.Repeat("x", 65), "64 printable"},
		{"goods_id", 0, "cannot be read"},
		{"goods_id", 1.5, "cannot be read"},
		{"goods_id", "x", "cannot be read"},
		{"goods_id", "07", "cannot be read"},
		{"goods_id", true, "cannot be read"},
		{"goods_id", []int{7}, "cannot be read"},
	} {
		claims := good()
		if claims[c.claim] = c.value; c.value == nil {
			delete(claims, c.claim)
		}
		rejected(t, s, c.claim, c.reason, "Bearer "+bySecret(t, claims))
	}
	should.Be(t, must.Get(from(s, "Bearer "+bySecret(t, good())))(t).ID, "u-1", "a good token is")
}

func part(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestAForgedTokenIsRejected(t *testing.T) {
	s := must.Get(buyer.NewSecret([]byte(secret), ""))(t)
	claims := map[string]any{"sub": "u-1", "exp": in(time.Minute)}
	good := bySecret(t, claims)
	parts := strings.Split(good, ".")
	other := bySecret(t, map[string]any{"sub": "u-2", "exp": in(time.Minute)})
	unsigned := part(`{"alg":"none"}`) + "." + parts[1] + "."
	for name, text := range map[string]string{
		"no algorithm":                  unsigned,
		"no algorithm, and a signature": unsigned + parts[2],
		"another algorithm":             sign(t, jose.HS512, []byte(strings.Repeat(secret, 2)), "", claims),
		"no JWT":                        "u-1",
		"nothing":                       "",
		"two parts":                     parts[0] + "." + parts[1],
		"JSON":                          `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		rejected(t, s, name, "no JWT signed by HS256", "Bearer "+text)
	}
	rejected(t, s, "another secret", "wrong signature", "Bearer "+sign(t, jose.HS256, []byte(strings.ToUpper(secret)), "", claims))
	rejected(t, s, "the claims of another", "wrong signature", "Bearer "+parts[0]+"."+strings.Split(other, ".")[1]+"."+parts[2])
	rejected(t, s, "no signature", "wrong signature", "Bearer "+parts[0]+"."+parts[1]+".")
	rejected(t, s, "critical", "cannot be read", "Bearer "+part(`{"alg":"HS256","crit":["mine"],"mine":1}`)+"."+parts[1]+"."+parts[2])
	rejected(t, s, "Basic", "not sent as Bearer", "Basic "+good)
	rejected(t, s, "two", "more than once", "Bearer "+good, "Bearer "+good)
	long := func(bytes int) string {
		more := bytes*3/4 - 120 // base64 makes four of three
		for {
			text := bySecret(t, map[string]any{"sub": "u-1", "exp": in(time.Minute), "more": strings.Repeat("x", more)})
			if more++; len(text) >= bytes {
				return text
			}
		}
	}
	if text := long(4096); len(text) != 4096 {
		t.Errorf("the token has %d bytes, want 4096", len(text))
	} else if _, err := from(s, "Bearer "+text); err != nil {
		t.Errorf("a token of 4096 bytes: %v", err)
	}
	rejected(t, s, "4097 bytes", "longer than 4096 bytes", "Bearer "+long(4097))
}

// The public key of the issuer is known to all, and is the secret of no token.
func TestThePublicKeyIsNoSecret(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	f := newFile(t, jose.JSONWebKey{Key: public, KeyID: "a"})
	s := f.open(t)
	claims := map[string]any{"sub": "u-1", "exp": in(time.Minute)}
	should.Be(t, must.Get(from(s, "Bearer "+sign(t, jose.EdDSA, private, "a", claims)))(t).ID, "u-1", "a good token is")
	for _, kid := range []string{"a", "", "b"} {
		rejected(t, s, "kid "+kid, "unknown key", "Bearer "+sign(t, jose.HS256, []byte(public), kid, claims))
	}
	rejected(t, s, "an unknown kid", "unknown key", "Bearer "+sign(t, jose.EdDSA, private, "b", claims))
	_, stranger, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	rejected(t, s, "another key", "wrong signature", "Bearer "+sign(t, jose.EdDSA, stranger, "a", claims))
	embedded := jose.JSONWebKey{Key: stranger.Public(), KeyID: "a"}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: stranger}, new(jose.SignerOptions).WithHeader("jwk", embedded).WithHeader("kid", "a"))
	must.Do(t, err)
	signed, err := signer.Sign([]byte(`{"sub":"u-1","exp":99999999999}`))
	must.Do(t, err)
	text, err := signed.CompactSerialize()
	must.Do(t, err)
	rejected(t, s, "a key that the token brings", "wrong signature", "Bearer "+text)
}

func FuzzFrom(f *testing.F) {
	s := must.Get(buyer.NewSecret([]byte(secret), "shop"))(f)
	f.Add("Bearer " + part(`{"alg":"HS256"}`) + "." + part(`{"sub":"u-1","exp":99999999999,"aud":"shop"}`) + ".AAAA")
	f.Add("Bearer " + part(`{"alg":"none"}`) + "." + part(`{"sub":"u-1"}`) + ".")
	f.Add("bearer ..")
	f.Fuzz(func(t *testing.T, authorization string) {
		if who, err := from(s, authorization); err == nil {
			t.Errorf("%q is %+v", authorization, who)
		}
	})
}

func TestAHeaderIsBelievedFromATrustedPeerAlone(t *testing.T) {
	var proxies []netip.Prefix
	for text := range strings.FieldsSeq("10.1.0.0/16 192.0.2.7/32 2001:db8::/32 fe80::/10") {
		proxies = append(proxies, netip.MustParsePrefix(text))
	}
	h := buyer.NewHeader("x-stockd-buyer", proxies)
	for _, c := range []struct {
		peer  string
		value []string
		want  string
		wrong string
	}{
		{"10.1.2.3:4000", []string{"u-1"}, "u-1", ""},
		{"[::ffff:10.1.2.3]:4000", []string{"u-1"}, "u-1", ""},
		{"192.0.2.7:4000", []string{"7"}, "7", ""},
		{"[2001:db8::1]:4000", []string{"Andre\u0301"}, "Andr\u00e9", ""},
		{"[fe80::7%eth0]:4000", []string{"u-1"}, "u-1", ""},
		{"10.1.2.3:4000", []string{"\ufb01"}, "\ufb01", ""}, // a ligature is not its letters: another buyer may have these
		{"192.0.2.8:4000", []string{"u-1"}, "", ""},
		{"10.2.0.1:4000", []string{" wrong "}, "", ""},
		{"@", []string{"u-1"}, "", ""},
		{"10.1.2.3:4000", nil, "", ""},
		{"10.1.2.3:4000", []string{""}, "", ""},
		{"10.1.2.3:4000", []string{"u-1", "u-2"}, "", "given 2 times"},
		{"10.1.2.3:4000", []string{"u-1 "}, "", "space"},
		{"10.1.2.3:4000", []string{strings.Repeat("é", 65)}, "", "1 to 64"},
		{"10.1.2.3:4000", []string{"\xff"}, "", "printable"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/deduct", nil) //nolint:noctx // it is not sent
		r.RemoteAddr = c.peer
		r.Header["X-Stockd-Buyer"] = c.value
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		got, err := h.From(r)
		if got.ID != c.want || (err != nil) != (c.wrong != "") {
			t.Errorf("%s with %q is %+v (%v), want %q", c.peer, c.value, got, err, c.want)
		}
		if wrong, ok := errors.AsType[*buyer.HeaderError](err); err != nil && (!ok || wrong.Header != "X-Stockd-Buyer" || !strings.Contains(wrong.Reason, c.wrong)) {
			t.Errorf("%s with %q: %v, want %q", c.peer, c.value, err, c.wrong)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"u-1", " 7", "7 ", "Andre\u0301", "\xff", strings.Repeat("\u0344", 64), "小明", "a\u00a0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := buyer.Canonical(text)
		if err != nil {
			return
		}
		if again, err := buyer.Canonical(id); err != nil || again != id || id == "" || strings.TrimSpace(id) != id {
			t.Errorf("%q is %q, and that is %q (%v)", text, id, again, err)
		}
	})
}
