//go:build prove

package sql_test

import (
	"testing"

	"github.com/stockd/stockd/internal/locktest"
)

// A thousand tokens of every lock that gives some, each above the one before.
func TestProveTokensGrow(t *testing.T) { locktest.ProveTokens(t, lab, 1000, locks()...) }
