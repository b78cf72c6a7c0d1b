package admintoken

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

const (
	// MinLength is the least length of a token, in bytes.
	MinLength = 16
	// minDifferent is how many different characters a token needs at least.
	minDifferent = 8
)

// Weak returns why a token is easy to guess, or nil. The error does not show the token.
func Weak(token string) error {
	if n := len(token); n < MinLength {
		return fmt.Errorf("must have at least %d characters, not %d", MinLength, n)
	}
	if Published(token) {
		return fmt.Errorf("must not be an example of stockd's documents; openssl rand -hex 24 makes a good one")
	}
	different := make(map[rune]bool, utf8.RuneCountInString(token))
	for _, r := range token {
		different[r] = true
	}
	if n := len(different); n < minDifferent {
		return fmt.Errorf("must have at least %d different characters, not %d; openssl rand -hex 24 makes a good one", minDifferent, n)
	}
	return nil
}

// Published reports whether a secret was ever shipped or documented with stockd. Removed examples
// stay in the list, because they may still be in use.
func Published(secret string) bool {
	return slices.Contains([]string{
		"an-example-token-for-one-machine",
		"please-change-this-token",
		"an-example-for-etcd",
		"an-example-for-etcds-root",
		"an-example-password",
		"an-example-root-password",
		"an-example-for-redis",
		"stockd:an-example-for-zookeeper",
	}, secret)
}
