//go:build prove

package main

import "testing"

// Fifty walks: their seeds are those that nobody has picked.
func TestProveRandomWalks(t *testing.T) {
	seeds := make([]uint64, 50)
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	runWalks(t, seedsOr(t, seeds...))
}
