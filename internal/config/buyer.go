package config

import (
	"net/http"
	"strings"
)

// The sources of buyer.from.
const (
	BuyerFromRequest = "request"
	BuyerFromHeader  = "header"
	BuyerFromToken   = "token"
)

// minSecret is the least length of a secret that signs tokens, in bytes.
const minSecret = 32

// buyer rejects a source that cannot verify a buyer, and keys that would have no effect although
// their admin expects verified buyers.
func (l *Loaded) buyer() error {
	b := l.Buyer
	hasKeys := b.Secret != "" || b.JWKSFile != ""
	switch {
	case b.From == BuyerFromToken:
		return l.buyerKeys()
	case hasKeys || b.Audience != "":
		return l.wrong("buyer.from", "is %s, and keys of tokens or buyer.audience are set: they need token", b.From)
	case b.From == BuyerFromHeader && len(l.HTTP.TrustedProxies) == 0:
		return l.wrong("buyer.from", "is header, and http.trusted_proxies is empty: no peer would be trusted")
	case b.From == BuyerFromHeader && !isHeaderName(b.Header):
		return l.wrong("buyer.header", "must be the name of a header, such as X-Stockd-Buyer, not %q", b.Header)
	}
	return nil
}

// buyerKeys requires exactly one source of token keys.
func (l *Loaded) buyerKeys() error {
	b := l.Buyer
	switch {
	case b.Secret == "" && b.JWKSFile == "":
		return l.wrong("buyer.from", "is token, and none of buyer.jwks_file, buyer.secret and buyer.secret_file is set; buyer.from may also be header, or request where clients are trusted")
	case b.Secret != "" && b.JWKSFile != "":
		return l.wrong("buyer.jwks_file", "and buyer.secret are both set (%s)", l.Source("buyer.secret"))
	case b.Secret != "" && len(b.Secret) < minSecret:
		return l.wrong("buyer.secret", "must have at least %d bytes, not %d", minSecret, len(b.Secret))
	}
	return nil
}

// isHeaderName also rejects headers that have another meaning.
func isHeaderName(name string) bool {
	const special = "!#$%&'*+-.^_`|~"
	notToken := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(special, r)
	}
	switch http.CanonicalHeaderKey(name) {
	case "", "Host", "Authorization", "Connection", "Content-Type", "Content-Length", "Cookie", "Idempotency-Key", "X-Forwarded-For", "X-Request-Id":
		return false
	}
	return !strings.ContainsFunc(name, notToken)
}
