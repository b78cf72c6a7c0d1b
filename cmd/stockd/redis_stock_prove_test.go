//go:build prove

package main

import "testing"

// Fifty kills at random moments.
func TestProveRedisStockSurvivesKills(t *testing.T) { surviveKills(t, 50) }
