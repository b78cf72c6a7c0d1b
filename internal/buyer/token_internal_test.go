package buyer

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

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
