package experiments

import (
	"testing"

	"github.com/stockd/stockd/pkg/client"
)

// Units that are missing do not make up for units that were oversold.
func TestUnitsAreWrongWhicheverWay(t *testing.T) {
	for _, c := range []struct {
		oversold, lost int64
		want           float64
	}{{0, 0, 0}, {3, 0, 3}, {0, 3, 3}, {0, -3, 3}, {3, -3, 6}} {
		if got := wrongUnits(client.Audit{Oversold: c.oversold, Lost: c.lost}); got != c.want {
			t.Errorf("%d oversold, %d lost: %g units are wrong, want %g", c.oversold, c.lost, got, c.want)
		}
	}
}

// A sale that no buyer was answered is as wrong as an answer without a sale.
func TestAnswersThatDifferFromTheSalesAreCountedWhicheverWay(t *testing.T) {
	for _, c := range []struct {
		answered, sold int64
		want           float64
	}{{7, 7, 0}, {7, 5, 2}, {5, 7, 2}} {
		if got := paidWrongly(c.answered, c.sold); got != c.want {
			t.Errorf("%d answered, %d sold: %g differ, want %g", c.answered, c.sold, got, c.want)
		}
	}
}
