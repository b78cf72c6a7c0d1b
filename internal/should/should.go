// Package should fails a test that goes on.
package should

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// Do fails the test where one of the calls has failed.
func Do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// Fail fails the test where a call has not ended with an error, or, where that is nil, has ended with one;
// about says of what call.
func Fail(t testing.TB, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v: it ends with %v, want %v", about, err, want)
	}
}

// Close closes something when the test ends.
func Close(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		Do(t, c.Close())
	})
}

// Be fails the test where a value is not the wanted one; about says of what it is.
func Be[T comparable](t testing.TB, got, want T, about ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%v: it is %v, want %v", about, got, want)
	}
}

// Contain fails the test where a text lacks one of the parts.
func Contain(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// Equal is Be of lists.
func Equal[E comparable](t testing.TB, got, want []E, about ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v: it is %v, want %v", about, got, want)
	}
}

// Reject is Fail of a call that has a value, too, as in should.Reject(f())(t, want).
func Reject[T any](_ T, err error) func(t testing.TB, want error, about ...any) {
	return func(t testing.TB, want error, about ...any) {
		t.Helper()
		Fail(t, err, want, about...)
	}
}
