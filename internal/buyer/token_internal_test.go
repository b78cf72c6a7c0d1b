package buyer

import (
	"crypto/ed25519"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/stockd/stockd/internal/must"
)

// FuzzKeySet reads any JWKS file: it is rejected without a word of it, or has keys of the
// two algorithms alone, each fit for its own.
func FuzzKeySet(f *testing.F) {
	for _, seed := range []string{
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"keys":[{"kty":"oct","kid":"b","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}]}`,
		`{"keys":[{"kty":"oct","k":"AA"}]}`, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}`, `{"keys":[]}`, `{"keys":null}`, `[]`, `{"keys":[{}]}`, `{"keys":[{"kty":"oct","k":"AA","alg":"HS256","use":"enc"}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		list, err := readKeys([]byte(content))
		if err != nil {
			return
		}
		seen := make(map[verifierName]bool)
		for _, v := range list {
			switch key := v.key.(type) {
			case ed25519.PublicKey:
				if v.algorithm != jose.EdDSA || len(key) != ed25519.PublicKeySize {
					t.Errorf("%q has a point of %d bytes for %s", content, len(key), v.algorithm)
				}
			case []byte:
				if v.algorithm != jose.HS256 || len(key) < MinSecret {
					t.Errorf("%q has a secret of %d bytes for %s", content, len(key), v.algorithm)
				}
			default:
				t.Errorf("%q has a key of %T", content, v.key)
			}
			name := verifierName{v.kid, v.algorithm}
			if seen[name] {
				t.Errorf("%q has two keys %+v", content, name)
			}
			seen[name] = true
		}
		if len(list) == 0 {
			t.Errorf("%q is read without a key", content)
		}
	})
}

// FuzzHeader sends any value as the header of a buyer: a trusted proxy names a buyer in
// its one form, and no other peer names any.
func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"u-1", " 7", "Andre\u0301", "\xff", "", "a\x00", strings.Repeat("x", 65)} {
		f.Add(seed, "10.0.0.7:1")
	}
	f.Add("u-1", "192.0.2.1:1")
	f.Add("u-1", "[::ffff:10.0.0.7%eth0]:1")
	f.Add("u-1", "10.0.0.7")
	h := NewHeader("X-Stockd-Buyer", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	f.Fuzz(func(t *testing.T, value, remote string) {
		who, err := h.From(&http.Request{Header: http.Header{"X-Stockd-Buyer": {value}}, RemoteAddr: remote})
		if err != nil {
			return
		}
		if id, err := Canonical(value); who.ID != "" && (err != nil || id != who.ID) || who.GoodsID != 0 {
			t.Errorf("%q is %+v, and in its one form %q (%v)", value, who, id, err)
		}
		if trusted := strings.Contains(remote, "10."); who.ID != "" && !trusted {
			t.Errorf("%q is believed from %q", value, remote)
		}
	})
}

// FuzzClaims signs any claims: they name a buyer in its one form, or are rejected.
func FuzzClaims(f *testing.F) {
	const secret = "0123456789abcdef0123456789abcdef"
	source := must.Get(NewSecret([]byte(secret), "shop"))(f)
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret)}, nil))(f)
	for _, seed := range []string{
		`{"sub":"u-1","exp":99999999999,"aud":"shop"}`, `{"sub":"u-1","exp":99999999999,"aud":["a","shop"],"goods_id":"7"}`, `{"sub":"u-1","exp":1e400,"aud":"shop"}`,
		`{"sub":7,"exp":99999999999,"aud":"shop"}`, `{"sub":" 7","exp":99999999999,"aud":"shop"}`, `{"exp":99999999999,"aud":"shop"}`, `{"sub":"u","exp":99999999999,"aud":"shop","goods_id":7.0}`,
		`{"sub":"u","exp":99999999999,"aud":"shop","goods_id":-1}`, `{"sub":"u","exp":99999999999,"aud":"shop","goods_id":null}`, `[]`, `null`, `{"sub":"a","sub":"b","exp":99999999999,"aud":"shop"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		signed := must.Get(signer.Sign([]byte(claims)))(t)
		token := must.Get(signed.CompactSerialize())(t)
		who, err := source.From(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
		if err != nil {
			return
		}
		if id, err := Canonical(who.ID); err != nil || id != who.ID || who.GoodsID < 0 || !strings.Contains(claims, "exp") || !strings.Contains(claims, "shop") {
			t.Errorf("%s is %+v (%v)", claims, who, err)
		}
	})
}

// The clocks of the issuer and of a replica may be five seconds apart.
func TestATokenIsValidUpToTheLeewayOfTheClocks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := &Token{now: func() time.Time { return now }}
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(now.Add(d)) }
	later := at(time.Hour)
	for reason, c := range map[string][2]jwt.Claims{ // the last that is accepted, and the first that is not
		"has expired":      {{Expiry: at(-5 * time.Second)}, {Expiry: at(-6 * time.Second)}},
		"is not valid yet": {{Expiry: later, NotBefore: at(5 * time.Second)}, {Expiry: later, NotBefore: at(6 * time.Second)}},
		// The same, by the time of issue.
		"is not valid yet ": {{Expiry: later, IssuedAt: at(5 * time.Second)}, {Expiry: later, IssuedAt: at(6 * time.Second)}},
	} {
		for i, claimed := range c {
			claimed.Subject = "u-1"
			got, err := s.accept(claims{Claims: claimed})
			if i == 0 && (err != nil || got.ID != "u-1") {
				t.Errorf("%q, in the leeway: %+v, %v", reason, got, err)
			}
			if i == 1 && (err == nil || err.Error() != "the token "+strings.TrimSpace(reason)) {
				t.Errorf("%q, beyond it: %+v, %v", reason, got, err)
			}
		}
	}
}
