package config

import (
	"fmt"
	"log/slog"
)

// Secret is a value that is never printed. Its key is joined by one for a file that holds it
// instead: database.password by database.password_file.
type Secret struct {
	// File is the path of that file; empty: there is none.
	File  string
	value string
}

// NewSecret holds a value.
func NewSecret(value string) Secret { return Secret{value: value} }

// shown is printed in place of a secret.
const shown = "[not shown]"

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value }

// String is what is shown in place of the value.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return shown
}

// Format hides the value from the verbs that do not call String, such as %#v and %d.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) } //nolint:errcheck // there is no other place for it

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secrets are all secrets, by their keys.
func (c *Config) Secrets() map[string]Secret {
	all := make(map[string]Secret)
	for _, f := range fields(c) {
		if secret := f.secret(); secret != nil {
			all[f.key] = *secret
		}
	}
	return all
}
