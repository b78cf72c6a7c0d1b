package labtest

import (
	"testing"
	"time"
)

// AwaitAnswer asks a server until it answers, for a limited time.
func AwaitAnswer(t *testing.T, of string, limit time.Duration, ask func() error) {
	t.Helper()
	var err error
	if !Eventually(limit, func() bool { err = ask(); return err == nil }) {
		t.Fatalf("%s does not answer within %s: %v", of, limit, err)
	}
}

// Eventually repeats a check until it succeeds, for a limited time.
func Eventually(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Await repeats a check until it succeeds, and ends a test where it does not in time.
func Await(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	if !Eventually(limit, ok) {
		t.Fatalf("waited %s for %s", limit, what)
	}
}
