package report

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// sold is a history of an item of 10 units of which a strategy sold so many.
func sold(strategy string, units, left int64) *history.History {
	return &history.History{
		Requests: []history.Request{{Strategy: strategy, GoodsID: 1}},
		Samples:  []history.Sample{{At: ms(0), GoodsID: 1, Stock: 10}, {At: ms(40), GoodsID: 1, Sold: 3, Stock: 9}},
		Audits:   []history.Audit{{At: ms(100), Audit: stock.NewAudit(1, left, 10, units, units)}},
	}
}

func TestSalesShareTheirScales(t *testing.T) {
	first, second := SaleOf(sold("naive", 20, 9)), SaleOf(sold("sql-conditional", 10, 0))
	if got, want := first.Points, []Took{{0, 0, 10}, {40, 3, 9}, {100, 20, 9}}; len(got) != 3 || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("the points are %v, want %v", got, want)
	}
	p := Sales([]Sale{first, second})
	all := texts(t, p)
	for _, want := range []string{"naive", "20 sold, the row says 9 left", "sql-conditional", "10 sold, the row says 0 left"} {
		if !strings.Contains(all, want) {
			t.Errorf("the picture lacks %q:\n%s", want, all)
		}
	}
	if n := strings.Count(all, "\n20\n"); n != 2 {
		t.Errorf("%d panels have the scale of the larger sale, want 2:\n%s", n, all)
	}
	if n := drawn(p, "excess"); n != 1 {
		t.Errorf("%d sales are drawn as oversold, want the first", n)
	}
	for _, s := range p.shapes {
		if s.X+s.W > 100 {
			t.Errorf("a %s ends at %v%%, beyond the edge", s.Kind, s.X+s.W)
		}
	}
}
