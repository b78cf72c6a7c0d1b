// Package must ends a test that cannot go on.
package must

import "testing"

// Do ends the test where one of the calls has failed.
func Do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Get is the value of a call, as in x := must.Get(f())(t); where the call has failed, it ends the test.
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Be ends the test where a value is not the wanted one; about says of what it is.
func Be[T comparable](t testing.TB, got, want T, about ...any) {
	t.Helper()
	if got != want {
		t.Fatalf("%v: it is %v, want %v", about, got, want)
	}
}
