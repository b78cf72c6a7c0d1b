// Package admintoken verifies the bearer tokens of the admin API, each with a name.
package admintoken

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Owner is the name of the token that is configured without one.
const Owner = "owner"

// maxName is the longest name, in characters.
const maxName = 64

// Set is a set of named tokens. It stores only hashes.
type Set struct{ entries []entry }

type entry struct {
	name string
	hash [sha256.Size]byte
}

// Single is the set of one token, whose name is Owner.
func Single(token string) *Set { return &Set{entries: []entry{{Owner, sha256.Sum256([]byte(token))}}} }

// Find returns the name of a token. The time that it takes reveals neither the tokens,
// nor their lengths, nor which of them it was.
func (s *Set) Find(token string) (name string, ok bool) {
	got, match := sha256.Sum256([]byte(token)), -1
	for i, e := range s.entries {
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(e.hash[:], got[:]), i, match)
	}
	if match < 0 {
		return "", false
	}
	return s.entries[match].name, true
}

// Names lists the names in their order.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.entries))
	for _, e := range s.entries {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names
}

// add adds a token; name and token must be new.
func (s *Set) add(name, token string) error {
	added := entry{name, sha256.Sum256([]byte(token))}
	for _, e := range s.entries {
		switch {
		case e.name == name:
			return fmt.Errorf("the name %s is given twice", name)
		case e.hash == added.hash:
			return fmt.Errorf("%s and %s have the same token", e.name, name)
		}
	}
	s.entries = append(s.entries, added)
	return nil
}

// addLines adds the tokens of a file: a name and a token a line, comments after #. Each
// error names file and line, and shows no token.
func (s *Set) addLines(path, content string) error {
	var errs []error
	number, before := 0, len(s.entries)
	for line := range strings.Lines(content) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := s.addLine(fields); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, number, err))
		}
	}
	if len(errs) == 0 && len(s.entries) == before {
		errs = append(errs, fmt.Errorf("%s: has no token", path))
	}
	return errors.Join(errs...)
}

func (s *Set) addLine(fields []string) error {
	if len(fields) != 2 {
		return fmt.Errorf("must be a name and a token without blanks, not %d words", len(fields))
	}
	name, token := fields[0], fields[1]
	if len(name) > maxName || strings.ContainsFunc(name, unfitForName) {
		return fmt.Errorf("the name must be 1 to %d of a-z 0-9 . _ -", maxName)
	}
	if err := Weak(token); err != nil {
		return fmt.Errorf("the token %w", err) // the name may be the token, where the two were exchanged
	}
	return s.add(name, token)
}

func unfitForName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

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
