package registry_test

import (
	"testing"

	"github.com/stockd/stockd/pkg/locktest"
)

// Every lock of the registry keeps the contract and its claims.
func TestLocks(t *testing.T) { locktest.Run(t, lab) }
