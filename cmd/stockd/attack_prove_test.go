//go:build prove

package main

import "testing"

func TestProveFiveThousandIdleConnections(t *testing.T) {
	r := startReplica(t, "--http-read-timeout=10s", "--http-idle-timeout=10s")
	r.holdsOff(t, 5000, 128<<20)
}
