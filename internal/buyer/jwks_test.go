package buyer_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

// file is a JWKS file, and what is logged of it.
type file struct {
	path string
	log  testlog.Lines
}

func newFile(t *testing.T, keys ...jose.JSONWebKey) *file {
	t.Helper()
	f := &file{path: filepath.Join(t.TempDir(), "keys.json")}
	f.write(t, keys...)
	return f
}

// write replaces the file as a deployment does.
func (f *file) write(t *testing.T, keys ...jose.JSONWebKey) {
	t.Helper()
	content := must.Get(json.Marshal(jose.JSONWebKeySet{Keys: keys}))(t)
	f.replace(t, string(content))
}

func (f *file) replace(t *testing.T, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(f.path+".new", []byte(content), 0o600))
	must.Do(t, os.Rename(f.path+".new", f.path))
}

func (f *file) logged(text string) int { return f.log.Count(text) }

func (f *file) open(t *testing.T) buyer.Source {
	t.Helper()
	return must.Get(buyer.NewKeys(t.Context(), f.path, "", slog.New(slog.NewTextHandler(&f.log, nil))))(t)
}

// issuer signs tokens.
type issuer struct {
	jose.JSONWebKey

	private ed25519.PrivateKey
}

func newIssuer(t *testing.T, kid string) issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	return issuer{jose.JSONWebKey{Key: public, KeyID: kid, Algorithm: "EdDSA", Use: "sig"}, private}
}

func (i issuer) token(t *testing.T) string {
	t.Helper()
	return "Bearer " + sign(t, jose.EdDSA, i.private, i.KeyID, map[string]any{"sub": "u-1", "exp": in(time.Minute)})
}

// accepted reports whether a token is accepted when the file has been read again.
func accepted(s buyer.Source, token string) bool {
	time.Sleep(2 * time.Second)
	_, err := from(s, token)
	return err == nil
}

func TestKeysRotateWithoutARestart(t *testing.T) {
	a, b := newIssuer(t, "a"), newIssuer(t, "b")
	f := newFile(t, a.JSONWebKey)
	synctest.Test(t, func(t *testing.T) {
		ofA, ofB := a.token(t), b.token(t) // each is sent again and again, as a client does
		s := f.open(t)
		time.Sleep(500 * time.Millisecond) // each change is between two looks at the file
		must.Get(from(s, ofA))(t)
		f.write(t, a.JSONWebKey, b.JSONWebKey)
		if !accepted(s, ofB) || !accepted(s, ofA) {
			t.Error("a token of two keys is rejected")
		}
		f.write(t, b.JSONWebKey)
		if accepted(s, ofA) {
			t.Error("a token of a key that was taken back is accepted")
		}
		f.replace(t, `{"keys": [`)
		if !accepted(s, ofB) || f.logged("keys of buyers not read") != 1 {
			t.Errorf("while the file is broken its key is rejected, or it is not said: %s", &f.log)
		}
		must.Do(t, os.Remove(f.path))
		if !accepted(s, ofB) || f.logged("keys of buyers not read") != 2 {
			t.Errorf("without the file its key is rejected, or it is not said: %s", &f.log)
		}
		f.write(t, a.JSONWebKey)
		if !accepted(s, ofA) || f.logged("keys of buyers not read") != 2 || f.logged("keys=1") != 2 || f.logged("keys=2") != 1 {
			t.Errorf("a new file is not read, or it is not said: %s", &f.log)
		}
		time.Sleep(time.Minute)
		rejected(t, s, "a token that was accepted until its time was over", "has expired", ofA)
	})
}

// A key is for one algorithm, and a set of none is no set.
func TestWhatIsInAKeySet(t *testing.T) {
	a := newIssuer(t, "a")
	shared := jose.JSONWebKey{Key: []byte(secret)[:buyer.MinSecret], KeyID: "shared", Algorithm: "HS256"}
	rsa := `{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"}`
	future := `{"kty":"PQ","kid":"f"}`
	text := func(k jose.JSONWebKey) string {
		content := must.Get(json.Marshal(k))(t)
		return string(content)
	}
	f := newFile(t)
	f.replace(t, `{"keys":[`+rsa+","+future+","+text(a.JSONWebKey)+","+text(shared)+"]}")
	s := f.open(t)
	claims := map[string]any{"sub": "u-1", "exp": in(time.Minute)}
	for _, token := range []string{a.token(t), "Bearer " + sign(t, jose.HS256, []byte(secret)[:buyer.MinSecret], "shared", claims)} {
		should.Be(t, must.Get(from(s, token))(t).ID, "u-1", "the buyer")
	}
	audience := must.Get(buyer.NewKeys(t.Context(), f.path, "shop", slog.New(slog.DiscardHandler)))(t)
	rejected(t, audience, "without the audience", "another audience", a.token(t))
	claims["aud"] = "shop"
	if _, err := from(audience, "Bearer "+sign(t, jose.EdDSA, a.private, "a", claims)); err != nil {
		t.Errorf("with the audience: %v", err)
	}
	rejected(t, s, "no kid beside several keys", "unknown key", "Bearer "+sign(t, jose.EdDSA, a.private, "", claims))

	single := newFile(t)
	content := `{"keys":[` + text(a.JSONWebKey) + "]}"
	single.replace(t, "\ufeff"+content+strings.Repeat(" ", 1<<20-len(content)-len("\ufeff"))) // as large as it may be
	if _, err := from(single.open(t), "Bearer "+sign(t, jose.EdDSA, a.private, "", claims)); err != nil {
		t.Errorf("no kid and one key: %v", err)
	}
	same := newFile(t, a.JSONWebKey, jose.JSONWebKey{Key: shared.Key, KeyID: "a"}) // of two algorithms
	for _, token := range []string{a.token(t), "Bearer " + sign(t, jose.HS256, shared.Key, "a", claims)} {
		if _, err := from(same.open(t), token); err != nil {
			t.Errorf("two keys of one kid: %v", err)
		}
	}
	another := jose.JSONWebKey{Key: shared.Key, KeyID: "another", Algorithm: "HS512"}
	short := jose.JSONWebKey{Key: []byte("short"), KeyID: "short"}
	private := jose.JSONWebKey{Key: a.private, KeyID: "private"}
	encrypts := jose.JSONWebKey{Key: a.Key, KeyID: "a", Use: "enc"}
	for want, content := range map[string]string{
		"no JWKS":        `[]`,
		"no key is for":  `{"keys":[` + rsa + "," + text(encrypts) + "," + text(another) + `]}`,
		"key 1: it has":  `{"keys":[` + text(short) + `]}`,
		"private key":    `{"keys":[` + text(private) + `]}`,
		"key 2: another": `{"keys":[` + text(a.JSONWebKey) + "," + text(a.JSONWebKey) + `]}`,
		"it is no JWK":   `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`,
		"no such file":   "",
		"more than 1048": strings.Repeat(" ", 1<<20+1),
	} {
		f.replace(t, content)
		if content == "" {
			must.Do(t, os.Remove(f.path))
		}
		if _, err := buyer.NewKeys(t.Context(), f.path, "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%.60s: %v, want %q", content, err, want)
		}
	}
}

// signed is a token for an hour, as the value of Authorization.
func signed(t *testing.T, key buyer.SigningKey, b buyer.Buyer, audience string) string {
	t.Helper()
	return "Bearer " + must.Get(key.Sign(b, audience, time.Hour))(t)
}

func TestAGeneratedKeySignsWhatItsPublicKeyVerifies(t *testing.T) {
	private := must.Get(buyer.GenerateKey())(t)
	jwks := must.Get(buyer.PublicKeys(private))(t)
	f := newFile(t)
	f.replace(t, string(jwks))
	want := buyer.Buyer{ID: "7", GoodsID: 8}
	key := must.Get(buyer.NewSigningKey(private, jwks))(t)
	should.Be(t, must.Get(from(f.open(t), signed(t, key, want, "")))(t), want, "the buyer")
	expired := must.Get(key.Sign(want, "", -time.Minute))(t)
	rejected(t, f.open(t), "after its time", "expired", "Bearer "+expired)

	// The owner of a shop may have named the key otherwise, beside others.
	var set jose.JSONWebKeySet
	must.Do(t, json.Unmarshal(jwks, &set))
	set.Keys[0].KeyID = "of the admin"
	f.write(t, newIssuer(t, "other").JSONWebKey, set.Keys[0])
	key = must.Get(buyer.NewSigningKey(private, must.Get(json.Marshal(jose.JSONWebKeySet{Keys: append(set.Keys, newIssuer(t, "other").JSONWebKey)}))(t)))(t)
	should.Be(t, must.Get(from(f.open(t), signed(t, key, want, "")))(t), want, "the buyer under another kid")
}

func TestASecretSignsForAnAudience(t *testing.T) {
	s, key, want := must.Get(buyer.NewSecret([]byte(secret), "shop"))(t), buyer.NewSigningSecret([]byte(secret)), buyer.Buyer{ID: "7"}
	should.Be(t, must.Get(from(s, signed(t, key, want, "shop")))(t), want, "the buyer")
	rejected(t, s, "without the audience", "another audience", signed(t, key, want, ""))
}

func TestAKeyThatCannotSign(t *testing.T) {
	private := must.Get(buyer.GenerateKey())(t)
	jwks := must.Get(buyer.PublicKeys(private))(t)
	other := must.Get(x509.MarshalPKCS8PrivateKey(must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)))(t)
	for want, key := range map[string][2][]byte{
		"no PEM":                    {jwks, jwks},
		"no private key of Ed25519": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: other}), jwks},
		"not in the JWKS":           {must.Get(buyer.GenerateKey())(t), jwks},
		"no JWKS":                   {private, private},
	} {
		if _, err := buyer.NewSigningKey(key[0], key[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
