package checker_test

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

func TestToldIsBrokenByAFigureThatWasNotMeasured(t *testing.T) {
	h := &history.History{Figures: map[string]float64{"tries_per_sale": 2.5}}
	if f := checker.Reported("tries_per_sale")(h); !f.Holds || f.Numbers["tries_per_sale"] != 2.5 || f.Says != "tries per sale is 2.50" {
		t.Errorf("%+v", f)
	}
	if f := checker.Reported("tries_per_sale", "sales_per_s")(h); f.Holds || !strings.Contains(f.Says, "sales per s was not measured") {
		t.Errorf("%+v", f)
	}
}
