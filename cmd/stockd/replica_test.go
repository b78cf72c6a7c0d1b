package main

import (
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// process is a stockd serve in a process of its own.
type process struct{ cmdtest.Replica }

// startReplica starts one with further flags.
func startReplica(t *testing.T, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartReplica(t, "serve", flags...)}
}

// startReplicaWith starts one with further variables and flags, and without an item.
func startReplicaWith(t *testing.T, env []string, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartEmpty(t, "serve", env, flags...)}
}
