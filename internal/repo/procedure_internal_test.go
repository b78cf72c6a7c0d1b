package repo

import (
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/stockd/stockd/internal/stock"
)

// Each word of the procedure is an answer to its purchase, and what is left counts down in the order of the batch.
func TestTheWordsOfTheProcedureAreAnswers(t *testing.T) {
	figure := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
	answer := saleAnswer{outcome: "sold", left: figure(4), perUser: figure(3), allocated: figure(8), version: figure(9)}
	if err := json.Unmarshal([]byte(`[["sold", 71], ["limit", 2], ["buyer", 0], ["allocated", 0], ["sold", 72], ["short", 0], ["sold", 73]]`), &answer.verdicts); err != nil {
		t.Fatal(err)
	}
	orders := make([]stock.Order, 7)
	for i := range orders {
		orders[i].Quantity = int64(i + 1)
	}
	outcomes, err := answer.outcomes(1, orders)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []stock.Outcome{
		{Order: stock.Order{ID: "71", Quantity: 1, Remaining: 16}},
		{Rejected: &stock.UserLimitError{PerUser: 3, Has: 2}},
		{Rejected: stock.ErrUserUnknown},
		{Rejected: &stock.AllocatedError{Units: 8, Version: 9}},
		{Order: stock.Order{ID: "72", Quantity: 5, Remaining: 11}},
		{Rejected: stock.ErrInsufficientStock},
		{Order: stock.Order{ID: "73", Quantity: 7, Remaining: 4}},
	} {
		if !reflect.DeepEqual(outcomes[i], want) {
			t.Errorf("purchase %d is answered with %+v, want %+v", i, outcomes[i], want)
		}
	}
	for outcome, want := range map[string]error{
		"unknown": stock.ErrUnknownGoods, "late": stock.ErrBusy, "changed": ErrRowChanged, "sold": stock.ErrUnknownOutcome, "rejected": stock.ErrUnknownOutcome,
	} { // with fewer verdicts than purchases
		if _, err := (saleAnswer{outcome: outcome}).outcomes(1, orders); !errors.Is(err, want) || errors.Is(err, ErrRowChanged) != (outcome == "changed") {
			t.Errorf("%q is %v, want %v", outcome, err, want)
		}
	}
}
