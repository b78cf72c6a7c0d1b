package config

import "log/slog"

// Secret is a value that is never printed.
type Secret string

// shown is printed in place of a secret.
const shown = "[not shown]"

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String hides the value from every verb of fmt.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return shown
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
