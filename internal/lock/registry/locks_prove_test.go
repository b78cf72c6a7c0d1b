//go:build prove

package registry_test

import (
	"testing"

	"github.com/stockd/stockd/pkg/locktest"
)

// A thousand tokens of every lock that gives some, each above the one before.
func TestProveTokensGrow(t *testing.T) { locktest.ProveTokens(t, lab, 1000) }

// The suite again, with the locks on backends of several servers.
func TestProveLocksOnSeveralServers(t *testing.T) {
	for _, name := range []string{"zookeeper-ensemble", "etcd-cluster", "redis-cluster", "redis-sentinels"} {
		t.Run(name, func(t *testing.T) { locktest.ProveOn(t, lab, name) })
	}
}
