package main

import (
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// process is a stocklab replica in a process of its own.
type process struct{ cmdtest.Replica }

// startReplica starts one with failpoints and further flags.
func startReplica(t *testing.T, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartReplica(t, "replica", append([]string{"--lab-enabled=true"}, flags...)...)}
}
