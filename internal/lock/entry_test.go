package lock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What is not given has a default: the clock of the machine, and no tokens.
func TestWhatIsNotGivenHasADefault(t *testing.T) {
	fixed, broken := time.Unix(1, 0), errors.New("no token can be issued")
	given := Deps{
		Now:   func() time.Time { return fixed },
		Issue: func(_ context.Context, name string) (uint64, error) { return uint64(len(name)), broken },
	}
	if now := given.Clock()(); !now.Equal(fixed) {
		t.Errorf("the clock that was given shows %s", now)
	}
	if token, err := given.NextToken(t.Context(), "name"); token != 4 || !errors.Is(err, broken) {
		t.Errorf("the token of a counter that was given is %d (%v)", token, err)
	}
	if late := time.Since(Deps{}.Clock()()); late < 0 || late > time.Minute {
		t.Errorf("the clock of the machine is %s late", late)
	}
	if token, err := (Deps{}).NextToken(t.Context(), "name"); token != 0 || err != nil {
		t.Errorf("without a counter the token is %d (%v)", token, err)
	}
}
