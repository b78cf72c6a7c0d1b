package backend_test

import (
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/should"
)

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for version, since := range map[string]bool{
		"6.0.16": false, "6.2": true, "6.2.0": true, "6.9": true, "6.10.1": true, "7.0.15": true, "10.11.14-MariaDB": true, "5": false, "": false,
	} {
		should.Be(t, backend.IsSince(version, "6.2"), since, "is since 6.2:", version)
	}
}
