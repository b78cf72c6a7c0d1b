//go:build prove

package main

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// Fifty walks on each database server, with seeds that were not picked.
func TestProveRandomWalks(t *testing.T) {
	seeds := make([]uint64, 50)
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) { runWalks(t, database, seedsOr(t, seeds...)) })
	}
}
