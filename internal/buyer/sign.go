package buyer

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// GenerateKey makes a private key of EdDSA, as a PEM file.
func GenerateKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// PublicKeys is the JWKS file that verifies what a private key signs. Its kid is the
// thumbprint of the key, so that two keys never share one.
func PublicKeys(private []byte) ([]byte, error) {
	key, err := readPrivate(private)
	if err != nil {
		return nil, err
	}
	public := jose.JSONWebKey{Key: key.Public(), Algorithm: string(jose.EdDSA), Use: "sig"}
	thumbprint, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("name a key: %w", err)
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	content, err := json.MarshalIndent(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}}, "", "  ")
	return append(content, '\n'), err
}

func readPrivate(content []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the file is no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the file has no private key of Ed25519")
	}
	return private, nil
}

// SigningKey signs tokens, as the server of a shop does.
type SigningKey jose.SigningKey

// NewSigningKey is a private key whose public half is in a JWKS, by the kid that it has there.
func NewSigningKey(private, jwks []byte) (SigningKey, error) {
	key, err := readPrivate(private)
	if err != nil {
		return SigningKey{}, err
	}
	list, err := readKeys(jwks)
	if err != nil {
		return SigningKey{}, err
	}
	for _, v := range list {
		if public, ok := v.key.(ed25519.PublicKey); ok && public.Equal(key.Public()) {
			return SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: v.kid}}, nil
		}
	}
	return SigningKey{}, errors.New("its public key is not in the JWKS: replicas would reject what it signs")
}

// NewSigningSecret is a shared secret.
func NewSigningSecret(secret []byte) SigningKey {
	return SigningKey{Algorithm: jose.HS256, Key: secret}
}

// Sign makes a token of a buyer. An audience that is empty is left out.
func (k SigningKey) Sign(b Buyer, audience string, ttl time.Duration) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey(k), new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	signed := map[string]any{"sub": b.ID, "exp": jwt.NewNumericDate(time.Now().Add(ttl))}
	if audience != "" {
		signed["aud"] = audience
	}
	if b.GoodsID != 0 {
		signed["goods_id"] = b.GoodsID
	}
	return jwt.Signed(signer).Claims(signed).Serialize()
}
