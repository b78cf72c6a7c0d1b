package buyer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

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
