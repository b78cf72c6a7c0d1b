//go:build prove

package main

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// Fifty kills at random moments, of each strategy.
func TestProveRedisStockSurvivesKills(t *testing.T) {
	surviveKills(t, servers.MariaDB, 50, redisStockKilled())
}

func TestProveGroupedSalesSurviveKills(t *testing.T) {
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) {
			surviveKills(t, database, 50, groupedAndKilled("sql-conditional"), groupedAndKilled("sql-procedure"), groupedAndKilled("sql-for-update"),
				groupedAndKilled("sql-bucket"), groupedAndKilled("redis-reentrant"), fencedAndKilled(),
				manyItemsAndKilled("sql-conditional"), manyItemsAndKilled("sql-for-update"), manyItemsAndKilled("redis-stock"))
		})
	}
}

func TestProveReservationsSurviveKills(t *testing.T) {
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) {
			reserveAndKill(t, database, 50, redisStockKilled(), groupedAndKilled("sql-conditional"), groupedAndKilled("sql-bucket"), fencedAndKilled())
		})
	}
}

// Units move between the row, buckets and Redis, and kills come in the middle of it.
func TestProveMovingSalesSurviveKills(t *testing.T) {
	for _, database := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(database, func(t *testing.T) { surviveKills(t, database, 20, movingAndKilled()) })
	}
}
