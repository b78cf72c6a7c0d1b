package main

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/pkg/client"
)

// signer signs tokens of buyers, and writes the file with its key.
type signer struct {
	kid     string
	public  ed25519.PublicKey
	private ed25519.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, public, private}
}

// writeKeys replaces the file.
func (s signer) writeKeys(t *testing.T, path string) {
	t.Helper()
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.public, KeyID: s.kid}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (s signer) token(t *testing.T, sub string) string {
	t.Helper()
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: s.private, KeyID: s.kid}}
	signs, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signs).Claims(jwt.Claims{Subject: sub, Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute))}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A shop's buyers are who its tokens say, through the client of this repository, and the
// keys are replaced while it sells.
func TestProductionSellsToVerifiedBuyers(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	first, second := newSigner(t, "first"), newSigner(t, "second")
	first.writeKeys(t, keys)
	r := startReplica(t, "--config", production, "--http-drain-delay=0s", "--buyer-jwks-file="+keys)
	anonymous := client.Client{URL: r.URL}
	mine, other := anonymous, anonymous
	mine.BuyerToken, other.BuyerToken = first.token(t, "u-1"), first.token(t, "u-2")
	purchase := client.Purchase{GoodsID: 1, RequestID: "checkout"}
	sale, err := mine.Deduct(t.Context(), purchase)
	if err != nil {
		t.Fatal(err)
	}
	if order, err := mine.OrderOf(t.Context(), client.Purchase{RequestID: "checkout"}); err != nil || order.OrderID != sale.OrderID {
		t.Errorf("the buyer finds %+v (%v), want order %s", order, err, sale.OrderID)
	}
	if order, err := other.OrderOf(t.Context(), client.Purchase{RequestID: "checkout"}); !errors.Is(err, client.ErrUnknownOrder) {
		t.Errorf("another buyer finds %+v (%v)", order, err)
	}
	if _, err := anonymous.Deduct(t.Context(), purchase); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("without a token the answer is %v", err)
	}
	second.writeKeys(t, keys)
	mine.BuyerToken = second.token(t, "u-1")
	cmdtest.Await(t, "the new key", 10*time.Second, func() bool {
		again, err := mine.Deduct(t.Context(), purchase)
		return err == nil && again.OrderID == sale.OrderID && again.Replayed
	})
	if _, err := other.Deduct(t.Context(), purchase); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("a token by the earlier key is answered with %v", err)
	}
}

// What a client itself writes into the header of a proxy is not believed.
func TestAForgedBuyerIsNotBelieved(t *testing.T) {
	for proxy, want := range map[string]int{"127.0.0.1": http.StatusOK, "192.0.2.0/24": http.StatusUnauthorized} {
		r := startReplica(t, "--buyer-from=header", "--buyer-required=true", "--http-trusted-proxies="+proxy)
		request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1")
		request.Header.Set("X-Stockd-Buyer", "u-1")
		request.Header.Set("X-Forwarded-For", "192.0.2.1")
		if got := cmdtest.Do(request); got.Status != want {
			t.Errorf("with %s trusted the header is answered with %d %s, want %d", proxy, got.Status, got.Text, want)
		}
	}
}
