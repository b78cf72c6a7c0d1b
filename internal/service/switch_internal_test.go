package service

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stockd/stockd/internal/stock"
)

// The database has gone between the write and the look: no client may learn that
// nothing happened, but for the one whose switch was not written.
func TestASwitchThatCannotBeSeenMayHaveHappened(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	c := &Catalogue{switches: newSwitches(store)}
	if err := c.switchBy(t.Context(), nil); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("what was written and cannot be seen is answered with %v, want %v", err, stock.ErrUnknownOutcome)
	}
	if err := c.switchBy(t.Context(), stock.ErrBusy); !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("what was not written is answered with %v, want %v", err, stock.ErrBusy)
	}
}
