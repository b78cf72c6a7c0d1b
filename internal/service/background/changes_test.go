package background_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func TestAChangeIsShownUntilItSucceeds(t *testing.T) {
	c, cause := new(background.Changes), errors.New("no answer")
	recall := stock.Change{Kind: stock.ChangeByRecall}
	wantState := func(when, want string, err error) {
		t.Helper()
		if of := c.Of(1); want == "" && len(of) > 0 || want != "" && (len(of) != 1 || of[0].State != want || !errors.Is(of[0].Err, err)) {
			t.Errorf("%s it is %+v, want %q %v", when, of, want, err)
		}
	}
	should.Fail(t, c.Run(1, recall, func() error { wantState("meanwhile", stock.ChangeInProgress, nil); return cause }), cause, "it is answered with")
	wantState("after a failure", stock.ChangeFailed, cause)
	of := c.Of(2)
	should.Be(t, len(of), 0, "another item has", of)
	_ = c.Run(1, recall, func() error { wantState("tried again", stock.ChangeInProgress, nil); return nil })
	wantState("after a success", "", nil)
	func() {
		defer func() { _ = recover() }()
		_ = c.Run(1, recall, func() error { panic("a bug") })
	}()
	wantState("after a panic", stock.ChangeFailed, background.ErrPanicked)
}
