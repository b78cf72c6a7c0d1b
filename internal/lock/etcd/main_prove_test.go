//go:build prove

package etcd_test

import (
	"testing"

	"github.com/stockd/stockd/internal/locktest"
)

// A thousand tokens of every lock that gives some, each above the one before.
func TestProveTokensGrow(t *testing.T) { locktest.ProveTokens(t, lab, 1000, locks()...) }

// The suite again, on several servers.
func TestProveLocksOnSeveralServers(t *testing.T) {
	for _, topology := range []string{"etcd-cluster"} {
		t.Run(topology, func(t *testing.T) { locktest.ProveOn(t, lab, topology, locks()...) })
	}
}
