// Package buyer verifies the buyer of a request: by a header that a trusted proxy sets, or by a
// signed token.
package buyer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/stockd/stockd/internal/stock"
)

// Buyer is the verified sender of a request.
type Buyer struct {
	// ID is canonical; empty: the request names no buyer.
	ID string
	// GoodsID is the only item that the buyer may buy; 0 is any.
	GoodsID int64
}

// Source verifies the buyer of a request. It may be used from any number of goroutines.
type Source interface {
	// From returns an empty Buyer where the request names none. An error is a *TokenError
	// or a *HeaderError.
	From(r *http.Request) (Buyer, error)
}

// TokenError is why a token is rejected.
type TokenError struct{ Reason string }

// Error begins with the token.
func (e *TokenError) Error() string { return "the token " + e.Reason }

// HeaderError reports that a trusted proxy sent an invalid buyer.
type HeaderError struct{ Header, Reason string }

// Error names the header.
func (e *HeaderError) Error() string { return e.Header + " " + e.Reason }

// ErrSpace reports that an id begins or ends with a space.
var ErrSpace = errors.New("must not begin or end with a space")

// Canonical is the one form of a buyer's id, which is in NFC. An error says what is
// allowed. It is not wrapped: the caller names the field.
func Canonical(id string) (string, error) {
	if !utf8.ValidString(id) {
		return "", errForm()
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	id = norm.NFC.String(id)
	switch {
	case id == "" || utf8.RuneCountInString(id) > stock.MaxUserID || strings.ContainsFunc(id, unprintable):
		return "", errForm()
	case strings.TrimSpace(id) != id:
		return "", ErrSpace
	}
	return id, nil
}

func errForm() error { return fmt.Errorf("must be 1 to %d printable characters", stock.MaxUserID) }
